// SPDX-License-Identifier: Apache-2.0
// NcclWatch: the thread that watches NCCL's work of this process, for all groups. It marks the
// flight recorder when the GPU starts and completes a call, detects calls that exceed their
// deadline and asynchronous errors of the library, and aborts all communicators when the run is
// aborted, by any rank. Kernels that wait for a lost peer end then, and so does every host wait for
// their streams.
#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
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

  // A call on a stream, between two of its ticks: numbers that the GPU writes (device/
  // stream_number.h). They are read without a call of the driver, which would wait for a host that
  // waits for room in a queue.
  struct Flight {
    int64_t record_id = 0;
    double deadline_s = 0;  // from when the stream starts it
    int64_t* ticks = nullptr;
    int64_t begin_tick = 0, end_tick = 0;
  };

  // ---- the host thread that queues work
  // Allocates what the rest needs, which cannot be allocated while a stream is being captured. Any
  // number of times.
  void prepare_ticks(const device::CudaStream& stream);
  // The next ticks are those of this call. A call in a graph is announced before each launch.
  void watch(const device::CudaStream& stream, int64_t record_id, double deadline_s);
  enum class Tick : uint8_t { begin, end };
  // Queues a tick of the call that was announced last; in a graph, of the next one at each launch.
  // REQUIRES: the stream was prepared.
  void tick(device::CudaStream& stream, Tick which);

 private:
  using Clock = std::chrono::steady_clock;
  struct Watched {
    Flight flight;
    std::optional<Clock::time_point> begun;
  };

  void serve();
  void look();  // throws if a call or a communicator has failed
  void look_at_flights();
  // Both call no function of CUDA.
  static bool has_begun(const Flight&);
  static bool has_ended(const Flight&);
  void abort_all() noexcept;
  // Aborts all at the same time: one after the other, the first would wait for kernels that only
  // the abort of another group ends (NVIDIA/nccl issue 1013). Returns how many have not ended when
  // nothing had moved for a while.
  size_t abort_together(const std::vector<std::shared_ptr<NcclHandle>>& handles);
  // How many calls the GPU has started, and completed, since the abort began.
  size_t count_moves();

  ProcessWorld& world_;
  device::CudaDevice& device_;
  std::vector<Watched> watched_;  // used by the thread only

  struct Ticks {
    device::HostBuffer memory;  // holds the number
    int64_t expected = 0;       // after the calls that were announced
    int64_t* number() const { return reinterpret_cast<int64_t*>(memory.data()); }
  };
  // Used by the host thread that queues work; flights have the address of a number.
  std::map<const device::CudaStream*, Ticks> ticks_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::vector<Flight> arriving_;
  std::vector<std::shared_ptr<NcclHandle>> handles_;
  bool is_aborted_ = false, is_stopping_ = false;

  std::thread thread_;
  std::optional<ProcessWorld::Wake> wake_;  // last: destroyed before the thread
};

}  // namespace trireme::comm
