// SPDX-License-Identifier: Apache-2.0
#include "engine/state/shared_table.h"

#include <algorithm>
#include <utility>

#include "kernels/ops.h"

namespace trireme::engine {

namespace ops = kernels::ops;
using device::Wait;
using spec::PipeKind;

SharedTable::SharedTable(const spec::ModelSpec& model, const spec::Plan& plan, DataGroups& groups,
                         Pipe& pipe, std::span<Bucket> buckets, const Memory& memory)
    : groups_(groups), pipe_(pipe) {
  const auto spec = spec::shared_table(model, plan);
  if (!spec) return;
  if (spec->owner == pipe.rank()) {
    constexpr auto tokens = static_cast<size_t>(spec::EmbeddingParam::tokens);
    owner_ = 0;
    table_ = buckets.front().params()[tokens];
    grads_ = buckets.front().grads()[tokens];
    if (spec->is_split()) {
      peer_ = spec->reader;
      received_grads_ = memory.comm.take(spec->received_grads).reshape(table_.shape);
    }
  }
  if (spec->reader == pipe.rank()) take_reader(*spec, plan, buckets, memory);
}

void SharedTable::take_reader(const spec::SharedTable& spec, const spec::Plan& plan,
                              std::span<Bucket> buckets, const Memory& memory) {
  constexpr auto weight = static_cast<size_t>(spec::HeadParam::weight);
  Bucket& head = buckets.back();
  const std::vector<int64_t> dims = spec::local_shape(head.specs()[weight].shard, plan.mesh);
  const base::Shape shape{dims[0], dims[1]};
  reader_ = static_cast<int>(buckets.size()) - 1;
  if (!plan.inference) head_grads_ = memory.grads.take(spec.head_grads).reshape(shape);
  if (spec.is_split()) {
    peer_ = spec.owner;
    copy_ = memory.params.take(spec.copy).reshape(shape);
    for (const base::TensorSpec& staged : spec.staged_grads) {
      staged_.push_back(memory.comm.take(staged).reshape(shape));
    }
    grads_sent_.resize(std::max<size_t>(staged_.size(), 1));
  }
  head.set_views(weight, spec.is_split() ? copy_ : table_, head_grads_);
}

void SharedTable::begin_evaluation() {
  if (is_stale_) begin_step();
}

void SharedTable::begin_step() {
  is_stale_ = false;
  if (!is_split()) return;
  is_due_ = owner_ >= 0;
  if (reader_ >= 0) {
    table_arrived_ = pipe_.receive(PipeKind::table, peer_, copy_, groups_.compute().record());
  }
}

void SharedTable::use(int bucket) {
  if (!is_split()) return;
  if (bucket == owner_ && std::exchange(is_due_, false)) {
    before_change(bucket);  // an evaluation may have sent it, too
    table_sent_ = pipe_.send_from(PipeKind::table, peer_, table_);
  }
  if (bucket == reader_) {
    device::wait_for(groups_.compute(), std::exchange(table_arrived_, {}), Wait::pp);
  }
}

void SharedTable::before_change(int bucket) {
  if (bucket != owner_ || !table_sent_) return;
  const device::WaitSpan span(groups_.compute(), Wait::pp);
  table_sent_->wait(groups_.compute());
  table_sent_.reset();
}

void SharedTable::before_zero(int bucket) {
  if (bucket != reader_) return;
  if (!is_split()) device::wait_for(groups_.compute(), added_, Wait::data);
  if (is_split() && staged_.empty() && grads_sent_.front()) {
    const device::WaitSpan span(groups_.compute(), Wait::pp);
    grads_sent_.front()->wait(groups_.compute());
    grads_sent_.front().reset();
  }
}

void SharedTable::bring_grads(int bucket) {
  if (bucket == reader_ && is_split()) send_grads();
  if (bucket != owner_) return;
  device::Stream& stream = groups_.stream();
  if (is_split()) pipe_.receive_on(stream, PipeKind::table_gradients, peer_, received_grads_);
  ops::accumulate(stream, {.x = is_split() ? received_grads_ : head_grads_, .d = grads_});
  if (!is_split()) added_ = groups_.mark(stream);
}

void SharedTable::send_grads() {
  device::Tensor sent = head_grads_;
  std::unique_ptr<comm::Sent>& last = grads_sent_[next_staged_];
  if (!staged_.empty()) {
    if (last) {
      const device::WaitSpan span(groups_.compute(), Wait::pp);
      last->wait(groups_.compute());
    }
    groups_.compute().copy_bytes(staged_[next_staged_], sent);
    sent = staged_[next_staged_];
  }
  last = pipe_.send_from(PipeKind::table_gradients, peer_, sent);
  next_staged_ = (next_staged_ + 1) % grads_sent_.size();
}

}  // namespace trireme::engine
