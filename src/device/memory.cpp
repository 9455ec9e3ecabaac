// SPDX-License-Identifier: Apache-2.0
#include "device/memory.h"

#include <algorithm>
#include <utility>

namespace trireme::device {
namespace {

// The address of tensors of a measuring arena, and of a null device: never dereferenced, never
// null.
std::byte* nowhere() {
  return reinterpret_cast<std::byte*>(static_cast<uintptr_t>(base::grain_bytes));
}

}  // namespace

Buffer::Buffer(Device& device, Mem mem, int64_t bytes, std::string_view what)
    : device_(&device), mem_(mem), bytes_(bytes) {
  device.ledger().reserve(mem, bytes, what);
  if (bytes == 0) return;
  try {
    data_ = device.allocate(bytes);
  } catch (...) {
    device.ledger().release(mem, bytes);
    throw;
  }
}

Buffer::Buffer(Buffer&& other) noexcept
    : device_(other.device_),
      mem_(other.mem_),
      bytes_(std::exchange(other.bytes_, 0)),
      data_(std::exchange(other.data_, nullptr)) {}

Buffer::~Buffer() {
  if (data_ == nullptr) return;
  device_->release(data_, bytes_);
  device_->ledger().release(mem_, bytes_);
}

Tensor Arena::take(const base::TensorSpec& spec) {
  const int64_t bytes = base::bytes_of(spec);
  if (buffer_) {
    TRIREME_CHECK(used_ + bytes <= buffer_->bytes(),
                  "{} of {} bytes in use, {} more requested for {}", used_, buffer_->bytes(), bytes,
                  spec.shape.to_string());
  }
  std::byte* start = buffer_ && buffer_->data() != nullptr ? buffer_->data() : nowhere();
  const Tensor tensor = view_of(start + used_, spec);
  used_ += bytes;
  high_water_ = std::max(high_water_, used_);
  return tensor;
}

}  // namespace trireme::device
