// SPDX-License-Identifier: Apache-2.0
// Workspace: a writer's preallocated, counted memory. Taking more than predicted is a bug.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/check.h"
#include "base/shape.h"
#include "ckpt/disk/disk.h"

namespace trireme::ckpt {

class Workspace {
 public:
  // REQUIRES: it starts at a multiple of page_bytes, and outlives the workspace.
  explicit Workspace(std::span<std::byte> memory) : memory_(memory) {}

  // Returns the bytes that take() consumes for a request of `bytes`.
  static int64_t rounded(int64_t bytes) { return base::round_up(bytes, page_bytes); }

  // Returns memory at a multiple of page_bytes; the content is not initialised.
  std::span<std::byte> take(int64_t bytes) {
    TRIREME_CHECK(bytes >= 0 && rounded(bytes) <= std::ssize(memory_) - taken_,
                  "{} bytes of a workspace of {}, of which {} are taken", bytes, memory_.size(),
                  taken_);
    const auto part = memory_.subspan(static_cast<size_t>(taken_), static_cast<size_t>(bytes));
    taken_ += rounded(bytes);
    high_water_ = std::max(high_water_, taken_);
    return part;
  }
  // Returns value-initialised elements.
  template <typename T>
  std::span<T> take_values(int64_t count) {
    const auto bytes = take(count * static_cast<int64_t>(sizeof(T)));
    auto* first = reinterpret_cast<T*>(bytes.data());
    std::uninitialized_value_construct_n(first, count);
    return {first, static_cast<size_t>(count)};
  }
  // Releases everything.
  void clear() { taken_ = 0; }
  int64_t high_water() const { return high_water_; }

 private:
  std::span<std::byte> memory_;
  int64_t taken_ = 0, high_water_ = 0;
};

}  // namespace trireme::ckpt
