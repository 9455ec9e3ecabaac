// SPDX-License-Identifier: Apache-2.0
// Views of tensors for communication: bytes, and flat ranges of elements. For use inside comm.
#pragma once

#include <cstdint>
#include <functional>

#include "device/tensor.h"

namespace trireme::comm {

inline device::Tensor bytes_at(std::byte* data, int64_t bytes) {
  return {data, {bytes}, 1, base::DType::u8};
}
inline device::ConstTensor bytes_at(const std::byte* data, int64_t bytes) {
  return device::BasicTensor<const std::byte>{data, {bytes}, 1, base::DType::u8};
}

// REQUIRES: contiguous.
inline device::Tensor as_bytes(const device::Tensor& t) { return bytes_at(t.data, t.bytes()); }
inline device::ConstTensor as_bytes(const device::ConstTensor& t) {
  return bytes_at(t.data, t.bytes());
}

// Elements [begin, begin + count) of a contiguous tensor.
template <typename Byte>
device::BasicTensor<Byte> flat_range(const device::BasicTensor<Byte>& t, int64_t begin,
                                     int64_t count) {
  TRIREME_CHECK(begin >= 0 && count >= 0 && begin + count <= t.elements(), "elements {}+{} of {}",
                begin, count, t.shape.to_string());
  return {t.data + begin * base::size_of(t.dtype), {count}, 1, t.dtype};
}

// Returns whether the tensors have no byte in common. REQUIRES: contiguous.
inline bool are_apart(const device::ConstTensor& a, const device::ConstTensor& b) {
  const std::less_equal<const std::byte*> not_after;
  return not_after(a.data + a.bytes(), b.data) || not_after(b.data + b.bytes(), a.data);
}

}  // namespace trireme::comm
