// SPDX-License-Identifier: Apache-2.0
// Workspace: memory that a writer works in, given to it whole and counted. Taking more than was
// predicted is a bug.
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

  // What take() takes for so many bytes.
  static int64_t rounded(int64_t bytes) { return base::round_up(bytes, page_bytes); }

  // At a multiple of page_bytes; the content is not set.
  std::span<std::byte> take(int64_t bytes) {
    TRIREME_CHECK(bytes >= 0 && rounded(bytes) <= std::ssize(memory_) - taken_,
                  "{} bytes of a workspace of {}, of which {} are taken", bytes, memory_.size(),
                  taken_);
    const auto part = memory_.subspan(static_cast<size_t>(taken_), static_cast<size_t>(bytes));
    taken_ += rounded(bytes);
    high_water_ = std::max(high_water_, taken_);
    return part;
  }
  // So many values, each as T{} is.
  template <typename T>
  std::span<T> take_values(int64_t count) {
    const auto bytes = take(count * static_cast<int64_t>(sizeof(T)));
    auto* first = reinterpret_cast<T*>(bytes.data());
    std::uninitialized_value_construct_n(first, count);
    return {first, static_cast<size_t>(count)};
  }
  // Everything is given back.
  void clear() { taken_ = 0; }
  int64_t high_water() const { return high_water_; }

 private:
  std::span<std::byte> memory_;
  int64_t taken_ = 0, high_water_ = 0;
};

}  // namespace trireme::ckpt
