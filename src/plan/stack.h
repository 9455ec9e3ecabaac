// SPDX-License-Identifier: Apache-2.0
// Stack: what a training program does with a plan that changes its time or memory: which operations
// it fuses, what it overlaps, how fast its host is. Trireme is one; others are here so that runs
// that were published can be predicted, and users of other programs served.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "plan/job.h"
#include "spec/recipe.h"

namespace trireme::plan {

struct Stack {
  std::string name;
  std::string what;  // one line: which programs this is, and where its numbers come from

  // ---- compute
  bool flash = true;    // attention without its matrix of scores in memory
  bool flash2 = false;  // by FlashAttention-2, not by the vendor's kernels
  // Without flash: bytes moved per score, forward and backward.
  double score_bytes_forward = 11, score_bytes_backward = 19;
  double streaming = 1;       // bytes of what only moves bytes, over those of Trireme's rows
  double gemm = 1;            // time of matrix products over the machine's
  double attention = 1;       // time of flash attention over the machine's
  double head_streaming = 1;  // the same as streaming, for head and loss
  // Seconds in which the host sends one kernel, and kernels over Trireme's rows; 0: replayed
  // graphs.
  double host_seconds = 0;
  double kernels = 1;

  // ---- policies
  bool full_recompute_is_whole = false;     // the whole forward again, its collectives too
  bool selective_is_attention = false;      // selective recompute: the core of attention
  bool even_cut = false;                    // blocks in equal shares, embedding and head on top
  double grad_bytes = 4, reduce_bytes = 4;  // of an element: kept, and summed over dp
  double gather_bytes = 2;                  // of an element, where parameters are gathered
  bool reduces_each = false;                // sharded gradients are summed after each micro-batch

  // ---- overlap: the part of a transfer that can be hidden where there is enough to hide it under
  double tp_overlap = 0, dp_overlap = 0, pp_overlap = 0, cp_overlap = 0, ep_overlap = 0;
  double zero3_overlap = 0;
  double data_rate = 1;  // of what the machine's links give, in collectives of dp
  // Compute under a transfer takes so much longer, of the transfer's time.
  double contention = 0;

  // ---- the rest of a step
  double optimizer = 1;          // time of the update over Trireme's
  double optimizer_bytes = 12;   // kept per parameter besides weight and gradient
  double step_seconds = 0;       // of every step: data, logs
  double jitter = 0;             // time over that without it: 1 + jitter * sqrt(2 ln n)
  double activation_factor = 1;  // bytes kept over Trireme's
  double extra_memory = 0;       // bytes

  // Trireme's own: buffers are known to the byte.
  bool is_engine() const { return name == "trireme"; }
};

const Stack& trireme_stack();
// With gradients of these types: as they are added up, and as they are summed over dp where that is
// shorter.
void keep_grads(Stack&, base::DType grad, base::DType reduce);
// With master weights of this type (spec::OptimizerTypes).
void keep_master(Stack&, base::DType master);
base::DType master_of(const Stack&, Precision);
// What the layers of a step compute with.
spec::Recipe recipe_of(const Stack&, Precision);
// All that are known; Trireme first.
const std::vector<Stack>& stacks();
// Null: not known.
const Stack* find_stack(std::string_view name);

}  // namespace trireme::plan
