// SPDX-License-Identifier: Apache-2.0
// NcclWatch: the thread that watches NCCL's work of this process, for all groups. It marks the
// flight recorder when the GPU starts and completes a call, detects calls that exceed their
// deadline and asynchronous errors of the library, and aborts all communicators when the run is
// aborted, by any rank. Kernels that wait for a lost peer end then, and so does every host wait for
// their streams.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "comm/nccl/nccl_handle.h"
#include "comm/world/process_world.h"
#include "device/cuda/cuda_device.h"

namespace trireme::comm {

class NcclWatch {
 public:
  // World and device must outlive it.
  NcclWatch(ProcessWorld& world, device::CudaDevice& device);
  ~NcclWatch();
  NcclWatch(const NcclWatch&) = delete;
  NcclWatch& operator=(const NcclWatch&) = delete;

  // ---- any thread
  // Handles are shared, because a split that failed may write into its handle until the parent has
  // ended.
  void add(std::shared_ptr<NcclHandle> handle);
  void remove(const NcclHandle& handle);

  // A call on a stream, between two events of it.
  struct Flight {
    int64_t record_id = 0;
    double deadline_s = 0;  // from when the stream starts it
    device::Event begin, end;
  };
  void watch(Flight flight);

 private:
  using Clock = std::chrono::steady_clock;
  struct Watched {
    Flight flight;
    std::optional<Clock::time_point> begun;
  };

  void serve();
  void look();  // throws if a call or a communicator has failed
  void look_at_flights();
  void abort_all() noexcept;

  ProcessWorld& world_;
  device::CudaDevice& device_;
  std::vector<Watched> watched_;  // used by the thread only

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::vector<Flight> arriving_;
  std::vector<std::shared_ptr<NcclHandle>> handles_;
  bool is_aborted_ = false, is_stopping_ = false;

  std::thread thread_;
  std::optional<ProcessWorld::Wake> wake_;  // last: destroyed before the thread
};

}  // namespace trireme::comm
