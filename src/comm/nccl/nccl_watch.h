// SPDX-License-Identifier: Apache-2.0
// NcclWatch: the thread that looks after NCCL's work of this process, for all groups. It marks the
// flight recorder when the GPU comes to a call and when it has done it, finds calls that take
// longer than their deadline and errors that the library meets by itself, and ends all
// communicators when the run is aborted, whoever found out. Kernels that wait for a lost peer end
// then, and so does every wait of the host for their streams.
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
  // Shared, because a split that failed may still write into its handle until the parent has ended.
  void add(std::shared_ptr<NcclHandle> handle);
  void remove(const NcclHandle& handle);

  // A call on a stream, between two points of it.
  struct Flight {
    int64_t record_id = 0;
    double deadline_s = 0;  // from when the stream comes to it
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
  void look();  // throws what is wrong
  void look_at_flights();
  void abort_all() noexcept;

  ProcessWorld& world_;
  device::CudaDevice& device_;
  std::vector<Watched> watched_;  // of the thread

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::vector<Flight> arriving_;
  std::vector<std::shared_ptr<NcclHandle>> handles_;
  bool is_aborted_ = false, is_stopping_ = false;

  std::thread thread_;
  std::optional<ProcessWorld::Wake> wake_;  // last: gone before the thread is
};

}  // namespace trireme::comm
