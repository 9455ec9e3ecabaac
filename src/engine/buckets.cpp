// SPDX-License-Identifier: Apache-2.0
#include "engine/buckets.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "engine/host_floats.h"
#include "kernels/ops.h"
#include "spec/tensor_parallel.h"

namespace trireme::engine {
namespace {

namespace ops = kernels::ops;
using device::ConstTensor;
using device::Tensor;

std::vector<spec::BucketLayout> layouts_of(const spec::ModelSpec& model, const spec::Plan& plan,
                                           spec::LayerRange range) {
  std::vector<spec::BucketLayout> layouts;
  for (int layer = range.first; layer < range.last; ++layer) {
    layouts.push_back(spec::bucket_layout(spec::params_of(model, layer), plan.mesh));
  }
  return layouts;
}

}  // namespace

Buckets::Buckets(const spec::ModelSpec& model, const spec::Plan& plan, spec::LayerRange range,
                 DataGroups& groups, TensorGroup& tensor, const Memory& memory)
    : groups_(groups),
      tensor_(tensor),
      residency_(plan.zero),
      hosted_(spec::hosted_workers(plan)),
      rounds_(spec::reduce_rounds(plan)),
      defers_updates_(groups.has_peers() && !plan.zero.optim),
      folds_(spec::folds(plan.logical_dp,
                         spec::workers_of(plan, spec::data_rank(plan.mesh, groups.coord())))),
      buffers_(spec::data_buffers(plan, layouts_of(model, plan, range), spec::is_tied(model))) {
  if (groups_.has_peers()) groups_.set_received(memory.comm.take(buffers_.received));
  if (buffers_.rounded.shape.ndim() > 0) rounded_ = memory.comm.take(buffers_.rounded);
  for (const base::TensorSpec& spec : buffers_.work) work_.push_back(memory.comm.take(spec));
  for (const base::TensorSpec& spec : buffers_.gathered) {
    gathered_.push_back(memory.comm.take(spec));
  }
  for (int layer = range.first; layer < range.last; ++layer) {
    const int b = layer - range.first;
    const auto gather_slot =
        gathered_.empty() ? size_t{0} : static_cast<size_t>(buffers_.gather_slot(b));
    buckets_.emplace_back(
        spec::params_of(model, layer), plan, groups.coord(),
        BucketMemory{memory.params, memory.grads,
                     gathered_.empty() ? Tensor{} : gathered_[gather_slot],
                     work_.empty() ? Tensor{} : work_[static_cast<size_t>(b) % work_.size()]});
  }
  buckets_.back().tie(buckets_.front());
  written_.resize(buckets_.size());
  arrived_.resize(buckets_.size());
  released_.resize(gathered_.size());
  holds_.assign(gathered_.size(), -1);
  due_.resize(buckets_.size());
  is_due_.assign(buckets_.size(), 0);
  reduced_.resize(work_.empty() ? buckets_.size() : work_.size());
}

void Buckets::gather(int bucket) {
  const auto slot = static_cast<size_t>(buffers_.gather_slot(bucket));
  TRIREME_CHECK(holds_[slot] < 0, "bucket {} is gathered over bucket {}", bucket, holds_[slot]);
  holds_[slot] = bucket;
  groups_.stream().wait(std::exchange(released_[slot], {}));
  groups_.stream().wait(std::exchange(written_[static_cast<size_t>(bucket)], {}));
  groups_.gather_params(at(bucket).whole_params(), at(bucket).own_params());
  arrived_[static_cast<size_t>(bucket)] = groups_.mark(groups_.stream());
}

void Buckets::release(int bucket) {
  const auto slot = static_cast<size_t>(buffers_.gather_slot(bucket));
  TRIREME_CHECK(holds_[slot] == bucket, "bucket {} is released, {} is there", bucket, holds_[slot]);
  holds_[slot] = -1;
  released_[slot] = groups_.mark(groups_.compute());
}

void Buckets::use(int bucket) {
  run_update(bucket);
  if (residency_.params) {
    const auto slot = static_cast<size_t>(buffers_.gather_slot(bucket));
    TRIREME_CHECK(holds_[slot] == bucket, "bucket {} is not here", bucket);
  }
  groups_.compute().wait(std::exchange(arrived_[static_cast<size_t>(bucket)], {}));
}

void Buckets::zero(int bucket) {
  run_update(bucket);  // the head's gradients begin before its forward
  const Bucket& b = at(bucket);
  groups_.compute().wait(reduced_[work_slot(bucket)]);
  ops::fill(groups_.compute(), {.d = b.leaf()});
  if (!b.has_tied_copies()) return;
  // Their sums were taken into the owner's, with its reduction.
  groups_.compute().wait(reduced_[work_slot(tied_to())]);
  for (size_t i = 0; i < b.specs().size(); ++i) {
    if (b.specs()[i].tied_copy) ops::fill(groups_.compute(), {.d = b.grads()[i]});
  }
}

void Buckets::reduce(int bucket, const spec::Leaf& leaf) {
  device::Stream& stream = groups_.stream();
  sum_along_tp(bucket);
  groups_.after_compute();
  if (bucket == tied_to()) add_tied_copies(bucket);
  const Bucket& b = at(bucket);
  Tensor part = b.leaf();
  if (rounded_) {
    part = rounded_.slice_rows(0, b.layout().elements);
    ops::copy(stream, {.x = b.leaf(), .d = part});
  }
  const spec::Fold& fold = folds_[static_cast<size_t>(leaf.hosted)];
  const std::span<const Tensor> stack = b.nodes().first(static_cast<size_t>(fold.stacked));
  if (leaf.hosted + 1 < hosted_) {
    // Wait for the next worker: on top of the stack, or in the node that the last merge completes.
    if (fold.merges == 0) ops::copy(stream, {.x = part, .d = b.nodes()[stack.size()]});
    for (size_t i = 0; i < static_cast<size_t>(fold.merges); ++i) {
      const size_t to = stack.size() - 1 - i;
      ops::accumulate(stream, {.x = i == 0 ? part : stack[to + 1], .d = stack[to]});
    }
  } else {
    for (size_t i = 0; i < static_cast<size_t>(fold.merges); ++i) {
      ops::accumulate(stream, {.x = stack[stack.size() - 1 - i], .d = part});
    }
    const auto left = stack.first(stack.size() - static_cast<size_t>(fold.merges));
    std::vector<ConstTensor> nodes(left.begin(), left.end());
    nodes.emplace_back(part);
    finish_round(bucket, leaf.round, nodes, part);
  }
  reduced_[work_slot(bucket)] = groups_.mark(stream);
}

// Tied weights keep two accumulators, which are added once, when both have all of a leaf.
void Buckets::add_tied_copies(int bucket) {
  for (const Bucket& copy : buckets_) {
    for (size_t i = 0; i < copy.specs().size(); ++i) {
      if (!copy.specs()[i].tied_copy) continue;
      const int owner = at(bucket).find(copy.specs()[i].shard.name);
      TRIREME_CHECK(owner >= 0, "the owner of '{}' is in another bucket",
                    copy.specs()[i].shard.name);
      ops::accumulate(groups_.stream(),
                      {.x = copy.grads()[i], .d = at(bucket).grads()[static_cast<size_t>(owner)]});
    }
  }
}

// Small: norm weights and biases. So on the compute stream, where its group talks anyway.
void Buckets::sum_along_tp(int bucket) {
  const spec::Range range = spec::summed_along_tp(at(bucket).layout(), tensor_.sequence_parallel());
  tensor_.sum_grads(at(bucket).leaf().slice_rows(range.begin, range.end - range.begin));
}

void Buckets::finish_round(int bucket, int round, std::span<const ConstTensor> nodes, Tensor part) {
  device::Stream& stream = groups_.stream();
  const Bucket& b = at(bucket);
  const Tensor sum = part.slice_rows(b.reduced().begin, b.reduced().end - b.reduced().begin);
  if (groups_.has_peers()) groups_.reduce(sum, nodes);
  if (round > 0) {
    ops::accumulate(stream, {.x = sum, .d = b.round_sum()});
  } else if (sum.data != b.round_sum().data) {
    ops::copy(stream, {.x = sum, .d = b.round_sum()});
  }
  if (round + 1 < rounds_) return;
  if (b.round_sum().data != b.reduced_grads().data) {
    ops::copy(stream, {.x = b.round_sum(), .d = b.reduced_grads()});
  }
  if (groups_.has_peers() && !gathers_in_forward(bucket)) {
    groups_.gather_grads(b.own_grads(), b.reduced_grads());
  }
}

void Buckets::defer_update(int bucket) {
  if (gathers_in_forward(bucket)) {
    groups_.gather_grads(at(bucket).own_grads(), at(bucket).reduced_grads());
  }
  due_[static_cast<size_t>(bucket)] = groups_.mark(groups_.stream());
  is_due_[static_cast<size_t>(bucket)] = 1;
}

void Buckets::complete_grads(int bucket) {
  if (!gathers_in_forward(bucket)) return;
  groups_.after_compute();  // an update may still read what is written again
  groups_.gather_grads_for_host(at(bucket).own_grads(), at(bucket).reduced_grads());
  groups_.before_compute();
}

void Buckets::run_update(int bucket) {
  if (std::exchange(is_due_[static_cast<size_t>(bucket)], uint8_t{0}) == 0) return;
  groups_.compute().wait(std::exchange(due_[static_cast<size_t>(bucket)], {}));
  update_(bucket);
}

void Buckets::flush_updates() {
  for (int b = 0; b < size(); ++b) run_update(b);
}

void Buckets::publish(int bucket) {
  if (!groups_.has_peers() || !residency_.optim) return;
  const auto index = static_cast<size_t>(bucket);
  if (residency_.params) {
    written_[index] = groups_.mark(groups_.compute());
    return;
  }
  groups_.after_compute();
  groups_.gather_params(at(bucket).whole_params(), at(bucket).own_params());
  arrived_[index] = groups_.mark(groups_.stream());
}

std::vector<float> Buckets::read_whole(int bucket, const Tensor& own) {
  const int64_t whole = at(bucket).layout().elements;
  if (own.elements() == whole) {
    groups_.before_compute();
    return download_floats(groups_.compute(), own);
  }
  // In pieces through the memory in which sums arrive: nothing may be allocated.
  groups_.after_compute();
  const int64_t shards = whole / own.elements();
  const int64_t room = groups_.received().bytes() / base::size_of(own.dtype) / shards;
  std::vector<float> all(static_cast<size_t>(whole));
  for (int64_t begin = 0; begin < own.elements(); begin += room) {
    const int64_t count = std::min(room, own.elements() - begin);
    const Tensor piece = device::view_of(groups_.received().data, {{shards * count}, own.dtype});
    groups_.gather_for_host(piece, own.slice_rows(begin, count));
    const std::vector<float> values = download_floats(groups_.stream(), piece);
    for (int64_t s = 0; s < shards; ++s) {
      std::copy_n(values.begin() + s * count, count, all.begin() + s * own.elements() + begin);
    }
  }
  return all;
}

size_t Buckets::work_slot(int bucket) const {
  return static_cast<size_t>(bucket) % reduced_.size();
}

}  // namespace trireme::engine
