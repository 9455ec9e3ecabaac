// SPDX-License-Identifier: Apache-2.0
#include "train/checkpointing/peer/kept_store.h"

#include <cstring>

#include "ckpt/memory/copy_round.h"

namespace trireme::train {
namespace {

std::string run_in(const ckpt::CopyLabel& label) {
  return {label.run.data(), ::strnlen(label.run.data(), label.run.size())};
}

}  // namespace

KeptStore::KeptStore(int descriptor)
    : descriptor_(descriptor), copies_(ckpt::KeptCopies::existing(descriptor)) {}

std::vector<KeptStore::Kept> KeptStore::list() const {
  const std::scoped_lock lock(mutex_);
  std::vector<Kept> all;
  if (!copies_) return all;
  for (const ckpt::CopyMemory& memory : copies_->all()) {
    for (const ckpt::FoundCopy& copy : memory.copies()) all.push_back({memory.shape(), copy});
  }
  return all;
}

void KeptStore::reserve(std::span<const ckpt::CopyShape> shapes) {
  const std::scoped_lock lock(mutex_);
  const int64_t bytes = ckpt::KeptCopies::memory_bytes(shapes);
  if (bytes > 0) ckpt::KeptCopies::reserve(descriptor_, bytes);
  reserved_.emplace(shapes.begin(), shapes.end());
}

void KeptStore::make_room() {
  if (!reserved_) return;
  copies_.reset();
  if (reserved_->empty()) {
    ckpt::CopyMemory::release(descriptor_);
  } else {
    copies_.emplace(descriptor_, *reserved_);  // the same shapes: with what was left
  }
  reserved_.reset();
}

void KeptStore::settle() {
  const std::scoped_lock lock(mutex_);
  make_room();
}

void KeptStore::begin(const std::string& run, int64_t step) {
  const std::scoped_lock lock(mutex_);
  run_ = run;
  has_begun_ = true;
  if (!copies_) return;
  for (ckpt::CopyMemory& memory : copies_->all()) {
    for (const ckpt::FoundCopy& copy : memory.copies()) {
      if (copy.label.step > step || run_in(copy.label) != run) memory.clear(copy.buffer);
    }
  }
}

void KeptStore::mark_held(int64_t step) {
  const std::scoped_lock lock(mutex_);
  if (!copies_) return;
  for (ckpt::CopyMemory& memory : copies_->all()) {
    for (const ckpt::FoundCopy& copy : memory.copies()) {
      if (copy.label.step == step && !copy.is_held) memory.mark_held(copy.buffer);
    }
  }
}

KeptStore::Storing::~Storing() {
  const std::scoped_lock lock(store_.mutex_);
  store_.storing_.erase(memory_.shape().rank);
}

void KeptStore::Storing::seal(const ckpt::CopyLabel& label, const ckpt::Hash& content) {
  const std::scoped_lock lock(store_.mutex_);
  memory_.seal(buffer_, label, content);
}

std::optional<KeptStore::Storing> KeptStore::store(const ckpt::CopyShape& shape,
                                                   const ckpt::CopyLabel& label, int64_t keep,
                                                   std::string& refusal) {
  const std::scoped_lock lock(mutex_);
  if (has_begun_) make_room();
  ckpt::CopyMemory* const memory = copies_ ? copies_->of(shape.rank) : nullptr;
  if (!has_begun_) {
    refusal = "it has not begun its epoch";
  } else if (memory == nullptr || memory->shape() != shape) {
    refusal = "it has no memory for this copy";
  } else if (run_in(label) != run_) {
    refusal = "it trains another run";
  } else if (storing_.contains(shape.rank)) {
    refusal = "it is still receiving another copy of this rank";
  }
  if (!refusal.empty()) return std::nullopt;
  ckpt::CopySteps::Steps sealed = ckpt::CopySteps{}.sealed;
  for (const ckpt::FoundCopy& copy : memory->copies()) {
    sealed[static_cast<size_t>(copy.buffer)] = copy.label.step;
  }
  const int buffer = ckpt::buffer_to_keep_in(sealed, shape.buffers, keep);
  storing_.insert(shape.rank);
  return std::make_optional<Storing>(*this, *memory, buffer, memory->begin(buffer));
}

std::vector<int64_t> KeptStore::steps_of(int rank) const {
  std::vector<int64_t> steps;
  for (const Kept& kept : list()) {
    if (kept.shape.rank == rank) steps.push_back(kept.copy.label.step);
  }
  return steps;
}

std::optional<KeptStore::Read> KeptStore::read(const ckpt::CopyShape& shape, int64_t step) {
  const std::scoped_lock lock(mutex_);
  ckpt::CopyMemory* const memory = copies_ && !has_begun_ ? copies_->of(shape.rank) : nullptr;
  if (memory == nullptr || memory->shape() != shape) return std::nullopt;
  for (const ckpt::FoundCopy& copy : memory->copies()) {
    if (copy.label.step != step) continue;
    return Read{copy.label, memory->hash(copy.buffer), memory->content(copy.buffer)};
  }
  return std::nullopt;
}

}  // namespace trireme::train
