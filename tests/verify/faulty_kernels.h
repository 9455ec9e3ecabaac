// SPDX-License-Identifier: Apache-2.0
// Tables of CPU kernels with one wrong op.
#pragma once

#include "kernels/table.h"

namespace trireme::tests {

const kernels::Kernels& norm_counted_twice();        // merge_sums doubles the squares
const kernels::Kernels& tokens_counted_twice();      // merge_sums doubles the tokens
const kernels::Kernels& first_sums_counted_again();  // merge_sums uses part 0 for all
const kernels::Kernels& squares_counted_twice();     // sum_squares
const kernels::Kernels& accumulate_overwrites();
const kernels::Kernels& adamw_does_nothing();
const kernels::Kernels& fill_leaves_gradients();      // zeros are written to sums and states only
const kernels::Kernels& gemm_forgets_beta();          // products overwrite instead of adding
const kernels::Kernels& weight_gradients_left_out();  // products with a transposed first factor
const kernels::Kernels& embedding_one_row_off();      // forward
const kernels::Kernels& embedding_grad_one_row_off();
const kernels::Kernels& stats_one_column_off();  // cross_entropy_stats
const kernels::Kernels& grad_one_column_off();   // cross_entropy_grad
const kernels::Kernels& accumulate_adds_twice();
const kernels::Kernels& first_stats_for_all();   // cross_entropy_merge
const kernels::Kernels& copies_counted_apart();  // merge_sums counts copies as more samples

}  // namespace trireme::tests
