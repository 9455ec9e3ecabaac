// SPDX-License-Identifier: Apache-2.0
#include "device/device.h"

namespace trireme::device {

void Stream::upload(Tensor to, std::span<const std::byte> from) {
  TRIREME_CHECK(to.is_contiguous() && to.bytes() == static_cast<int64_t>(from.size()),
                "upload of {} bytes to a tensor of {}", from.size(), to.bytes());
  copy(to.data, from.data(), to.bytes());
}

void Stream::download(std::span<std::byte> to, ConstTensor from) {
  TRIREME_CHECK(from.is_contiguous() && from.bytes() == static_cast<int64_t>(to.size()),
                "download to {} bytes from a tensor of {}", to.size(), from.bytes());
  copy(to.data(), from.data, from.bytes());
}

}  // namespace trireme::device
