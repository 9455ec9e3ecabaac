// SPDX-License-Identifier: Apache-2.0
// Layout: how a job is laid out over ranks, as plain data. It is the one vocabulary of every part:
// a configuration parses into it, importers and the planner's search produce it, solve() makes a
// Plan of it, and checkpoints store it. What a field does not say (a degree of -1, "automatic") is
// filled in by settle(), which also finds every broken rule (rules.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/text/json_fwd.h"
#include "schedule/catalogue.h"
#include "schedule/schedule.h"
#include "spec/facts/facts.h"
#include "spec/recipe.h"

namespace trireme::spec {

// Limits that no job comes near: products of all degrees stay far inside their types.
constexpr int64_t max_degree = 1 << 16;
constexpr int64_t max_pp = 4096;
constexpr int64_t max_priced_degree = 1 << 20;  // of layouts that are priced, and of data ranks
constexpr int64_t max_ranks = int64_t{1} << 40;

// When gradients are summed over workers: at the end of a step, or after every micro-batch of a
// worker (data_parallel.h). `automatic`: once, or each where sharded gradients need it.
enum class ReduceWhen : uint8_t { automatic, once, each, count };
std::string_view name_of(ReduceWhen);
std::optional<ReduceWhen> reduce_from_name(std::string_view);

// Parameters that ZeRO-3 shards are released after each forward and gathered again, or never
// before the end of the step. `automatic`: never where pp is above 1.
enum class Reshard : uint8_t { automatic, always, never, count };
std::string_view name_of(Reshard);
std::optional<Reshard> reshard_from_name(std::string_view);

// Which axis has neighbouring ranks, after tp and cp, which are always innermost.
enum class Placement : uint8_t { dp_inside, pp_inside, count };
std::string_view name_of(Placement);
std::optional<Placement> placement_from_name(std::string_view);

struct Layout {
  // ---- ranks along each axis. One of tp, pp, dp_replicate and dp_shard may be -1: as many ranks
  // as the others leave.
  int tp = 1, cp = 1, pp = 1;
  int dp_replicate = 1;  // copies of the training state
  int dp_shard = 1;      // ranks that share one copy (FSDP, ZeRO)
  int ep = 1;            // experts are spread over data_ranks() * cp
  int zero_stage = 0;    // 1: optimizer state is sharded, 2: + gradients, 3: + parameters; 0 where
                         // dp_shard is 1. -1: 3 where it is not
  bool sequence_parallel = false;  // false where tp is 1
  Placement placement = Placement::dp_inside;

  // ---- stages. One stage in all: 1F1B with one chunk.
  schedule::Kind schedule = schedule::Kind::one_f_one_b;
  int chunks = 0;  // stages of a rank; 0: the schedule's own number
  // Replaces the named schedule: F, B, W and BW of all micro-batches of a rank. Messages,
  // ReduceGrads and SyncTied are added where the schedule has none of that kind.
  std::optional<schedule::Schedule> custom_schedule;
  std::vector<int> first_layers;  // of each stage; empty: stages of equal FLOPs
  int send_buffers = 2;           // messages to the same stage that may be on their way at one time

  // ---- the batch
  int64_t micro_batch = 1;  // sequences
  int accumulation = 0;     // micro-batches of a worker in a step; 0: as the job's batch needs
  int logical_dp = 0;  // workers of a step, hosted by the data ranks in equal shares; 0: one each
  ReduceWhen reduce = ReduceWhen::automatic;

  // ---- what is kept, and in which format
  Recompute recompute = Recompute::none;
  int recompute_blocks = -1;  // the first so many blocks; -1: all
  Precision precision = Precision::bf16;
  base::DType grad_dtype = base::DType::f32;    // in which gradients are accumulated
  base::DType master_dtype = base::DType::f32;  // as OptimizerTypes::master
  base::DType reduce_dtype = base::DType::f32;  // bf16: of sums over workers, whatever grad_dtype
  Reshard reshard = Reshard::automatic;
  int prefetch = 1;             // layers whose sharded parameters are gathered ahead
  bool prefetch_after = false;  // in backward: after the current layer's gradients were sent off
  int64_t head_chunk_rows = 0;  // rows of logits that exist at one time; 0: by the back end
  bool deterministic = true;    // repeated runs have the same bits

  bool operator==(const Layout&) const = default;

  // ---- REQUIRES, for all below: the fields that they read are not open, and
  // degrees_are_in_range().
  int data_ranks() const { return dp_replicate * dp_shard; }
  int64_t ranks() const { return int64_t{tp} * cp * pp * dp_replicate * dp_shard; }
  bool has_one_stage() const { return pp == 1 && chunks <= 1 && !custom_schedule; }
  // Workers that each rank hosts.
  int hosted_workers() const { return logical_dp / data_ranks(); }
  // Micro-batches that each rank runs in a step.
  int64_t rank_microbatches() const { return int64_t{accumulation} * hosted_workers(); }
  int64_t global_batch() const;  // sequences of a step; at most what the type holds
  // Ranks that share one copy of the training state, those along cp among them.
  int state_shards() const { return zero_stage > 0 ? dp_shard * cp : 1; }
  bool shards_optimizer() const { return zero_stage >= 1; }
  bool shards_grads() const { return zero_stage >= 2; }
  bool shards_params() const { return zero_stage >= 3; }
  bool keeps_params() const { return shards_params() && reshard == Reshard::never; }
};

// Is every degree, where it is not open (-1), at least 1 and small enough for products of all?
bool degrees_are_in_range(const Layout&);

// `ranks` data ranks that all share one copy of the state, or with stage 0 have a copy each.
void set_data_ranks(Layout&, int ranks, int zero_stage);

// What a step trains, whatever the layout.
struct Workload {
  int64_t seq_len = 0;
  int64_t global_batch = 0;    // sequences of a step; 0: as many as the layout makes
  bool document_mask = false;  // sequences may be cut further, at borders of documents
  bool inference = false;      // forward only: no gradients, no optimizer state, no backward
};

// The layout with every field open that settle() would fill in with the value that it has.
Layout opened(Layout);

// "tp 8 sp, pp 4 interleaved x 3, dp 32 ZeRO-1, micro-batch 2, full recompute, bf16": the layout
// as reports name it. Fields at their defaults are left out.
std::string words(const Layout&);

base::Json to_json(const Layout&);
// Throws ConfigError naming the key that is missing, unknown or of the wrong type. `path` begins
// its messages.
Layout layout_from_json(const base::Json&, const std::string& path);

}  // namespace trireme::spec
