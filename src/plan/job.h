// SPDX-License-Identifier: Apache-2.0
// Job: what is to be trained, as plain data.
#pragma once

#include <cstdint>
#include <optional>

#include "spec/layout/layout.h"
#include "spec/machine.h"
#include "spec/model.h"

namespace trireme::plan {

// A feed-forward of which every token uses some parts.
struct Experts {
  int64_t count = 0, chosen = 0;  // chosen: by one token
  int64_t ffn = 0;                // width of one
  int64_t shared_ffn = 0;         // width of those that every token uses, together
  int64_t dense_layers = 0;       // blocks, the first ones, with an ordinary feed-forward
  bool operator==(const Experts&) const = default;
};

struct Job {
  spec::ModelSpec model;  // of a model with experts: with the ordinary feed-forward
  std::optional<Experts> experts;
  int64_t seq_len = 0;
  int64_t global_batch = 0;  // sequences of a step
  bool document_mask = false;
  // What the engine computes with, by system.determinism and the machine (backend_for).
  spec::Backend backend = spec::cuda_backend(true);
  // Tokens of a step at which progress by token has fallen to half; 0: not known.
  double critical_batch_tokens = 0;

  int64_t tokens() const { return seq_len * global_batch; }
};

inline spec::Workload workload_of(const Job& job) {
  return {
      .seq_len = job.seq_len, .global_batch = job.global_batch, .document_mask = job.document_mask};
}

// Returns the engine's back end on a machine; a machine without units for bf16 is a CPU.
spec::Backend backend_for(const spec::Machine&, bool deterministic);

// The planner's layouts are settled, but for accumulation, logical_dp, reduce and reshard where
// nothing but a price is asked for.
using schedule::Kind;
using spec::Layout;
using spec::Placement;
using spec::Precision;

// Micro-batches that each rank runs in a step.
inline int64_t micro_batches(const Job& job, const Layout& layout) {
  return job.global_batch / (layout.data_ranks() * layout.micro_batch);
}

}  // namespace trireme::plan
