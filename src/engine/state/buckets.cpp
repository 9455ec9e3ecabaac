// SPDX-License-Identifier: Apache-2.0
#include "engine/state/buckets.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "engine/state/host_floats.h"
#include "kernels/ops.h"
#include "spec/parallel/tensor_parallel.h"

namespace trireme::engine {
namespace {

namespace ops = kernels::ops;
using device::ConstTensor;
using device::Tensor;
using device::Wait;
using device::wait_for;

// Does the head read the embedding's bucket in its gather slot?
bool is_read_in_place(const spec::ModelSpec& model, const spec::Plan& plan) {
  const auto table = spec::shared_table(model, plan);
  return table && table->is_in_one_stage;
}

}  // namespace

Buckets::Buckets(const spec::ModelSpec& model, const spec::Plan& plan, DataGroups& groups,
                 TensorGroup& tensor, Pipe& pipe, const UpdateGate& gate, const Memory& memory)
    : groups_(groups),
      tensor_(tensor),
      gate_(gate),
      residency_(plan.zero),
      hosted_(spec::hosted_workers(plan)),
      rounds_(spec::reduce_rounds(plan)),
      defers_updates_(groups.has_peers() && !plan.zero.optim &&
                      plan.optimizer.kind == spec::OptimizerKind::adamw),
      buffers_(spec::data_buffers(plan, spec::bucket_layouts(model, plan, pipe.rank()),
                                  is_read_in_place(model, plan))),
      keys_(spec::bucket_keys(model, plan, pipe.rank())) {
  for (const spec::BucketKey& key : keys_) names_.push_back(spec::name_of_layer(model, key.layer));
  if (buffers_.received.shape.ndim() > 0) groups_.set_received(memory.comm.take(buffers_.received));
  if (buffers_.rounded.shape.ndim() > 0) rounded_ = memory.comm.take(buffers_.rounded);
  for (const base::TensorSpec& spec : buffers_.work) work_.push_back(memory.comm.take(spec));
  for (const base::TensorSpec& spec : buffers_.gathered) {
    gathered_.push_back(memory.comm.take(spec));
  }
  for (const spec::ParamView each : {spec::ParamView::dense, spec::ParamView::expert}) {
    const auto at = static_cast<size_t>(each);
    folds_[at] = spec::folds(spec::leaves(plan, each), spec::leaves_of(plan, groups.coord(), each));
    is_rounded_[at] = spec::sum_dtype(plan, each) != plan.recipe.grad;
  }
  const auto buffer = [](const std::vector<Tensor>& all, int slot) {
    return slot < 0 ? Tensor{} : all[static_cast<size_t>(slot)];
  };
  std::vector<spec::BucketLayout> layouts = spec::bucket_layouts(model, plan, pipe.rank());
  for (size_t b = 0; b < keys_.size(); ++b) {
    buckets_.emplace_back(
        spec::params_of(model, keys_[b].layer), std::move(layouts[b]), plan, groups.coord(),
        BucketMemory{memory.params, memory.grads, buffer(gathered_, buffers_.gather_slot[b]),
                     buffer(work_, buffers_.work_slot[b]), memory.leaves[b]});
  }
  table_.emplace(model, plan, groups, pipe, std::span(buckets_),
                 SharedTable::Memory{memory.params, memory.grads, memory.comm});
  for (size_t b = 0; b < keys_.size(); ++b) {
    const auto add = [&](std::span<const Tensor> views, std::vector<Tensor>& all) {
      all.resize(views.size());
      for (size_t i = 0; i < views.size(); ++i) {
        if (views[i]) all[i] = views[i];
      }
    };
    add(buckets_[b].params(), params_[keys_[b].layer]);
    add(buckets_[b].grads(), grads_[keys_[b].layer]);
  }
  written_.resize(buckets_.size());
  arrived_.resize(buckets_.size());
  released_.resize(gathered_.size());
  holds_.assign(gathered_.size(), -1);
  grads_arrived_.resize(buckets_.size());
  is_deferred_.assign(buckets_.size(), 0);
  reduced_.resize(work_.empty() ? buckets_.size() : work_.size());
}

spec::Range Buckets::of_layer(int layer) const {
  const auto is_of_layer = [layer](const spec::BucketKey& key) { return key.layer == layer; };
  const auto first = std::ranges::find_if(keys_, is_of_layer);
  TRIREME_CHECK(first != keys_.end(), "layer {} is not on this rank", layer);
  const auto last = std::find_if_not(first, keys_.end(), is_of_layer);
  return {first - keys_.begin(), last - keys_.begin()};
}

std::span<const Tensor> Buckets::params(int layer) const { return params_.at(layer); }
std::span<const Tensor> Buckets::grads(int layer) const { return grads_.at(layer); }

void Buckets::gather(int bucket) {
  if (gather_slot(bucket) < 0) return;
  const auto slot = static_cast<size_t>(gather_slot(bucket));
  TRIREME_CHECK(holds_[slot] < 0, "bucket {} is gathered into the slot of bucket {}", bucket,
                holds_[slot]);
  holds_[slot] = bucket;
  groups_.stream().wait(std::exchange(released_[slot], {}));
  groups_.stream().wait(std::exchange(written_[static_cast<size_t>(bucket)], {}));
  groups_.gather_params(view(bucket), at(bucket).whole_params(), at(bucket).own_params());
  arrived_[static_cast<size_t>(bucket)] = groups_.mark(groups_.stream());
}

void Buckets::release(int bucket) {
  before_change(bucket);
  if (gather_slot(bucket) < 0) return;
  const auto slot = static_cast<size_t>(gather_slot(bucket));
  TRIREME_CHECK(holds_[slot] == bucket, "bucket {} is released, but its slot holds {}", bucket,
                holds_[slot]);
  holds_[slot] = -1;
  released_[slot] = groups_.mark(groups_.compute());
}

void Buckets::use(int bucket) {
  run_update(bucket);
  if (gather_slot(bucket) >= 0) {
    const auto slot = static_cast<size_t>(gather_slot(bucket));
    TRIREME_CHECK(holds_[slot] == bucket, "bucket {} is used before it was gathered", bucket);
  }
  wait_for(groups_.compute(), std::exchange(arrived_[static_cast<size_t>(bucket)], {}), Wait::data);
  table_->use(bucket);
}

void Buckets::zero(int bucket) {
  run_update(bucket);  // the head's gradients are set to zero before its forward
  const Bucket& b = at(bucket);
  wait_for(groups_.compute(), reduced_[work_slot(bucket)], Wait::data);
  for (const spec::Range& range : b.layout().zeroed) {
    ops::fill(groups_.compute(), {.d = b.leaf().slice_rows(range.begin, range.end - range.begin)});
  }
  table_->before_zero(bucket);
}

void Buckets::reduce(int bucket, const spec::Leaf& leaf) {
  device::Stream& stream = groups_.stream();
  sum_along_tp(bucket);
  groups_.after_compute();
  table_->bring_grads(bucket);
  const Bucket& b = at(bucket);
  Tensor part = b.leaf();
  if (is_rounded(bucket)) {
    part = rounded_.slice_rows(0, b.layout().elements);
    ops::copy(stream, {.x = b.leaf(), .d = part});
  }
  const spec::Fold& fold =
      folds_[static_cast<size_t>(view(bucket))][static_cast<size_t>(leaf.hosted)];
  const std::span<const Tensor> stack = b.nodes().first(static_cast<size_t>(fold.stacked));
  if (leaf.hosted + 1 < hosted_) {
    // Keep the sum for the next worker: on top of the stack, or in the node that the last merge
    // completes.
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

// These are small tensors (norm weights and biases), so they are summed on the compute stream,
// which the group along tp uses anyway.
void Buckets::sum_along_tp(int bucket) {
  for (const spec::Range& range :
       spec::summed_along_tp(at(bucket).layout(), tensor_.sequence_parallel())) {
    tensor_.sum_grads(at(bucket).leaf().slice_rows(range.begin, range.end - range.begin));
  }
}

void Buckets::finish_round(int bucket, int round, std::span<const ConstTensor> nodes, Tensor part) {
  device::Stream& stream = groups_.stream();
  const Bucket& b = at(bucket);
  const Tensor sum = part.slice_rows(b.reduced().begin, b.reduced().end - b.reduced().begin);
  if (groups_.has_peers(view(bucket))) groups_.reduce(view(bucket), sum, nodes);
  if (round > 0) {
    ops::accumulate(stream, {.x = sum, .d = b.round_sum()});
  } else if (sum.data != b.round_sum().data) {
    ops::copy(stream, {.x = sum, .d = b.round_sum()});
  }
  if (round + 1 < rounds_) return;
  if (b.round_sum().data != b.reduced_grads().data) {
    ops::copy(stream, {.x = b.round_sum(), .d = b.reduced_grads()});
  }
  if (!gathers_in_forward(bucket)) {
    groups_.gather_grads(view(bucket), b.own_grads(), b.reduced_grads());
  }
}

void Buckets::defer_update(int bucket) {
  if (gathers_in_forward(bucket)) {
    const device::Range range(groups_.stream(), "gather " + names_[static_cast<size_t>(bucket)]);
    groups_.gather_grads(view(bucket), at(bucket).own_grads(), at(bucket).reduced_grads());
    gate_.confirm(groups_.stream(), bucket);
  }
  grads_arrived_[static_cast<size_t>(bucket)] = groups_.mark(groups_.stream());
  is_deferred_[static_cast<size_t>(bucket)] = 1;
}

void Buckets::complete_grads(int bucket) {
  if (!gathers_in_forward(bucket)) return;
  groups_.after_compute();  // an update may still read the memory that the gather writes
  groups_.gather_grads_for_host(view(bucket), at(bucket).own_grads(), at(bucket).reduced_grads());
  groups_.before_compute();
}

void Buckets::run_update(int bucket) {
  if (std::exchange(is_deferred_[static_cast<size_t>(bucket)], uint8_t{0}) == 0) return;
  wait_for(groups_.compute(), std::exchange(grads_arrived_[static_cast<size_t>(bucket)], {}),
           Wait::data);
  before_change(bucket);
  update_(bucket);
}

void Buckets::flush_updates() {
  for (int b = 0; b < size(); ++b) run_update(b);
}

void Buckets::publish(int bucket) {
  if (!groups_.has_peers(view(bucket)) || !residency_.optim) return;
  const auto index = static_cast<size_t>(bucket);
  if (gather_slot(bucket) >= 0) {
    written_[index] = groups_.mark(groups_.compute());
    return;
  }
  const device::Range range(groups_.stream(), "gather " + names_[index]);
  groups_.after_compute();
  groups_.gather_params(view(bucket), at(bucket).whole_params(), at(bucket).own_params());
  arrived_[index] = groups_.mark(groups_.stream());
}

std::vector<std::byte> Buckets::read_whole(spec::ParamView view, const Tensor& own,
                                           int64_t whole_bytes) {
  // In pieces through the buffer for received parts, because nothing may be allocated.
  groups_.after_compute();
  const Tensor bytes = device::view_of(own.data, {{own.bytes()}, base::DType::u8});
  const int64_t shards = whole_bytes / bytes.elements();
  const int64_t room = groups_.received().bytes() / shards;
  std::vector<std::byte> all(static_cast<size_t>(whole_bytes));
  for (int64_t begin = 0; begin < bytes.elements(); begin += room) {
    const int64_t count = std::min(room, bytes.elements() - begin);
    const Tensor piece = device::view_of(groups_.received().data, {{shards * count}, bytes.dtype});
    groups_.gather_for_host(view, piece, bytes.slice_rows(begin, count));
    std::vector<std::byte> part(static_cast<size_t>(piece.bytes()));
    groups_.stream().download(part, piece);
    groups_.stream().synchronize();
    for (int64_t s = 0; s < shards; ++s) {
      std::copy_n(part.begin() + s * count, count, all.begin() + s * bytes.elements() + begin);
    }
  }
  return all;
}

std::vector<float> Buckets::read_whole(int bucket, const optim::FlatFloats& own) {
  const int64_t whole = at(bucket).layout().elements;
  if (own.values.elements() == whole) {
    groups_.before_compute();
    return download_floats(groups_.compute(), own);
  }
  const auto gathered = [&](const Tensor& part) {
    return part ? read_whole(view(bucket), part, whole * base::size_of(part.dtype))
                : std::vector<std::byte>{};
  };
  return floats_of(own.values.dtype, gathered(own.values), gathered(own.low));
}

size_t Buckets::work_slot(int bucket) const {
  const int slot = buffers_.work_slot[static_cast<size_t>(bucket)];
  return static_cast<size_t>(slot < 0 ? bucket : slot);
}

}  // namespace trireme::engine
