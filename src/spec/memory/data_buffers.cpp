// SPDX-License-Identifier: Apache-2.0
// The memory for communication and for gradients that data_parallel.h describes.
#include <algorithm>
#include <array>

#include "spec/parallel/data_parallel.h"
#include "spec/parallel/sum_tree.h"

namespace trireme::spec {
namespace {

// Larger buckets are summed in several rounds of exchange.
constexpr int64_t max_received_bytes = int64_t{64} << 20;
constexpr int64_t min_bytes_a_part = 256;  // comm::Communicator::set_buffer

// Returns the elements of the largest of the buckets `which`[first], [first + step], ...
int64_t largest_bucket(std::span<const BucketSize> buckets, std::span<const size_t> which,
                       size_t first = 0, size_t step = 1) {
  int64_t largest = 0;
  for (size_t i = first; i < which.size(); i += step) {
    largest = std::max(largest, buckets[which[i]].elements);
  }
  return largest;
}

// Returns the nodes that all ranks together contribute to a sum.
int64_t parts_of_all(const Plan& plan, ParamView view) {
  const int ranks = sum_ranks(plan.mesh, view);
  const int64_t all = leaves(plan, view);
  if (all == ranks) return ranks;  // one leaf per rank
  int64_t parts = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    parts += static_cast<int64_t>(tree_cover(all, leaves_of_rank(all, ranks, rank)).size());
  }
  return parts;
}

// Adds the buffers for whole parameters of the buckets `which`, which share `slots` of them.
void add_gathered(std::span<const BucketSize> buckets, std::span<const size_t> which, size_t slots,
                  DataBuffers& all) {
  const size_t first = all.gathered.size();
  for (size_t i = 0; i < slots; ++i) {
    int64_t bytes = 0;
    for (size_t at = i; at < which.size(); at += slots) {
      const BucketSize& bucket = buckets[which[at]];
      bytes = std::max(bytes, bucket.elements * base::size_of(bucket.storage));
    }
    all.gathered.push_back({{bytes}, base::DType::u8});
  }
  for (size_t i = 0; i < which.size(); ++i) {
    all.gather_slot[which[i]] = static_cast<int>(first + i % slots);
  }
}

// Adds the buffers of the buckets `which`, all of one kind.
void add_kind(const Plan& plan, std::span<const BucketSize> buckets, std::span<const size_t> which,
              bool is_tied, DataBuffers& all) {
  if (plan.zero.grads) {
    const size_t first = all.work.size();
    for (const size_t i : {0U, 1U}) {
      all.work.push_back({{largest_bucket(buckets, which, i, 2)}, plan.recipe.grad});
    }
    for (size_t i = 0; i < which.size(); ++i) {
      all.work_slot[which[i]] = static_cast<int>(first + i % 2);
    }
  }
  if (!gathers_params(plan, buckets[which.front()].view)) return;
  if (is_tied) {
    add_gathered(buckets, which.first(1), 1, all);
    which = which.subspan(1);
  }
  const size_t slots = plan.layout.keeps_params()
                           ? which.size()
                           : std::min(static_cast<size_t>(plan.layout.prefetch) + 1, which.size());
  add_gathered(buckets, which, slots, all);
}

}  // namespace

DataBuffers data_buffers(const Plan& plan, std::span<const BucketLayout> buckets, bool is_tied) {
  std::vector<BucketSize> sizes;
  for (const BucketLayout& bucket : buckets) sizes.push_back(bucket.size());
  return data_buffers(plan, sizes, is_tied);
}

DataBuffers data_buffers(const Plan& plan, std::span<const BucketSize> buckets, bool is_tied) {
  DataBuffers all;
  all.work_slot.assign(buckets.size(), -1);
  all.gather_slot = all.work_slot;
  int64_t received = 0, rounded = 0;
  for (const BucketKind& kind :
       {BucketKind{ParamView::dense, false}, BucketKind{ParamView::dense, true},
        BucketKind{ParamView::expert, false}, BucketKind{ParamView::expert, true}}) {
    std::vector<size_t> which;
    for (size_t b = 0; b < buckets.size(); ++b) {
      if (buckets[b].kind().is_like(kind)) which.push_back(b);
    }
    if (which.empty()) continue;
    const ParamView view = kind.view;
    const int64_t largest = largest_bucket(buckets, which);
    const base::DType sums = sum_dtype(plan, view);
    if (const int ranks = sum_ranks(plan.mesh, view); ranks > 1) {
      const int64_t parts = parts_of_all(plan, view);
      const int64_t wanted = parts * (largest / ranks) * base::size_of(sums);
      received =
          std::max({received, parts * min_bytes_a_part, std::min(wanted, max_received_bytes)});
    }
    if (sums != plan.recipe.grad) rounded = std::max(rounded, largest);
    add_kind(plan, buckets, which, is_tied && which.front() == 0, all);
  }
  if (received > 0) all.received = {{received}, base::DType::u8};
  if (rounded > 0) all.rounded = {{rounded}, base::DType::bf16};
  if (const int64_t closing = closing_ranks(plan.mesh); closing > 1) {
    all.step_records = {{closing, step_record_bytes(plan.layers())}, base::DType::u8};
  }
  return all;
}

int64_t bytes_of(const DataBuffers& buffers) {
  int64_t bytes = base::bytes_of(buffers.received) + base::bytes_of(buffers.rounded) +
                  base::bytes_of(buffers.step_records);
  for (const base::TensorSpec& spec : buffers.work) bytes += base::bytes_of(spec);
  for (const base::TensorSpec& spec : buffers.gathered) bytes += base::bytes_of(spec);
  return bytes;
}

GradSpecs grad_specs(const Plan& plan, const BucketSize& bucket) {
  GradSpecs specs;
  if (plan.inference) return specs;
  const int64_t elements = bucket.elements;
  const ParamView view = bucket.view;
  const base::DType grad = plan.recipe.grad;
  specs.nodes.assign(static_cast<size_t>(node_buffers(plan, view)),
                     {{elements}, sum_dtype(plan, view)});
  if (plan.zero.grads) {
    specs.shard = {{elements / state_shards(plan, view)}, grad};
    return specs;
  }
  specs.leaf = {{elements}, grad};
  if (reduce_rounds(plan) > 1) {
    specs.round_sum = {{elements / sum_ranks(plan.mesh, view)}, grad};
  }
  return specs;
}

}  // namespace trireme::spec
