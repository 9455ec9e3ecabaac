// SPDX-License-Identifier: Apache-2.0
// Plan: everything that can change memory, time or bits of a run, as plain data. It is saved with
// every run; planner, simulator, engine and checkpoint read the same one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/text/json_fwd.h"
#include "schedule/schedule.h"
#include "spec/facts/facts.h"
#include "spec/layout/layout.h"
#include "spec/layout/rules.h"
#include "spec/model.h"
#include "spec/parallel/axes.h"
#include "spec/recipe.h"

namespace trireme::spec {

// Which training state is sharded over Axis::zero: none (plain data parallel), optim (ZeRO-1), +
// grads (2), + params (3).
struct Residency {
  bool params = false, grads = false, optim = false;
  bool operator==(const Residency&) const = default;
};

// Bytes of one rank, by purpose, predicted or measured. The stash is listed by pool
// (stash_layout.h).
struct MemoryTable {
  int64_t params = 0;  // compute copies and constant tables
  int64_t grads = 0;
  int64_t optim = 0;  // master weights, moments, step state
  int64_t stash_inputs = 0, stash_f_to_b = 0, stash_f_to_w = 0, stash_b_to_w = 0,
          stash_gradients = 0, stash_recompute = 0, stash_stream = 0;
  int64_t stash_gaps = 0;  // fragmentation between frames of stages of different sizes on one rank
  int64_t scratch = 0;
  int64_t comm = 0;
  int64_t staging = 0;  // batches on their way to the device
  bool operator==(const MemoryTable&) const = default;

  int64_t stash() const {
    return stash_inputs + stash_f_to_b + stash_f_to_w + stash_b_to_w + stash_gradients +
           stash_recompute + stash_stream + stash_gaps;
  }
  int64_t total() const { return params + grads + optim + stash() + scratch + comm + staging; }
};

struct Prediction {
  std::vector<MemoryTable> memory;  // by pp coordinate; equal on all ranks of one coordinate
  double model_flops = 0;           // of one step of the whole job, without recompute
  double hardware_flops = 0;        // with recompute
  bool operator==(const Prediction&) const = default;

  // Returns the table of the ranks with the highest total. REQUIRES: memory is filled in.
  const MemoryTable& largest() const {
    return *std::max_element(
        memory.begin(), memory.end(),
        [](const MemoryTable& a, const MemoryTable& b) { return a.total() < b.total(); });
  }
};

struct Plan {
  // ---- decisions: a settled layout, and what a step trains
  Layout layout;
  int64_t seq_len = 0;
  bool document_mask = false;
  bool inference = false;
  bool keeps_losses = false;  // see Workload

  // ---- derived from them for this model
  Sizes mesh;
  schedule::Schedule schedule;  // with all micro-batches that a rank runs in a step
  std::vector<int> first_layer_of_stage = {0};
  Residency zero;
  std::vector<Recompute> recompute;  // one entry per layer of the model
  Recipe recipe;
  OptimizerTypes optimizer;
  int64_t head_chunk_rows = 0;  // rows of logits that exist at one time

  Prediction predicted;
  bool operator==(const Plan&) const = default;

  int64_t microbatch_tokens() const { return layout.micro_batch * seq_len; }
  // Returns a rank's tokens of a micro-batch.
  int64_t rank_tokens() const { return microbatch_tokens() / mesh[Axis::cp]; }
  Workload workload() const {
    return {seq_len, layout.global_batch(), document_mask, inference, keeps_losses};
  }
  int64_t layers() const { return static_cast<int64_t>(recompute.size()); }  // of the model
  int stages() const { return static_cast<int>(first_layer_of_stage.size()); }
};

// Returns the shape of a rank's share of a micro-batch.
LocalShape local_shape_of(const Plan&);

// The layers [first, last) of a stage.
struct LayerRange {
  int first = 0, last = 0;
};
LayerRange layers_of_stage(const ModelSpec&, const Plan&, int stage);
// Returns the pp coordinate of the ranks that run this layer. REQUIRES: one lane.
int rank_of_layer(const Plan&, int layer);
// Returns the layers of all stages that ranks of this pp coordinate run, in order.
std::vector<int> layers_of_rank(const ModelSpec&, const Plan&, int pp_rank);

// Returns the default number of rows of logits that exist at one time: as many as fit
// Backend::logits_bytes, in chunks of equal size. `vocab`: of one rank.
int64_t default_head_chunk(const Backend&, base::DType, int64_t vocab, int64_t tokens);

// A plan with its prediction, or every rule that the layout violates.
struct Solved {
  Plan plan;  // if rules are violated: only its layout is filled in
  std::vector<Broken> broken;
};
// `ranks`: the size of the world; 0: the product of the layout's degrees.
Solved solve(const ModelSpec&, const Workload&, const Layout&, const Backend&, int64_t ranks = 0);
// Returns the plan before its schedule is generated, its stages are cut and its prediction is
// computed; of the schedule only the number of micro-batches is filled in. REQUIRES: the layout
// violates no rule.
Plan unscheduled_plan(const ModelSpec&, const Workload&, const Layout&, const Backend&);
// Throws ConfigError that lists every violated rule.
Plan solve_or_throw(const ModelSpec&, const Workload&, const Layout&, const Backend&);

// Throws ConfigError that lists every rule that the plan's layout violates, and everything in the
// plan that does not follow from its layout.
void check_plan(const ModelSpec&, const Plan&);

base::Json to_json(const Plan&);
// Also reads plans of the first version, which have no layout. Throws ConfigError naming the key
// that is missing, unknown or of the wrong type.
Plan plan_from_json(const base::Json&);

}  // namespace trireme::spec
