// SPDX-License-Identifier: Apache-2.0
// Buffer owns device memory; Arena allocates tensors from one Buffer, or only measures how much
// memory they would need.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/shape.h"
#include "device/device.h"

namespace trireme::device {

// The only owner of device memory; move-only. Zero bytes are allowed and allocate nothing.
class Buffer {
 public:
  Buffer(Device&, Mem, int64_t bytes, std::string_view what);
  Buffer(Buffer&&) noexcept;
  Buffer& operator=(Buffer&&) = delete;
  ~Buffer();

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  Device* device_;
  Mem mem_;
  int64_t bytes_;
  std::byte* data_ = nullptr;
};

// A stack of tensors. take() beyond the buffer is a bug: sizes are predicted before anything runs.
class Arena {
 public:
  explicit Arena(Buffer buffer) : buffer_(std::move(buffer)) {}
  // Returns an arena without memory: take() returns tensors that must not be dereferenced, and
  // high_water() returns the bytes needed.
  static Arena measuring() { return Arena(); }

  Tensor take(const base::TensorSpec&);
  int64_t used() const { return used_; }
  int64_t high_water() const { return high_water_; }

  // Frees on scope exit all tensors taken since its construction: scratch.
  class Mark {
   public:
    explicit Mark(Arena& arena) : arena_(arena), used_(arena.used_) {}
    ~Mark() { arena_.used_ = used_; }
    Mark(const Mark&) = delete;
    Mark& operator=(const Mark&) = delete;

   private:
    Arena& arena_;
    int64_t used_;
  };

 private:
  Arena() = default;

  std::optional<Buffer> buffer_;
  int64_t used_ = 0;
  int64_t high_water_ = 0;
};

}  // namespace trireme::device
