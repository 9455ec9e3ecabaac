// SPDX-License-Identifier: Apache-2.0
// How the data axes share a step: which rank runs which micro-batch, in which order gradients are
// summed, and which part of a bucket a rank stores. The bits of a step are a function of
// `logical_dp` and `reduce` alone: a step has logical_dp workers with the same number of
// micro-batches each, independent of the ranks that host them.
//
// A *leaf* is the gradient that one worker contributes to the tree of sum_tree.h: the sum over all
// its micro-batches (reduce = once), or one micro-batch (each: a *round* is one micro-batch of
// every worker, and the sums of rounds are added in order). Along cp each rank has a part of every
// sample, and so its own leaf: a step has logical_dp * cp leaves, those of the first rank
// along cp first. Bits are therefore a function of cp, too.
//
// All of this is per view of the mesh (mesh_view.h). A leaf of an expert bucket is the gradient of
// one hosted worker of a rank along edp and ezero, which contains the rows of all ranks along ep
// and etp; leaves are in the order of the ranks' cp, tp and data coordinates. With tp, ep and etp
// of 1 the leaves, ranges and sums of expert buckets are those of dense ones.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "spec/parallel/bucket.h"
#include "spec/parallel/shard.h"
#include "spec/plan.h"

namespace trireme::spec {

// ---- ranks and workers
int data_ranks(const Sizes&);  // dp * zero: ranks with different samples
// Returns the ranks that sum the gradients of a view: dp * zero * cp, or edp * ezero.
int sum_ranks(const Sizes&, ParamView = ParamView::dense);
// Are gradients of any view summed over several ranks?
bool sums_with_peers(const Sizes&);
int closing_ranks(const Sizes&);  // all ranks that end a step together: also those of tp and pp
// Returns the rank's index among the data ranks, in the order in which they host workers: that of
// the world, zero the fastest axis.
int data_rank(const Sizes&, const Coord&);
// Returns the rank's index among those that end a step together: ranks with the same samples are
// neighbours, and among these the ranks with the same tokens (along tp and pp).
int closing_rank(const Sizes&, const Coord&);
int hosted_workers(const Plan&);       // by one rank
int worker_microbatches(const Plan&);  // of one worker
int reduce_rounds(const Plan&);        // worker_microbatches() if reduce = each, else 1

struct Leaf {
  int hosted = 0;  // index among the rank's workers
  int round = 0;
  bool operator==(const Leaf&) const = default;
};
// Returns the leaf of micro-batch `index` of a rank. Ranks run worker by worker (once) or round by
// round (each).
Leaf leaf_of(const Plan&, int index);
// Maps a rank's micro-batch index to its index in the global batch, worker by worker: the same set
// of (index, worker) for every number of ranks. Sources of batches use it.
int64_t global_microbatch(const Plan&, const Coord&, int index);

// ---- sums
// Returns the type in which leaves are summed: that of the gradients, or bf16 if reduce_dtype is.
base::DType sum_dtype(const Plan&, ParamView);

// How a rank adds the leaf of its worker h: `stacked` nodes of the tree wait before it; the last
// `merges` of them are added to it, one after the other.
struct Fold {
  int stacked = 0, merges = 0;
  bool operator==(const Fold&) const = default;
};
// Returns the folds by hosted worker of a rank that has the leaves `held`. After the last one the
// rank's nodes remain: tree_cover().
std::vector<Fold> folds(int64_t leaves, Range held);
// Returns the workers of the rank with this data_rank().
Range workers_of(const Plan&, int data_rank);
int64_t leaves(const Plan&, ParamView);  // of a round, on all ranks of the view
// Returns the leaves of a rank, one for each of its workers.
Range leaves_of(const Plan&, const Coord&, ParamView);
// Returns the maximum over ranks of waiting nodes, each of which is a whole gradient.
int node_buffers(const Plan&, ParamView);

// ---- buckets
// A bucket of a rank: the parameters of a layer that have this view, matrices under fp8 or others.
struct BucketKey {
  int layer = 0;
  ParamView view = ParamView::dense;
  bool is_matrix = false;
  bool operator==(const BucketKey&) const = default;
};
// Return the buckets of all layers of a rank, in order.
std::vector<BucketKey> bucket_keys(const ModelSpec&, const Plan&, int pp_rank);
std::vector<BucketLayout> bucket_layouts(const ModelSpec&, const Plan&, int pp_rank);

// ---- shards of a bucket
// Returns the ranks over which optimizer state is sharded; 1: it is not.
int state_shards(const Plan&, ParamView);
// Does a rank gather the parameters of the view from other ranks before it computes with them?
bool gathers_params(const Plan&, ParamView);
// Returns the range that the rank's optimizer updates: all, or its shard.
Range updated_range(const Plan&, const Coord&, const BucketSize&);
// Returns the range that the rank sums: its shard, cut further among the copies of the shard.
Range reduced_range(const Plan&, const Coord&, const BucketSize&);
// Returns the index of a rank's reduced_range among those of all ranks of the view, in the order of
// their group.
int reduced_place(const Sizes&, const Coord&, ParamView);

// ---- communication buffers, shared by the buckets of a rank
struct DataBuffers {
  base::TensorSpec received;  // parts of sums from other ranks
  base::TensorSpec rounded;   // one leaf in the type of sums, if gradients have another type
  // Whole gradients, if gradients are sharded. Two for each view, so that one is filled while the
  // other is reduced.
  std::vector<base::TensorSpec> work;
  // Whole parameters, if parameters are sharded: of each view as many as there are layers ahead, or
  // one for each bucket if they are not released before the end of the step. The first bucket does
  // not share its one if the head reads it, too.
  std::vector<base::TensorSpec> gathered;
  base::TensorSpec step_records;  // of all ranks (step_record_bytes)

  // By bucket: its place in `work`, and in `gathered`; -1: it has none.
  std::vector<int> work_slot, gather_slot;
};
// `is_tied`: the head reads the first bucket.
DataBuffers data_buffers(const Plan&, std::span<const BucketLayout>, bool is_tied);
// The same, given the sizes of the buckets.
DataBuffers data_buffers(const Plan&, std::span<const BucketSize>, bool is_tied);
int64_t bytes_of(const DataBuffers&);
// Does the last layer read a parameter of the first? pipeline_parallel.h describes the case of
// different stages.
bool is_tied(const ModelSpec&);

// Gradient memory of one bucket, without tied copies; empty under an inference plan.
struct GradSpecs {
  base::TensorSpec leaf;                // whole, if no buffer is shared
  std::vector<base::TensorSpec> nodes;  // whole
  base::TensorSpec round_sum;           // of the reduced range
  base::TensorSpec shard;               // of the updated range
};
GradSpecs grad_specs(const Plan&, const BucketSize&);

// ---- bytes on the wire
// The bytes that one rank sends in a step.
struct TrafficTable {
  int64_t reduce_grads = 0;    // partial sums to the rank that sums them
  int64_t gather_grads = 0;    // sums to the ranks that update the same parameters
  int64_t gather_params = 0;   // parameters to the ranks that compute with them
  int64_t step_sums = 0;       // records of a step's end: loss, tokens, squares by layer
  int64_t updates = 0;         // matrices that one rank updates for others (Muon)
  int64_t layer_state = 0;     // reductions of own tensors of layers (spec/state/state.h), and of
                               // the largest weights that scales of codes need
  int64_t tp_forward = 0;      // activations along tp, and their gradients
  int64_t tp_backward = 0;     //   with those of recompute
  int64_t tp_grads = 0;        // gradients of parameters that are replicated along tp
  int64_t cp_forward = 0;      // keys and values, or rows and heads, along cp
  int64_t cp_backward = 0;     //   with those of recompute, and gradients
  int64_t ep_forward = 0;      // rows to and from experts along ep and etp, and loads of experts
  int64_t ep_backward = 0;     //   with those of recompute, and gradients
  int64_t pp_activations = 0;  // outputs of stages to the next
  int64_t pp_gradients = 0;    //   and their gradients back
  int64_t pp_table = 0;        // the token table that two ranks share, or its gradients
  int64_t other = 0;           // outside of steps: loading and saving weights by name
  // The part of reduce_grads that goes to ranks of other nodes, in total() once.
  int64_t reduce_network = 0;
  bool operator==(const TrafficTable&) const = default;

  int64_t total() const {
    return reduce_grads + gather_grads + gather_params + step_sums + updates + layer_state +
           tp_forward + tp_backward + tp_grads + cp_forward + cp_backward + ep_forward +
           ep_backward + pp_activations + pp_gradients + pp_table + other;
  }
};
TrafficTable operator+(const TrafficTable&, const TrafficTable&);
TrafficTable operator-(const TrafficTable&, const TrafficTable&);
// `nodes` are the nodes of the ranks of the world, by rank (comm::Communicator::Options::nodes);
// empty: all ranks are on one.
TrafficTable predict_traffic(const ModelSpec&, const Plan&, const Coord&,
                             std::span<const int> nodes = {});

}  // namespace trireme::spec
