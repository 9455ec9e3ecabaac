// SPDX-License-Identifier: Apache-2.0
// One NVIDIA GPU as a device. CUDA's error codes become typed exceptions here: OutOfMemory for
// memory that the driver refuses, DeviceError for the rest.
#pragma once

#include <cuda_runtime.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "device/accelerator.h"
#include "device/device.h"

namespace trireme::device {

// Throws unless `status` is success. `what` describes the attempt for the message.
void cuda_check(cudaError_t status, const char* what);

// A captured step that can be launched.
class CudaGraphExec {
 public:
  explicit CudaGraphExec(cudaGraph_t captured);
  ~CudaGraphExec() { destroy(); }
  CudaGraphExec(const CudaGraphExec&) = delete;
  CudaGraphExec& operator=(const CudaGraphExec&) = delete;

  [[nodiscard]] bool launch(cudaStream_t stream);  // false after destroy()
  // Any thread, any number of times. Launches in progress go on.
  void destroy() noexcept;

 private:
  std::mutex mutex_;  // guards exec_
  cudaGraphExec_t exec_ = nullptr;
};

class CudaDevice final : public Device {
 public:
  // The state of a kernel table on one device: library handles, plans, measured choices.
  class KernelState {
   public:
    virtual ~KernelState() = default;
  };

  CudaDevice(const kernels::Kernels& kernels, const GpuOptions& options);
  ~CudaDevice() override;

  const GpuOptions& options() const { return options_; }
  int multiprocessors() const { return multiprocessors_; }
  const std::string& gpu_name() const { return gpu_name_; }

  // Empty until a kernel table fills it; destroyed before the context.
  std::unique_ptr<KernelState>& kernel_state() { return kernel_state_; }

  // `check` is called after every synchronize() of this device's streams, and before a graph is
  // launched; it throws if results are invalid although the queue is empty, as after a communicator
  // was aborted. May be null. Any thread.
  void set_check(std::function<void()> check);
  void run_check();

  // Destroys the graphs that exist now, so that communicators can end, whose calls are in them. Any
  // thread; what then launches one fails.
  void destroy_graphs() noexcept;
  // Is a thread capturing a step, or preparing the graph of one? Neither can be interrupted.
  bool is_capturing() const { return captures_ > 0; }
  bool is_preparing_graph() const { return graph_preparations_ > 0; }

  void use_on_this_thread() override;
  std::unique_ptr<Stream> make_stream(std::string name) override;
  int64_t available_bytes() override;
  bool registers_host_memory() const override { return true; }

 private:
  std::byte* allocate(int64_t bytes) override;
  void release(std::byte* data, int64_t bytes) noexcept override;
  HostBuffer::Memory allocate_host(int64_t bytes) override;
  void register_host(std::span<std::byte> memory) override;
  void unregister_host(std::byte* memory) noexcept override;

  GpuOptions options_;
  std::string gpu_name_;
  int multiprocessors_ = 0;
  std::unique_ptr<KernelState> kernel_state_;
  std::mutex check_mutex_;  // guards check_
  std::function<void()> check_;

  friend class CudaStream;  // counts captures and adds graphs
  std::atomic<int> captures_ = 0, graph_preparations_ = 0;
  std::mutex graphs_mutex_;  // guards graphs_
  std::vector<std::weak_ptr<CudaGraphExec>> graphs_;
};

class CudaStream final : public Stream {
 public:
  CudaStream(CudaDevice& device, std::string name);
  ~CudaStream() override;

  CudaDevice& cuda_device() const { return cuda_device_; }
  cudaStream_t handle() const { return handle_; }

  Event record() override;
  void synchronize() override;
  void drain() noexcept override;
  bool is_reached(const Event&) const override;
  Event record_timed() override;
  void record_timed(Event& reused) override;
  double seconds_between(const Event& begin, const Event& end) const override;
  // Adds 1 to a number in host memory of this device, in the order of the stream.
  void tick(int64_t* number);

 private:
  void record_in(const Event&);
  void do_wait(const Event&) override;
  std::unique_ptr<Graph> do_capture(std::span<Stream* const> others,
                                    const std::function<void()>& queue_work) override;
  void do_launch(const Graph&) override;
  void copy(std::byte* to, const std::byte* from, int64_t bytes) override;
  void range_begins(const std::string& name) override;
  void range_ends() override;

  CudaDevice& cuda_device_;
  cudaStream_t handle_ = nullptr;
  uint64_t capture_ = 0;                // the number of the capture in progress; 0: none
  std::vector<CudaStream*> capturing_;  // all streams of that capture
  std::vector<uint64_t> captures_;      // in which it took part
};

// Returns whether the device has reached this event of a CudaStream. Throws DeviceError if the
// device has failed.
bool has_happened(const Event& event);

// Returns the stream as a CudaStream, for ops of the CUDA table.
CudaStream& cuda_stream(Stream& stream);

}  // namespace trireme::device
