// SPDX-License-Identifier: Apache-2.0
#include "device/null/null_device.h"

namespace trireme::device {
namespace {

class NullStream final : public Stream {
 public:
  using Stream::Stream;
  Event record() override { return {}; }
  void synchronize() override {}
  void drain() noexcept override {}
  bool is_reached(const Event& /*event*/) const override { return true; }
  Event record_timed() override { return {}; }
  void record_timed(Event& /*reused*/) override {}
  double seconds_between(const Event& /*begin*/, const Event& /*end*/) const override { return 0; }

 private:
  void do_wait(const Event&) override {}
  // Addresses of this device are fake, so nothing is copied: a download leaves host memory
  // unchanged.
  void copy(std::byte* /*to*/, const std::byte* /*from*/, int64_t /*bytes*/) override {}
};

}  // namespace

std::unique_ptr<Stream> NullDevice::make_stream(std::string name) {
  return std::make_unique<NullStream>(*this, std::move(name));
}

std::byte* NullDevice::allocate(int64_t /*bytes*/) {
  return reinterpret_cast<std::byte*>(static_cast<uintptr_t>(base::grain_bytes));
}

void NullDevice::release(std::byte* /*data*/, int64_t /*bytes*/) noexcept {}

}  // namespace trireme::device
