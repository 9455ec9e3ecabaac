// SPDX-License-Identifier: Apache-2.0
// Job describes what is to be trained, as plain data.
#pragma once

#include <cstdint>

#include "spec/layout/layout.h"
#include "spec/machine.h"
#include "spec/model.h"

namespace trireme::plan {

// A workload together with its model. REQUIRES: global_batch is not open, except in Described.
struct Job : spec::Workload {
  spec::ModelSpec model;
  // The engine's back end, which depends on system.determinism and the machine (backend_for).
  spec::Backend backend = spec::cuda_backend(true);
  // Tokens per step at which progress per token has fallen to half; 0: unknown.
  double critical_batch_tokens = 0;
  // Rows of the experts of the busiest rank along ep, relative to the mean; 1: balanced. It has no
  // effect on models without experts, or if ep is 1.
  double expert_imbalance = 1;
  // The engine sums over ranks in its fixed order (comm.fixed_order), not in the library's.
  bool fixed_order = true;

  int64_t tokens() const { return seq_len * global_batch; }
};

inline const spec::Workload& workload_of(const Job& job) { return job; }

// Returns the engine's back end on a machine. A machine whose bf16 peak does not exceed its fp32
// peak counts as a CPU.
spec::Backend backend_for(const spec::Machine&, bool deterministic);

inline bool has_experts(const Job& job) { return spec::moe_of(job.model) != nullptr; }
// Returns the first block with experts, or, if the model has none, the last block.
const spec::BlockSpec& main_block(const spec::ModelSpec&);
// Returns the first block without experts of a model that also has blocks with experts, or null.
const spec::BlockSpec* dense_block(const spec::ModelSpec&);

// The planner's layouts have all fields filled in. Only accumulation, logical_dp, reduce and
// reshard may be open if the caller needs no more than a price.
using schedule::Kind;
using spec::Layout;
using spec::Placement;
using spec::Precision;

// Returns the layout with its open fields filled in (spec::filled).
Layout filled(const Job&, const Layout&);

// Returns the ranks that share a copy of the training state of experts.
inline int expert_shards(const Layout& l) {
  if (l.zero_stage == 0) return 1;
  return spec::expert_sizes(l).value_or(spec::ExpertSizes{}).ezero;
}

// Returns the number of micro-batches that each rank runs in a step.
inline int64_t micro_batches(const Job& job, const Layout& layout) {
  return job.global_batch / (layout.data_ranks() * layout.micro_batch);
}

}  // namespace trireme::plan
