// SPDX-License-Identifier: Apache-2.0
// Job describes what is to be trained, as plain data.
#pragma once

#include <cstdint>
#include <optional>

#include "spec/layout/layout.h"
#include "spec/machine.h"
#include "spec/model.h"

namespace trireme::plan {

// A mixture of experts in place of the feed-forward.
struct Experts {
  int64_t count = 0, chosen = 0;  // routed experts in all, and per token
  int64_t ffn = 0;                // width of one routed expert
  int64_t shared_ffn = 0;         // total width of the shared experts
  int64_t dense_layers = 0;       // the first blocks, which have an ordinary feed-forward
  bool operator==(const Experts&) const = default;
};

struct Job {
  spec::ModelSpec model;  // blocks have the ordinary feed-forward even if `experts` is set
  std::optional<Experts> experts;
  int64_t seq_len = 0;
  int64_t global_batch = 0;  // sequences per step
  bool document_mask = false;
  // The engine's back end, which depends on system.determinism and the machine (backend_for).
  spec::Backend backend = spec::cuda_backend(true);
  // Tokens per step at which progress per token has fallen to half; 0: unknown.
  double critical_batch_tokens = 0;

  int64_t tokens() const { return seq_len * global_batch; }
};

inline spec::Workload workload_of(const Job& job) {
  return {
      .seq_len = job.seq_len, .global_batch = job.global_batch, .document_mask = job.document_mask};
}

// Returns the engine's back end on a machine. A machine whose bf16 peak does not exceed its fp32
// peak counts as a CPU.
spec::Backend backend_for(const spec::Machine&, bool deterministic);

// The planner's layouts have all fields filled in. Only accumulation, logical_dp, reduce and
// reshard may be open if the caller needs no more than a price.
using schedule::Kind;
using spec::Layout;
using spec::Placement;
using spec::Precision;

// Returns the layout with its open fields filled in (spec::filled).
Layout filled(const Job&, const Layout&);

// Returns the number of micro-batches that each rank runs in a step.
inline int64_t micro_batches(const Job& job, const Layout& layout) {
  return job.global_batch / (layout.data_ranks() * layout.micro_batch);
}

}  // namespace trireme::plan
