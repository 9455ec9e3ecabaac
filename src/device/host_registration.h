// SPDX-License-Identifier: Apache-2.0
// HostRegistration: host memory of a caller, such as a mapped file, that is page-locked for copies
// to and from a device, as fast as those of a HostBuffer.
//
// Memory is registered in pieces, because a GPU's driver holds a lock meanwhile, for which calls of
// other threads wait. A copy must not cross the border of two pieces, which lie at multiples of
// piece_bytes of the registered memory. Devices that need none of this register nothing.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "device/device.h"

namespace trireme::device {

class HostRegistration {
 public:
  static constexpr int64_t piece_bytes = int64_t{64} << 20;

  // Nothing is registered yet. The device must outlive it.
  explicit HostRegistration(Device& device) : device_(device) {}
  // REQUIRES: the memory is still mapped, and no copy from or to it is queued or runs.
  ~HostRegistration() { clear(); }
  HostRegistration(const HostRegistration&) = delete;
  HostRegistration& operator=(const HostRegistration&) = delete;

  // Registers `memory`, which begins at the border of a page, on a thread that has called
  // Device::use_on_this_thread(). Returns false if `stop` became true before the end. Throws
  // OutOfMemory and DeviceError. What was registered until then stays so.
  [[nodiscard]] bool add(std::span<std::byte> memory, const std::atomic<bool>& stop);
  void clear() noexcept;

 private:
  Device& device_;
  std::vector<std::byte*> pieces_;
};

}  // namespace trireme::device
