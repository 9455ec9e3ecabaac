// SPDX-License-Identifier: Apache-2.0
// Tables of CPU kernels with one wrong op of a mixture of experts.
#pragma once

#include "kernels/table.h"

namespace trireme::tests {

const kernels::Kernels& row_weights_lost();          // grouped_swiglu_forward: all are 1
const kernels::Kernels& row_weights_lost_in_grad();  // grouped_swiglu_backward
const kernels::Kernels& rows_swapped_in_grad();      // two rows of a group, in dy
const kernels::Kernels& expert_gradients_doubled();  // grouped_backward_weight
const kernels::Kernels& rows_of_the_next_expert();   // grouped_forward: groups begin a row early
const kernels::Kernels& drops_not_counted();         // route_rows without statistics
const kernels::Kernels& pairs_counted_twice();       // router_forward doubles the counts
const kernels::Kernels& chosen_again();              // recompute chooses the next experts
const kernels::Kernels& bias_ignored();              // router_forward
const kernels::Kernels& bias_not_updated();          // router_bias
const kernels::Kernels& aux_doubled();               // router_backward
const kernels::Kernels& z_left_out();                // router_backward
const kernels::Kernels& terms_of_masked_tokens();    // router_backward: every token has a label
const kernels::Kernels& weights_without_gradient();  // router_backward: no pair has a row
const kernels::Kernels& last_choice_left_out();      // sum_pairs
const kernels::Kernels& padding_not_zeroed();        // gather_pairs leaves ones
const kernels::Kernels& groups_of_one_rank();        // arrange_rows ignores other ranks' rows

}  // namespace trireme::tests
