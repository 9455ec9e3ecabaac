// SPDX-License-Identifier: Apache-2.0
#include "train/checkpointing/snapshot.h"

#include <algorithm>
#include <utility>

namespace trireme::train {

Snapshot::Snapshot(engine::Engine& engine, device::Device& device, std::string name,
                   std::vector<StagedCopy> copies)
    : engine_(engine),
      copies_(std::move(copies)),
      stream_(device.make_side_stream(std::move(name))) {}

Snapshot::Span Snapshot::begin(std::byte* memory, const Snapshot* other) {
  engine_.flush_updates();
  // Own tensors of layers are small, and a step changes some of them before its updates.
  for (const StagedCopy& copy : copies_) {
    if (copy.is_own) copy.start(engine_.compute(), memory);
  }
  stream_->wait(engine_.compute().record());
  Span span{.begin = stream_->record_timed(), .end = {}};
  for (const StagedCopy& copy : copies_) {
    if (!copy.is_own) copy.start(*stream_, memory);
  }
  span.end = stream_->record_timed();
  if (other != nullptr) stream_->wait(other->copied_);
  copied_ = stream_->record();
  engine_.hold_state(copied_);
  return span;
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
