// SPDX-License-Identifier: Apache-2.0
// How the data axes share a step: which rank works on which micro-batch, in which order gradients
// are added up, and what part of a bucket a rank keeps. The bits of a step are a function of
// `logical_dp` and `reduce` alone: a step has logical_dp workers with the same number of
// micro-batches each, whatever rank hosts them.
//
// A *leaf* is what one worker adds to the tree of sum_tree.h: the gradients of all its
// micro-batches (reduce = once), or of one (each: a *round* is one micro-batch of every worker, and
// the sums of rounds are added up in order).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "spec/parallel/bucket.h"
#include "spec/plan.h"
#include "spec/parallel/shard.h"

namespace trireme::spec {

// ---- ranks and workers
int data_ranks(const Sizes&);     // dp * zero
int closing_ranks(const Sizes&);  // all that a step ends with: those of tp and pp, too
// Place among them in the order in which they host workers: that of the world, zero the fastest.
int data_rank(const Sizes&, const Coord&);
int hosted_workers(const Plan&);       // by one rank
int worker_microbatches(const Plan&);  // of one worker
int reduce_rounds(const Plan&);        // worker_microbatches() if reduce = each, else 1

struct Leaf {
  int hosted = 0;  // which of the rank's workers
  int round = 0;
  bool operator==(const Leaf&) const = default;
};
// Of micro-batch `index` of a rank. Ranks go worker by worker (once) or round by round (each).
Leaf leaf_of(const Plan&, int index);
// The number of a rank's micro-batch in the whole step, worker by worker: the same set of (number,
// worker) for every number of ranks. What a source of batches should look up.
int64_t global_microbatch(const Plan&, const Coord&, int index);

// ---- sums
// Type in which leaves are added up: of the gradients, or bf16 if reduce_dtype says so.
base::DType sum_dtype(const Plan&);

// What a rank does with the leaf of its worker h: `stacked` nodes of the tree wait before it; the
// last `merges` of them are added to it, one after the other.
struct Fold {
  int stacked = 0, merges = 0;
  bool operator==(const Fold&) const = default;
};
// By hosted worker. What is left after the last are the rank's nodes: tree_cover().
std::vector<Fold> folds(int64_t workers, Range held);
// Workers of the rank at this place (data_rank).
Range workers_of(const Plan&, int data_rank);
// Whole gradients that must be kept for nodes that wait, on any rank.
int node_buffers(const Plan&);

// ---- buckets
// Of all layers of a rank, in order.
std::vector<BucketLayout> bucket_layouts(const ModelSpec&, const Plan&, int pp_rank);

// ---- shards of a bucket of `elements`
// What the optimizer of a rank updates: all, or its part along zero.
Range updated_range(const Plan&, const Coord&, int64_t elements);
// What a rank adds up: the part along zero is cut further along dp.
Range reduced_range(const Plan&, const Coord&, int64_t elements);
// Place of a rank's reduced_range among those of all data ranks; the order of their group.
int reduced_place(const Sizes&, const Coord&);

// ---- buffers besides the state, shared by the buckets of a rank
struct DataBuffers {
  base::TensorSpec received;  // parts of sums from other ranks
  base::TensorSpec rounded;   // one leaf in the type of sums, where gradients have another
  // Whole gradients, for bucket b in [b % size()]; where gradients are sharded. Two, so that one
  // is filled while the other is reduced.
  std::vector<base::TensorSpec> work;
  // Whole parameters, for bucket b in [gather_slot(b)]; where parameters are sharded. One for each
  // bucket where they stay.
  std::vector<base::TensorSpec> gathered;
  base::TensorSpec step_sums;  // of all ranks
  bool is_tied = false;        // the first bucket is read by the head, too, and has [0] for itself

  int gather_slot(int bucket) const;
};
DataBuffers data_buffers(const Plan&, std::span<const BucketLayout>, bool is_tied);
// The same from the elements of each bucket.
DataBuffers data_buffers(const Plan&, std::span<const int64_t> elements, bool is_tied);
int64_t bytes_of(const DataBuffers&);
// Does the last layer read a parameter of the first? Where other stages lie between them,
// pipeline_parallel.h says how.
bool is_tied(const ModelSpec&);

// Gradient memory of one bucket, besides that of tied copies; none under an inference plan.
struct GradSpecs {
  base::TensorSpec leaf;                // whole, where no buffer is shared
  std::vector<base::TensorSpec> nodes;  // whole
  base::TensorSpec round_sum;           // of the reduced range
  base::TensorSpec shard;               // of the updated range
};
GradSpecs grad_specs(const Plan&, const BucketLayout&);
GradSpecs grad_specs(const Plan&, int64_t elements);

// ---- bytes on the wire
// That one rank sends in a step.
struct TrafficTable {
  int64_t reduce_grads = 0;    // partial sums to the rank that adds them up
  int64_t gather_grads = 0;    // sums to the ranks that update the same parameters
  int64_t gather_params = 0;   // parameters to the ranks that compute with them
  int64_t step_sums = 0;       // loss, tokens, squares
  int64_t tp_forward = 0;      // activations along tp, and their gradients
  int64_t tp_backward = 0;     //   with what recompute sends
  int64_t tp_grads = 0;        // gradients of parameters that all ranks along tp have
  int64_t pp_activations = 0;  // outputs of stages to the next
  int64_t pp_gradients = 0;    //   and their gradients back
  int64_t pp_table = 0;        // the token table that two ranks share, or its gradients
  int64_t other = 0;           // outside of steps: reading and writing weights by name
  bool operator==(const TrafficTable&) const = default;

  int64_t total() const {
    return reduce_grads + gather_grads + gather_params + step_sums + tp_forward + tp_backward +
           tp_grads + pp_activations + pp_gradients + pp_table + other;
  }
};
TrafficTable operator+(const TrafficTable&, const TrafficTable&);
TrafficTable predict_traffic(const ModelSpec&, const Plan&, const Coord&);

}  // namespace trireme::spec
