// SPDX-License-Identifier: Apache-2.0
// Plan: everything that can change memory, time or bits of a run, as plain data. It is saved with
// every run; planner, simulator, engine and checkpoint read the same one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "schedule/schedule.h"
#include "spec/axes.h"
#include "spec/facts.h"
#include "spec/model.h"
#include "spec/recipe.h"

namespace trireme::spec {

// Which training state is sharded over Axis::zero: none (plain data parallel), optim (ZeRO-1), +
// grads (2), + params (3).
struct Residency {
  bool params = false, grads = false, optim = false;
  bool operator==(const Residency&) const = default;
};

enum class Context : uint8_t { none, ring, striped, ulysses, ulysses_ring };
// Gradients: at the end of a step, or after every micro-batch. See data_parallel.h.
enum class ReduceWhen : uint8_t { once, each };

// Bytes of one rank, by purpose, predicted or measured. The stash by pool; see stash_layout.h.
struct MemoryTable {
  int64_t params = 0;  // compute copies, and constant tables
  int64_t grads = 0;
  int64_t optim = 0;  // master weights, moments, step state
  int64_t stash_inputs = 0, stash_f_to_b = 0, stash_f_to_w = 0, stash_b_to_w = 0,
          stash_gradients = 0, stash_recompute = 0, stash_stream = 0;
  int64_t stash_gaps = 0;  // that stages of different sizes on one rank leave between them
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
  std::vector<MemoryTable> memory;  // by pp coordinate; the same on all ranks of one
  double model_flops = 0;           // of one step of the whole job, without recompute
  double hardware_flops = 0;        // with it
  bool operator==(const Prediction&) const = default;

  // Of the ranks that need the most. REQUIRES: memory is filled in.
  const MemoryTable& largest() const {
    return *std::max_element(
        memory.begin(), memory.end(),
        [](const MemoryTable& a, const MemoryTable& b) { return a.total() < b.total(); });
  }
};

struct OptimizerTypes {
  std::string name = "adamw";
  // u16: the lower halves of fp32 weights whose upper halves are the parameters
  // (base/float_halves.h).
  base::DType master = base::DType::f32, first_moment = base::DType::f32,
              second_moment = base::DType::f32;
  bool operator==(const OptimizerTypes&) const = default;
};

struct Plan {
  // How the job is split.
  Sizes mesh;
  schedule::Schedule schedule;  // its microbatches are all that a rank runs in a step
  std::vector<int> first_layer_of_stage = {0};
  Residency zero;
  bool sequence_parallel = false;
  Context context = Context::none;

  // Forward only: no gradients, no optimizer state, no backward.
  bool inference = false;

  // One micro-batch of one data-parallel rank.
  int64_t microbatch_sequences = 1;
  int64_t seq_len = 0;
  bool document_mask = false;  // sequences may be cut further, at borders of documents

  // What is kept, and in which format. One entry per layer of the model.
  std::vector<Recompute> recompute;
  Recipe recipe;
  OptimizerTypes optimizer;

  // Numerical identity of the reduction (data_parallel.h).
  int logical_dp = 1;  // workers of a step, hosted by dp * zero ranks in equal shares
  ReduceWhen reduce = ReduceWhen::once;
  base::DType reduce_dtype = base::DType::f32;  // bf16: of sums over workers, whatever recipe.grad

  // Sizes that trade memory for time.
  int64_t bucket_bytes = 0;  // 0: one bucket per layer
  int prefetch = 1;          // buckets gathered ahead
  // In backward the next bucket is gathered after the current layer's gradients were sent off,
  // instead of before its backward.
  bool prefetch_after = false;
  // Sharded parameters are gathered once for all micro-batches of a step and stay until the stage's
  // last action.
  bool keep_params = false;
  int send_buffers = 2;  // messages to the same stage that may be on their way at one time
  int64_t head_chunk_rows = 0;
  double expert_capacity = 0;  // 0: no experts
  Place optimizer_place = Place::device, stash_place = Place::device;

  Prediction predicted;
  bool operator==(const Plan&) const = default;

  int64_t microbatch_tokens() const { return microbatch_sequences * seq_len; }
  int stages() const { return static_cast<int>(first_layer_of_stage.size()); }
};

// The rank's share of a micro-batch under the plan.
LocalShape local_shape_of(const Plan&);

// Layers [first, last) of a stage.
struct LayerRange {
  int first = 0, last = 0;
};
LayerRange layers_of_stage(const ModelSpec&, const Plan&, int stage);
// The pp coordinate of the ranks that run this layer. REQUIRES: one lane.
int rank_of_layer(const Plan&, int layer);
// Layers of all stages that ranks of this pp coordinate run, in order.
std::vector<int> layers_of_rank(const ModelSpec&, const Plan&, int pp_rank);

// Rows of logits that exist at one time where nobody says how many: as many as the back end's share
// of memory holds, in chunks of equal size. `vocab`: of one rank.
int64_t usual_head_chunk(const Backend&, base::DType, int64_t vocab, int64_t tokens);

struct OneRankOptions {
  int64_t microbatch_sequences = 1;
  int64_t seq_len = 0;
  int microbatches = 1;  // gradient accumulation
  Recipe recipe;
  base::DType master = base::DType::f32;  // as OptimizerTypes::master
  Recompute recompute = Recompute::none;  // of the first recompute_blocks blocks
  int recompute_blocks = -1;              // the others have none; -1, or more than there are: all
  int64_t head_chunk_rows = 0;            // 0: from the back end's logits_bytes
  bool document_mask = false;
  bool inference = false;  // REQUIRES: one micro-batch
};
// A checked plan, with its prediction, for one rank.
Plan one_rank_plan(const ModelSpec&, const OneRankOptions&, const Backend&);

// How a job is spread over ranks: along the data axes, along tp, and along pp.
struct SplitOptions {
  int dp = 1, zero = 1;
  int tp = 1;
  int pp = 1;
  std::string schedule = "1f1b";  // schedule/catalogue.h
  int chunks = 0;                 // stages of a rank; 0: the schedule's own number
  // In place of a named one: F, B, W and BW of all that a rank runs. Messages, ReduceGrads and
  // SyncTied are used as they stand; each kind of which there is none is added.
  std::optional<schedule::Schedule> own_schedule;
  std::vector<int> first_layer_of_stage;  // empty: balanced_cut()
  bool sequence_parallel = false;         // between the projections a rank has 1 / tp of the tokens
  Residency residency;
  int logical_dp = 0;  // 0: dp * zero
  ReduceWhen reduce = ReduceWhen::once;
  base::DType reduce_dtype = base::DType::f32;
  int prefetch = 1;
  bool prefetch_after = false;
  bool keep_params = false;
  int send_buffers = 2;
};
// The same for pp * dp * zero * tp ranks. `microbatches` of the first options are those of one
// worker.
Plan parallel_plan(const ModelSpec&, const OneRankOptions&, const SplitOptions&, const Backend&);
// The same before its schedule is written down, its stages are cut, and anything is checked or
// predicted; of the schedule it has the number of micro-batches.
Plan unscheduled_plan(const ModelSpec&, const OneRankOptions&, const SplitOptions&, const Backend&);

// "8", or "8 or 16": the multiples of `unit` on both sides of `value`, for messages.
std::string nearest_multiples(int64_t value, int64_t unit);

// Throws ConfigError that lists every rule that model and plan break together.
void check_plan(const ModelSpec&, const Plan&);

base::Json to_json(const Plan&);
// Throws ConfigError naming the key that is missing, unknown or of the wrong type.
Plan plan_from_json(const base::Json&);

}  // namespace trireme::spec
