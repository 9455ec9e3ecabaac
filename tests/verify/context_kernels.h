// SPDX-License-Identifier: Apache-2.0
// Tables of CPU kernels with one wrong op of context parallelism.
#pragma once

#include "kernels/table.h"

namespace trireme::tests {

const kernels::Kernels& last_key_left_out();           // attention_ranges_forward
const kernels::Kernels& last_key_left_out_of_grad();   // attention_ranges_backward
const kernels::Kernels& documents_ignored();           // both: keys from the first row on
const kernels::Kernels& merge_adds_plainly();          // attention_merge without weights
const kernels::Kernels& merge_leaves_lse();            // attention_merge does not update lse
const kernels::Kernels& keys_in_order_of_ranks();      // scatter_rows copies
const kernels::Kernels& key_grads_in_order_of_rows();  // gather_rows copies
const kernels::Kernels& positions_of_the_slice();      // RoPE counts the rank's rows
const kernels::Kernels& grad_positions_of_the_slice();
const kernels::Kernels& labels_shifted();             // in the rank's rows, after they were cut
const kernels::Kernels& tokens_reversed();            // rows of the slice in the opposite order
const kernels::Kernels& key_heads_swapped();          // attention_forward reads the wrong heads
const kernels::Kernels& slices_counted_as_samples();  // merge_sums
const kernels::Kernels& one_slice_counted();          // merge_sums leaves other slices out

}  // namespace trireme::tests
