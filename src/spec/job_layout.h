// SPDX-License-Identifier: Apache-2.0
// JobLayout: what a user asks for before there is a plan: ranks along each axis, and the sizes that
// they must divide. check_layout() fills in what was left open and finds every rule that is broken,
// each with the nearest values that keep it; configuration and planner share this arithmetic.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "spec/model.h"
#include "spec/plan.h"

namespace trireme::spec {

// No degree may be larger: products of all of them stay far inside their types.
constexpr int64_t most_degree = 1 << 16;
constexpr int64_t most_pp = 4096;

struct JobLayout {
  int64_t world = 0;  // ranks that there are; 0: as many as the degrees ask for
  int64_t dp = 1, zero = 1, tp = 1, pp = 1;  // at most one is -1: what is left of the world
  int64_t zero_stage = -1;                   // -1: 3 where zero > 1. It says nothing where zero = 1
  int64_t logical_dp = 0;                    // 0: dp * zero
  std::optional<ReduceWhen> reduce;          // none: once, or each where sharded gradients need it
  bool sequence_parallel = false;            // it says nothing where tp = 1
  int64_t local_batch = 1;                   // sequences of a micro-batch
  int64_t global_batch = -1;                 // of a step; -1: local_batch * logical_dp
  int64_t seq_len = 1;

  // How ranks along pp share the layers; it says nothing where there is one stage.
  std::string schedule = "1f1b";                   // schedule/catalogue.h, all with one lane
  int64_t chunks = 0;                              // stages of a rank; 0: the schedule's own number
  std::optional<schedule::Schedule> own_schedule;  // in place of a named one; see SplitOptions
  std::vector<int64_t> first_layers;               // of each stage; empty: balanced by FLOPs
  int64_t send_buffers = 2;
  std::optional<bool> keep_params;  // of sharded ones; none: where pp > 1

  int64_t data_ranks() const { return dp * zero; }
  int64_t ranks() const { return dp * zero * tp * pp; }
  // Of one worker, in a step.
  int64_t microbatches() const { return global_batch / (local_batch * logical_dp); }
  // Of one rank.
  int64_t rank_microbatches() const { return microbatches() * (logical_dp / data_ranks()); }
};

enum class LayoutKey : uint8_t {
  dp,
  zero,
  tp,
  pp,
  zero_stage,
  logical_dp,
  reduce,
  sequence_parallel,
  local_batch,
  global_batch,
  seq_len,
  schedule,
  chunks,
  own_schedule,
  first_layers,
  model,
  count
};
// What messages call them.
using LayoutNames = std::array<std::string, static_cast<size_t>(LayoutKey::count)>;
LayoutNames layout_names();  // "dp", "zero", ...

struct LayoutProblem {
  std::vector<LayoutKey> keys;  // that the rule is about; `text` begins with one of them
  std::string text;             // "tp = 3: heads = 8 does not divide by it; nearest: 2 or 4"
};

struct LayoutCheck {
  JobLayout layout;  // nothing is left open, as far as that was possible
  std::vector<LayoutProblem> problems;
};
// REQUIRES: send_buffers at least 1, chunks at least 0; degrees and logical_dp from 1 to
// most_degree (pp: most_pp) where they are not left open, world from 0 to 2^20, the batch's sizes
// positive and products of two of them inside int64. `dims` without heads: the model is not known,
// and no rule is about it.
LayoutCheck check_layout(const ModelDims& dims, JobLayout asked, const LayoutNames& names);

// The same as options of a plan. REQUIRES: a layout that check_layout() has filled in.
SplitOptions split_of(const JobLayout&);

}  // namespace trireme::spec
