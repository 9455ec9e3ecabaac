// SPDX-License-Identifier: Apache-2.0
// An engine whose construction fails leaves no work in flight that uses its memory.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>

#include "tests/engine/rig.h"

namespace trireme::tests {
namespace {

// Throws when the engine makes the stream for input batches, after it has queued the upload of its
// RoPE table. The upload is delayed until then, and after it the device records how much memory the
// engine still has.
class RefusingDevice final : public device::CpuDevice {
 public:
  RefusingDevice()
      : CpuDevice(kernels::cpu_kernels(), {.streams = device::StreamMode::worker_threads}) {}

  std::unique_ptr<device::Stream> make_stream(std::string name) override {
    if (name == "copy") {
      live_when_refused = ledger().live();
      compute_->enqueue([this] {
        // Gives an engine that does not wait the time to free its memory. An engine that waits
        // passes however long this takes.
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        live_when_drained = ledger().live();
      });
      is_open_ = true;
      is_open_.notify_all();
      throw std::runtime_error("no stream for copies");
    }
    auto stream = CpuDevice::make_stream(name);
    if (name == "compute") {
      compute_ = dynamic_cast<device::CpuStream*>(stream.get());
      compute_->enqueue([this] { is_open_.wait(false); });
    }
    return stream;
  }

  std::atomic<int64_t> live_when_refused = 0, live_when_drained = 0;

 private:
  device::CpuStream* compute_ = nullptr;
  std::atomic<bool> is_open_ = false;
};

TEST(EngineConstructionTest, a_failure_waits_for_queued_work_before_memory_is_freed) {
  const spec::ModelSpec model = spec::make_model(tiny_llama());
  RefusingDevice device;
  EXPECT_THROW(engine::Engine(device, model, plan_of({.dims = tiny_llama()}, model), {}, {}),
               std::runtime_error);
  EXPECT_GT(device.live_when_refused, 0);
  EXPECT_EQ(device.live_when_drained, device.live_when_refused);
  EXPECT_EQ(device.ledger().live(), 0);
}

}  // namespace
}  // namespace trireme::tests
