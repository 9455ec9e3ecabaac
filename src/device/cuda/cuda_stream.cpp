// SPDX-License-Identifier: Apache-2.0
#include <nvtx3/nvToolsExt.h>

#include <utility>

#include "base/check.h"
#include "device/cuda/cuda_device.h"

namespace trireme::device {
namespace {

class CudaEvent final : public Event::State {
 public:
  explicit CudaEvent(unsigned int flags) {
    cuda_check(cudaEventCreateWithFlags(&handle, flags), "creating an event");
  }
  ~CudaEvent() override { cudaEventDestroy(handle); }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  cudaEvent_t handle = nullptr;
};

class CudaGraph final : public Graph {
 public:
  explicit CudaGraph(cudaGraph_t captured) {
    const cudaError_t status = cudaGraphInstantiate(&exec, captured, 0);
    cudaGraphDestroy(captured);
    cuda_check(status, "preparing a captured step");
  }
  ~CudaGraph() override { cudaGraphExecDestroy(exec); }
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  cudaGraphExec_t exec = nullptr;
};

const CudaEvent& cuda_event(const Event& event, const std::string& stream) {
  const auto* state = dynamic_cast<const CudaEvent*>(event.state());
  TRIREME_CHECK(state != nullptr, "stream '{}' was given an event of another device", stream);
  return *state;
}

}  // namespace

CudaStream::CudaStream(CudaDevice& device, std::string name)
    : Stream(device, std::move(name)), cuda_device_(device) {
  // Non-blocking: the default stream, which libraries may use, must not synchronise with it.
  cuda_check(cudaStreamCreateWithFlags(&handle_, cudaStreamNonBlocking), "creating a stream");
}

CudaStream::~CudaStream() {
  cudaStreamSynchronize(handle_);
  cudaStreamDestroy(handle_);
}

Event CudaStream::record() {
  auto event = std::make_shared<CudaEvent>(cudaEventDisableTiming);
  cuda_check(cudaEventRecord(event->handle, handle_), "recording an event");
  return event_at(std::move(event));
}

Event CudaStream::record_timed() {
  auto event = std::make_shared<CudaEvent>(cudaEventDefault);
  cuda_check(cudaEventRecord(event->handle, handle_), "recording an event");
  return event_at(std::move(event));
}

void CudaStream::record_timed(Event& reused) {
  if (reused.state() == nullptr) {
    reused = record_timed();
    return;
  }
  cuda_check(cudaEventRecord(cuda_event(reused, name()).handle, handle_), "recording an event");
}

bool CudaStream::is_reached(const Event& event) const { return has_happened(event); }

double CudaStream::seconds_between(const Event& begin, const Event& end) const {
  float milliseconds = 0;
  cuda_check(cudaEventElapsedTime(&milliseconds, cuda_event(begin, name()).handle,
                                  cuda_event(end, name()).handle),
             "reading the time between two events");
  return 1e-3 * static_cast<double>(milliseconds);
}

void CudaStream::do_wait(const Event& event) {
  cuda_check(cudaStreamWaitEvent(handle_, cuda_event(event, name()).handle, 0),
             "waiting for an event");
}

void CudaStream::synchronize() {
  cuda_check(cudaStreamSynchronize(handle_), "waiting for the GPU");
  cuda_device_.run_check();
}

std::unique_ptr<Graph> CudaStream::capture(const std::function<void()>& queue_work) {
  // Thread-local: a call of this thread that would wait for the GPU fails the capture.
  cuda_check(cudaStreamBeginCapture(handle_, cudaStreamCaptureModeThreadLocal),
             "starting to capture a step");
  is_capturing_ = true;
  cudaGraph_t captured = nullptr;
  try {
    queue_work();
  } catch (...) {
    is_capturing_ = false;
    cudaStreamEndCapture(handle_, &captured);
    if (captured != nullptr) cudaGraphDestroy(captured);
    cudaGetLastError();  // the first exception is the cause
    throw;
  }
  is_capturing_ = false;
  cuda_check(cudaStreamEndCapture(handle_, &captured), "capturing a step");
  return std::make_unique<CudaGraph>(captured);
}

void CudaStream::launch(const Graph& graph) {
  const auto* found = dynamic_cast<const CudaGraph*>(&graph);
  TRIREME_CHECK(found != nullptr, "stream '{}' was given a graph of another device", name());
  cuda_check(cudaGraphLaunch(found->exec, handle_), "launching a captured step");
}

void CudaStream::copy(std::byte* to, const std::byte* from, int64_t bytes) {
  cuda_check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, handle_),
             "copying between host and GPU");
}

bool has_happened(const Event& event) {
  if (event.state() == nullptr) return true;
  const cudaError_t status = cudaEventQuery(cuda_event(event, "any").handle);
  if (status == cudaErrorNotReady) {
    cudaGetLastError();  // not an error for the next launch check
    return false;
  }
  cuda_check(status, "querying an event");
  return true;
}

void CudaStream::range_begins(const std::string& name) { nvtxRangePushA(name.c_str()); }
void CudaStream::range_ends() { nvtxRangePop(); }

}  // namespace trireme::device
