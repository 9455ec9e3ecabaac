// SPDX-License-Identifier: Apache-2.0
// Layout: how a job is laid out over ranks, as plain data. All parts of the program use it: a
// configuration parses into it, importers and the planner's search produce it, solve() makes a Plan
// of it, and checkpoints store it. settle() fills in open fields (a degree of -1, "automatic") and
// finds every broken rule (rules.h).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/text/json_fwd.h"
#include "schedule/catalogue.h"
#include "schedule/schedule.h"
#include "spec/context/context_kind.h"
#include "spec/facts/facts.h"
#include "spec/recipe.h"

namespace trireme::spec {

// Limits far above any job: products of all degrees fit their types.
constexpr int64_t max_degree = 1 << 16;
constexpr int64_t max_pp = 4096;
constexpr int64_t max_priced_degree = 1 << 20;  // of layouts that are priced, and of data ranks
constexpr int64_t max_ranks = int64_t{1} << 40;

// When gradients are summed over workers: at the end of a step, or after every micro-batch of a
// worker (data_parallel.h). `automatic`: once, or each if sharded gradients need it.
enum class ReduceWhen : uint8_t { automatic, once, each, count };
std::string_view name_of(ReduceWhen);
std::optional<ReduceWhen> reduce_from_name(std::string_view);

// Are parameters that ZeRO-3 shards released after each forward and gathered again (always), or not
// before the end of the step (never)? `automatic`: never if pp is above 1.
enum class Reshard : uint8_t { automatic, always, never, count };
std::string_view name_of(Reshard);
std::optional<Reshard> reshard_from_name(std::string_view);

// Which axis has adjacent ranks, after tp and cp, which are always innermost.
enum class Placement : uint8_t { dp_inside, pp_inside, count };
std::string_view name_of(Placement);
std::optional<Placement> placement_from_name(std::string_view);

// What a step does with rows of experts that exceed the row budget: it is not applied and repeated
// with a larger budget (strict), or the rows are dropped and counted (drop).
enum class Overflow : uint8_t { strict, drop, count };
std::string_view name_of(Overflow);
std::optional<Overflow> overflow_from_name(std::string_view);

constexpr double max_row_budget = 1 << 20;

struct Layout {
  // ---- ranks along each axis. One of tp, pp, dp_replicate and dp_shard may be -1: all ranks that
  // the other degrees leave.
  int tp = 1, cp = 1, pp = 1;
  int dp_replicate = 1;  // copies of the training state
  int dp_shard = 1;      // ranks that share one copy (FSDP or ZeRO)
  int ep = 1;            // ranks that share the experts: see expert_sizes()
  int etp = 1;           // ranks that share each expert
  int zero_stage = 0;    // 1: optimizer state is sharded, 2: + gradients, 3: + parameters, over
                         // dp_shard * cp ranks. Must be 0 if that is 1. -1: 3 if it is above 1
  bool sequence_parallel = false;  // false if tp is 1
  Placement placement = Placement::dp_inside;

  // ---- context parallelism; gather, zigzag and 1 if cp is 1
  ContextKind context_kind = ContextKind::gather;
  ContextSlices context_slices = ContextSlices::zigzag;
  // Adjacent ranks along cp that exchange rows for heads: cp for ulysses, 1 for gather and ring, a
  // divisor of cp for their products. 0: see open_ulysses().
  int ulysses = 0;

  // ---- experts; 1.5, strict and 0 if the model has none
  // Rows of experts that a rank has memory for, and that travel to each rank along ep, relative to
  // those of equally busy experts. At least 1.
  double row_budget = 1.5;
  Overflow overflow = Overflow::strict;
  // Rows of one expert in a micro-batch of a rank, relative to those of equally busy experts;
  // further rows are dropped. 0: all are processed.
  double expert_capacity = 0;

  // ---- stages. A single stage is 1F1B with one chunk.
  schedule::Kind schedule = schedule::Kind::one_f_one_b;
  int chunks = 0;  // stages of a rank; 0: the schedule's default
  // Replaces the named schedule: F, B, W and BW of all micro-batches of a rank. Messages,
  // ReduceGrads and SyncTied are added if the schedule has none of that kind.
  std::optional<schedule::Schedule> custom_schedule;
  std::vector<int> first_layers;  // of each stage; empty: stages of equal FLOPs
  int send_buffers = 2;           // messages to the same stage that may be in flight at one time

  // ---- the batch
  int64_t micro_batch = 1;  // sequences
  int accumulation = 0;     // micro-batches of a worker in a step; 0: derived from the batch
  int logical_dp = 0;       // workers of a step, in equal shares on the data ranks; 0: one per rank
  ReduceWhen reduce = ReduceWhen::automatic;

  // ---- memory and number formats
  Recompute recompute = Recompute::none;
  int recompute_blocks = -1;  // the number of blocks, from the first, that recompute; -1: all
  // Rows that the feed-forward of a block computes at one time, in tiles that B recomputes, in any
  // block and under any policy; 0: all rows, without tiles. With sequence_parallel at least tp.
  int64_t ffn_rows = 0;
  Precision precision = Precision::bf16;
  // Blocks that stay in bf16 under a recipe of fp8: so many at both ends of the model, and these,
  // in ascending order, counted from 0. 0, 0 and none under other recipes.
  int bf16_first = 0, bf16_last = 0;
  std::vector<int> bf16_blocks;
  base::DType grad_dtype = base::DType::f32;  // of accumulated gradients
  OptimizerKind optimizer = OptimizerKind::adamw;
  base::DType master_dtype = base::DType::f32;  // as OptimizerTypes::master
  base::DType reduce_dtype = base::DType::f32;  // bf16: sums over workers, for any grad_dtype
  Reshard reshard = Reshard::automatic;
  int prefetch = 1;             // layers whose sharded parameters are gathered ahead
  bool prefetch_after = false;  // in backward: after the current layer's gradients were sent
  int64_t head_chunk_rows = 0;  // rows of logits that exist at one time; 0: default_head_chunk()
  bool deterministic = true;    // repeated runs have the same bits

  bool operator==(const Layout&) const = default;

  // ---- REQUIRES, for all functions below: degrees_are_in_range(), and the fields that they read
  // are not open.
  int data_ranks() const { return dp_replicate * dp_shard; }
  int64_t ranks() const { return int64_t{tp} * cp * pp * dp_replicate * dp_shard; }
  bool has_one_stage() const { return pp == 1 && chunks <= 1 && !custom_schedule; }
  // Returns the workers that each rank hosts.
  int hosted_workers() const { return logical_dp / data_ranks(); }
  // Returns the micro-batches that each rank runs in a step.
  int64_t rank_microbatches() const { return int64_t{accumulation} * hosted_workers(); }
  int64_t global_batch() const;  // sequences of a step; saturates at the largest int64
  // Returns the ranks that share one copy of the training state, including those along cp.
  int state_shards() const { return zero_stage > 0 ? dp_shard * cp : 1; }
  bool shards_optimizer() const { return zero_stage >= 1; }
  bool shards_grads() const { return zero_stage >= 2; }
  bool shards_params() const { return zero_stage >= 3; }
  bool keeps_params() const { return shards_params() && reshard == Reshard::never; }
};

// Returns the number formats of a layout. REQUIRES: not fp4.
Recipe recipe_of(const Layout&);

// Is every degree either open (-1), or at least 1 and so small that the product of all fits?
bool degrees_are_in_range(const Layout&);

// The expert view of the ranks of a stage is [edp, ezero, ep, etp], etp the fastest axis. Experts
// are first spread over the ranks that share a copy of the dense state (dp_shard * cp * tp), the
// rest of which shares the state of experts (ezero); if ep * etp is larger, over several copies.
struct ExpertSizes {
  int edp = 1, ezero = 1;
  bool operator==(const ExpertSizes&) const = default;
};
// Returns nothing if ep * etp ranks do not fit (rule ep.ranks). REQUIRES: degrees_are_in_range(),
// no open degree.
std::optional<ExpertSizes> expert_sizes(const Layout&);

// Returns the value that settle() gives an open `ulysses`. For products it is the largest divisor
// of cp below cp that divides all of `kv_heads` (of the model), cut by tp; 1 if there is none, and
// cp if cp is prime and divides them. 0 if a product's kv heads are unknown.
int open_ulysses(const Layout&, std::span<const int64_t> kv_heads);

// Sets `ranks` data ranks that all share one copy of the state, or with stage 0 have a copy each.
void set_data_ranks(Layout&, int ranks, int zero_stage);

// What a step trains, independent of the layout.
struct Workload {
  int64_t seq_len = 0;
  int64_t global_batch = 0;    // sequences of a step; 0: derived from the layout
  bool document_mask = false;  // sequences may be cut further, at borders of documents
  bool inference = false;      // forward only: no gradients, no optimizer state, no backward
  bool keeps_losses = false;   // a step keeps the loss of every token
};

// Returns the layout with those fields open that settle() would fill in with the same value.
Layout opened(Layout);

// Returns the layout's name in reports: "tp 8 sp, pp 4 interleaved x 3, dp 32 ZeRO-1, micro-batch
// 2, full recompute, bf16". Fields at their defaults are left out.
std::string words(const Layout&);

base::Json to_json(const Layout&);
// Throws ConfigError naming the key that is missing, unknown or of the wrong type. Messages begin
// with `path`.
Layout layout_from_json(const base::Json&, const std::string& path);

}  // namespace trireme::spec
