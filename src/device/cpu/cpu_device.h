// SPDX-License-Identifier: Apache-2.0
// The host as a device. Streams have two modes: inline, where a kernel runs when it is called, and
// worker, where each stream is a thread with a queue, so that a missing event wait shows as a race.
// A side stream is a worker in both modes. A wait on an inline stream blocks the host.
//
// Work may throw (communication does). Inline, the call throws. In a worker the first exception is
// kept and the stream has failed: later work is skipped, every synchronize() throws it, and so does
// all work that waits for a point of this stream after the failure. Events are still set, so that
// no waiter hangs.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <span>
#include <thread>

#include "base/system/threads.h"
#include "device/device.h"

namespace trireme::device {

enum class StreamMode : uint8_t { inline_calls, worker_threads };

// Tests derive from it to observe or delay the use of streams.
class CpuDevice : public Device {
 public:
  struct Options {
    int threads = 1;  // for the tasks of one kernel
    StreamMode streams = StreamMode::inline_calls;
    int64_t budget_bytes = std::numeric_limits<int64_t>::max();
  };
  CpuDevice(const kernels::Kernels& kernels, const Options& options);

  base::ThreadPool& pool() { return pool_; }
  std::unique_ptr<Stream> make_stream(std::string name) override;
  std::unique_ptr<Stream> make_side_stream(std::string name) override;

 private:
  std::byte* allocate(int64_t bytes) override;
  void release(std::byte* data, int64_t bytes) noexcept override;

  StreamMode streams_;
  base::ThreadPool pool_;
};

class CpuGraph;

class CpuStream final : public Stream {
 public:
  CpuStream(CpuDevice& device, std::string name, StreamMode mode);
  ~CpuStream() override;

  base::ThreadPool& pool() const { return cpu_device_.pool(); }
  StreamMode mode() const { return mode_; }

  Event record() override;
  void synchronize() override;
  void drain() noexcept override;
  bool is_reached(const Event&) const override;
  Event record_timed() override;
  void record_timed(Event& reused) override;
  double seconds_between(const Event& begin, const Event& end) const override;
  HostCalls host_calls() const override;
  void call_host(std::function<void()> work) override { enqueue(std::move(work)); }

  // Runs `work` now (inline) or after all queued work (worker).
  template <typename Work>
  void enqueue(Work&& work) {
    if (mode_ == StreamMode::inline_calls) {
      work();
    } else {
      push({std::function<void()>(std::forward<Work>(work)), false});
    }
  }

 private:
  friend class CpuGraph;
  struct Item {
    std::function<void()> work;
    bool even_if_failed;
  };

  // Worker streams can capture: the graph queues the same work again.
  std::unique_ptr<Graph> do_capture(std::span<Stream* const> others,
                                    const std::function<void()>& queue_work) override;
  void do_launch(const Graph&) override;
  void do_wait(const Event&) override;
  void copy(std::byte* to, const std::byte* from, int64_t bytes) override;
  void push(Item item);
  void serve();

  CpuDevice& cpu_device_;
  const StreamMode mode_;
  std::mutex mutex_;  // guards queue_, busy_, stopping_ and failure_
  std::condition_variable changed_;
  std::deque<Item> queue_;
  bool busy_ = false;
  bool stopping_ = false;
  std::exception_ptr failure_;   // written by the worker, and by drain() when it has no work
  CpuGraph* capture_ = nullptr;  // receives what is pushed; used by the host thread only
  std::thread worker_;
};

}  // namespace trireme::device
