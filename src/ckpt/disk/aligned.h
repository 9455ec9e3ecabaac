// SPDX-License-Identifier: Apache-2.0
// Memory for direct transfers: it starts at a multiple of page_bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "ckpt/disk/disk.h"

namespace trireme::ckpt {

// Grows on request and never shrinks. The content is not initialised, and is lost when it grows.
class AlignedBytes {
 public:
  std::span<std::byte> of(int64_t bytes) {
    if (bytes > capacity_) {
      capacity_ = bytes;
      memory_ =
          std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(bytes + page_bytes));
    }
    void* start = memory_.get();
    size_t room = static_cast<size_t>(capacity_ + page_bytes);
    std::align(static_cast<size_t>(page_bytes), static_cast<size_t>(bytes), start, room);
    return {static_cast<std::byte*>(start), static_cast<size_t>(bytes)};
  }

 private:
  std::unique_ptr<std::byte[]> memory_;
  int64_t capacity_ = 0;
};

}  // namespace trireme::ckpt
