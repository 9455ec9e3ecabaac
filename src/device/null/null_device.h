// SPDX-License-Identifier: Apache-2.0
// A device that computes nothing and owns no memory, but counts both: for dry runs, the audit of
// facts(), and shapes too large for this machine.
#pragma once

#include <limits>

#include "device/device.h"

namespace trireme::device {

class NullDevice final : public Device {
 public:
  explicit NullDevice(const kernels::Kernels& kernels,
                      int64_t budget_bytes = std::numeric_limits<int64_t>::max())
      : Device("null", kernels, budget_bytes) {}

  std::unique_ptr<Stream> make_stream(std::string name) override;

 private:
  std::byte* allocate(int64_t bytes) override;
  void release(std::byte* data, int64_t bytes) noexcept override;
};

}  // namespace trireme::device
