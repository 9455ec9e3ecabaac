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

// The token table, or its gradients, as the embedding and as the head see it.
Tensor table_of_embedding(std::span<const Tensor> all) {
  return all[static_cast<size_t>(spec::EmbeddingParam::tokens)];
}
Tensor table_of_head(std::span<const Tensor> all) {
  return all[static_cast<size_t>(spec::HeadParam::weight)];
}

}  // namespace

Buckets::Buckets(const spec::ModelSpec& model, const spec::Plan& plan, DataGroups& groups,
                 TensorGroup& tensor, Pipe& pipe, const Memory& memory)
    : groups_(groups),
      tensor_(tensor),
      pipe_(pipe),
      residency_(plan.zero),
      hosted_(spec::hosted_workers(plan)),
      rounds_(spec::reduce_rounds(plan)),
      defers_updates_(groups.has_peers() && !plan.zero.optim),
      folds_(spec::folds(plan.layout.logical_dp,
                         spec::workers_of(plan, spec::data_rank(plan.mesh, groups.coord())))),
      buffers_(spec::data_buffers(plan, spec::bucket_layouts(model, plan, pipe.rank()),
                                  spec::is_tied(model) && plan.stages() == 1)),
      layers_(spec::layers_of_rank(model, plan, pipe.rank())) {
  if (groups_.has_peers()) groups_.set_received(memory.comm.take(buffers_.received));
  if (buffers_.rounded.shape.ndim() > 0) rounded_ = memory.comm.take(buffers_.rounded);
  for (const base::TensorSpec& spec : buffers_.work) work_.push_back(memory.comm.take(spec));
  for (const base::TensorSpec& spec : buffers_.gathered) {
    gathered_.push_back(memory.comm.take(spec));
  }
  for (size_t b = 0; b < layers_.size(); ++b) {
    const auto gather_slot = gathered_.empty()
                                 ? size_t{0}
                                 : static_cast<size_t>(buffers_.gather_slot(static_cast<int>(b)));
    buckets_.emplace_back(
        spec::params_of(model, layers_[b]), plan, groups.coord(),
        BucketMemory{memory.params, memory.grads,
                     gathered_.empty() ? Tensor{} : gathered_[gather_slot],
                     work_.empty() ? Tensor{} : work_[b % work_.size()], memory.leaves[b]});
  }
  tie(spec::pipe_buffers(model, plan, pipe.rank()), memory);
  written_.resize(buckets_.size());
  arrived_.resize(buckets_.size());
  released_.resize(gathered_.size());
  holds_.assign(gathered_.size(), -1);
  due_.resize(buckets_.size());
  is_due_.assign(buckets_.size(), 0);
  reduced_.resize(work_.empty() ? buckets_.size() : work_.size());
}

// Embedding and head are the model's first and last layer, so the first and the last bucket of the
// ranks that have them.
void Buckets::tie(const spec::PipeBuffers& pipe, const Memory& memory) {
  const int last = size() - 1;
  if (const auto& table = pipe_.table()) {
    if (table->owner == pipe_.rank()) {
      table_owner_ = 0;
      table_grads_ = memory.comm.take(pipe.table_grads)
                         .reshape(table_of_embedding(buckets_.front().grads()).shape);
    }
    if (table->reader == pipe_.rank()) {
      table_reader_ = last;
      buckets_.back().take_copies(memory.params.take(pipe.shared_table));
      const base::Shape shape = table_of_head(buckets_.back().grads()).shape;
      for (const base::TensorSpec& spec : pipe.staged_grads) {
        staged_.push_back(memory.comm.take(spec).reshape(shape));
      }
      grads_sent_.resize(std::max<size_t>(staged_.size(), 1));
    }
  } else if (buckets_.back().has_tied_copies()) {
    tied_to_ = 0;
    buckets_.back().tie(buckets_.front());
  }
}

int Buckets::index_of_layer(int layer) const {
  const auto found = std::find(layers_.begin(), layers_.end(), layer);
  TRIREME_CHECK(found != layers_.end(), "layer {} is not on this rank", layer);
  return static_cast<int>(found - layers_.begin());
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
  if (bucket == table_owner_) before_change(bucket);
  released_[slot] = groups_.mark(groups_.compute());
}

void Buckets::use(int bucket) {
  run_update(bucket);
  if (residency_.params) {
    const auto slot = static_cast<size_t>(buffers_.gather_slot(bucket));
    TRIREME_CHECK(holds_[slot] == bucket, "bucket {} is not here", bucket);
  }
  groups_.compute().wait(std::exchange(arrived_[static_cast<size_t>(bucket)], {}));
  if (bucket == table_owner_ && std::exchange(is_table_due_, false)) {
    before_change(bucket);  // an evaluation may have sent it, too
    table_sent_ = pipe_.send_table(spec::PipeKind::table, table_of_embedding(at(bucket).params()));
  }
  if (bucket == table_reader_) groups_.compute().wait(std::exchange(table_arrived_, {}));
}

void Buckets::zero(int bucket) {
  run_update(bucket);  // the head's gradients begin before its forward
  const Bucket& b = at(bucket);
  groups_.compute().wait(reduced_[work_slot(bucket)]);
  for (const spec::Range& range : b.layout().zeroed) {
    ops::fill(groups_.compute(), {.d = b.leaf().slice_rows(range.begin, range.end - range.begin)});
  }
  if (!b.has_tied_copies()) return;
  // Their sums were taken into the owner's, with its reduction, or sent to it.
  if (tied_to() >= 0) groups_.compute().wait(reduced_[work_slot(tied_to())]);
  if (bucket == table_reader_ && staged_.empty() && grads_sent_.front()) {
    grads_sent_.front()->wait(groups_.compute());
    grads_sent_.front().reset();
  }
}

void Buckets::reduce(int bucket, const spec::Leaf& leaf) {
  device::Stream& stream = groups_.stream();
  sum_along_tp(bucket);
  groups_.after_compute();
  if (bucket == table_reader_) send_table_grads();
  if (bucket == tied_to() || bucket == table_owner_) add_tied_copies(bucket);
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
  if (bucket == table_owner_) pipe_.receive_table_grads(groups_.stream(), table_grads_);
  const Tensor copy =
      bucket == table_owner_ ? table_grads_ : table_of_head(buckets_.back().grads());
  ops::accumulate(groups_.stream(), {.x = copy, .d = table_of_embedding(at(bucket).grads())});
}

void Buckets::send_table_grads() {
  Tensor sent = table_of_head(at(table_reader_).grads());
  std::unique_ptr<comm::Sent>& last = grads_sent_[next_staged_];
  if (!staged_.empty()) {
    if (last) last->wait(groups_.compute());
    groups_.compute().copy_bytes(staged_[next_staged_], sent);
    sent = staged_[next_staged_];
  }
  last = pipe_.send_table(spec::PipeKind::table_gradients, sent);
  next_staged_ = (next_staged_ + 1) % grads_sent_.size();
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
  before_change(bucket);
  update_(bucket);
}

void Buckets::flush_updates() {
  for (int b = 0; b < size(); ++b) run_update(b);
}

void Buckets::before_change(int bucket) {
  if (bucket != table_owner_ || !table_sent_) return;
  table_sent_->wait(groups_.compute());
  table_sent_.reset();
}

void Buckets::begin_evaluation() {
  if (is_table_stale_) begin_step();
}

void Buckets::begin_step() {
  is_table_stale_ = false;
  is_table_due_ = table_owner_ >= 0;
  if (table_reader_ >= 0) {
    table_arrived_ = pipe_.receive_table(table_of_head(at(table_reader_).params()));
  }
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

std::vector<std::byte> Buckets::read_whole(const Tensor& own, int64_t whole_bytes) {
  // In pieces through the memory in which sums arrive: nothing may be allocated.
  groups_.after_compute();
  const Tensor bytes = device::view_of(own.data, {{own.bytes()}, base::DType::u8});
  const int64_t shards = whole_bytes / bytes.elements();
  const int64_t room = groups_.received().bytes() / shards;
  std::vector<std::byte> all(static_cast<size_t>(whole_bytes));
  for (int64_t begin = 0; begin < bytes.elements(); begin += room) {
    const int64_t count = std::min(room, bytes.elements() - begin);
    const Tensor piece = device::view_of(groups_.received().data, {{shards * count}, bytes.dtype});
    groups_.gather_for_host(piece, bytes.slice_rows(begin, count));
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
    return part ? read_whole(part, whole * base::size_of(part.dtype)) : std::vector<std::byte>{};
  };
  return floats_of(own.values.dtype, gathered(own.values), gathered(own.low));
}

size_t Buckets::work_slot(int bucket) const {
  return static_cast<size_t>(bucket) % reduced_.size();
}

}  // namespace trireme::engine
