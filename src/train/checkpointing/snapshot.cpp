// SPDX-License-Identifier: Apache-2.0
#include "train/checkpointing/snapshot.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/hash/content_sum.h"
#include "kernels/ops.h"

namespace trireme::train {

Snapshot::Snapshot(engine::Engine& engine, device::Device& device, std::string name,
                   std::vector<StagedCopy> copies, bool has_sums)
    : engine_(engine),
      copies_(std::move(copies)),
      sums_(has_sums ? std::optional(make_sums(device)) : std::nullopt),
      stream_(device.make_side_stream(std::move(name))) {}

Snapshot::Sums Snapshot::make_sums(device::Device& device) const {
  Sums sums{.memory = device::Buffer(device, device::Mem::staging, base::grain_bytes,
                                     "sum of a copy of the state"),
            .own = {},
            .others = {}};
  sums.own.sum = sums.others.sum =
      device::view_of(sums.memory.data(), {{sizeof(base::ContentSum)}, base::DType::u8});
  for (const StagedCopy& copy : copies_) {
    auto& ranges = copy.is_own ? sums.own.ranges : sums.others.ranges;
    ranges.push_back({.bytes = copy.from.values, .offset = copy.to});
    if (!copy.from.low) continue;
    ranges.push_back({.bytes = copy.from.low, .offset = copy.to + copy.from.values.bytes()});
  }
  return sums;
}

Snapshot::Span Snapshot::begin(std::byte* memory, const Snapshot* other, std::byte* sum) {
  TRIREME_CHECK(sum == nullptr || sums_, "a sum of a snapshot without sums");
  engine_.flush_updates();
  device::Stream& compute = engine_.compute();
  if (sum != nullptr) {
    compute.wait(copied_);  // the last one has read its sum
    kernels::ops::fill(compute, {.d = sums_->own.sum});
    kernels::ops::content_sum(compute, sums_->own);
  }
  // Own tensors of layers are small, and a step changes some of them before its updates.
  for (const StagedCopy& copy : copies_) {
    if (copy.is_own) copy.start(compute, memory);
  }
  stream_->wait(compute.record());
  Span span{.begin = stream_->record_timed(), .end = {}};
  if (sum != nullptr) {
    kernels::ops::content_sum(*stream_, sums_->others);
    stream_->download({sum, sizeof(base::ContentSum)}, sums_->others.sum);
  }
  for (const StagedCopy& copy : copies_) {
    if (!copy.is_own) copy.start(*stream_, memory);
  }
  span.end = stream_->record_timed();
  if (other != nullptr) stream_->wait(other->copied_);
  copied_ = stream_->record();
  engine_.hold_state(copied_);
  return span;
}

double Snapshot::exposed_seconds(const Span& span) const {
  const device::Event& waits_at = engine_.held_at();
  if (waits_at.state() == nullptr || !stream_->is_reached(waits_at)) return 0;
  return std::max(0.0, stream_->seconds_between(waits_at, span.end));
}

void Snapshot::finish(std::byte* memory, std::span<std::byte> workspace) const {
  for (const StagedCopy& copy : copies_) copy.finish(memory, workspace);
}

int64_t Snapshot::bytes() const {
  int64_t bytes = 0;
  for (const StagedCopy& copy : copies_) bytes = std::max(bytes, copy.to + copy.bytes());
  return bytes;
}

}  // namespace trireme::train
