// SPDX-License-Identifier: Apache-2.0
#include <nvtx3/nvToolsExt.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/error.h"
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
  const Stream* source = nullptr;  // that recorded it last; it may be gone
  uint64_t capture = 0;            // in which that happened; 0: in none
};

// Makes `later` wait for all work of `earlier` so far. `event` is only used inside.
void order(CudaEvent& event, cudaStream_t earlier, cudaStream_t later) {
  cuda_check(cudaEventRecord(event.handle, earlier), "recording an event");
  cuda_check(cudaStreamWaitEvent(later, event.handle, 0), "waiting for an event");
}

class CudaGraph final : public Graph {
 public:
  CudaGraph(cudaGraph_t captured, std::vector<CudaStream*> other_streams)
      : exec(std::make_shared<CudaGraphExec>(captured)), others(std::move(other_streams)) {}

  const std::shared_ptr<CudaGraphExec> exec;
  std::vector<CudaStream*> others;
};

// Counts while it lives.
class Counted {
 public:
  explicit Counted(std::atomic<int>& count) : count_(count) { ++count_; }
  ~Counted() { --count_; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

 private:
  std::atomic<int>& count_;
};

CudaEvent& cuda_event(const Event& event, const std::string& stream) {
  auto* state = dynamic_cast<CudaEvent*>(event.state());
  TRIREME_CHECK(state != nullptr, "stream '{}' was given an event of another device", stream);
  return *state;
}

}  // namespace

CudaGraphExec::CudaGraphExec(cudaGraph_t captured) {
  const cudaError_t status = cudaGraphInstantiate(&exec_, captured, 0);
  cudaGraphDestroy(captured);
  cuda_check(status, "preparing a captured step");
}

bool CudaGraphExec::launch(cudaStream_t stream) {
  const std::scoped_lock lock(mutex_);
  if (exec_ == nullptr) return false;
  cuda_check(cudaGraphLaunch(exec_, stream), "launching a captured step");
  return true;
}

void CudaGraphExec::destroy() noexcept {
  const std::scoped_lock lock(mutex_);
  if (exec_ != nullptr) cudaGraphExecDestroy(std::exchange(exec_, nullptr));
}

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
  Event event = event_at(std::make_shared<CudaEvent>(cudaEventDisableTiming));
  record_in(event);
  return event;
}

Event CudaStream::record_timed() {
  Event event = event_at(std::make_shared<CudaEvent>(cudaEventDefault));
  record_in(event);
  return event;
}

void CudaStream::record_in(const Event& event) {
  CudaEvent& state = cuda_event(event, name());
  cuda_check(cudaEventRecord(state.handle, handle_), "recording an event");
  state.source = this;
  state.capture = capture_;
}

void CudaStream::record_timed(Event& reused) {
  if (reused.state() == nullptr) {
    reused = record_timed();
    return;
  }
  record_in(reused);
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
  const CudaEvent& state = cuda_event(event, name());
  const auto has = [](const auto& all, const auto& one) {
    return std::ranges::find(all, one) != all.end();
  };
  // Across the border of a graph launch() orders the streams of the graph. A captured stream that
  // waits for another one is refused by CUDA.
  if (state.capture != capture_ && capture_ != 0 && has(capturing_, state.source)) return;
  if (state.capture != capture_ && capture_ == 0) {
    TRIREME_CHECK(has(captures_, state.capture),
                  "stream '{}' waits for an event of a captured step, of which it is no part",
                  name());
    return;
  }
  cuda_check(cudaStreamWaitEvent(handle_, state.handle, 0), "waiting for an event");
}

void CudaStream::synchronize() {
  cuda_check(cudaStreamSynchronize(handle_), "waiting for the GPU");
  cuda_device_.run_check();
}

void CudaStream::drain() noexcept {
  cudaStreamSynchronize(handle_);
  cudaGetLastError();  // a broken GPU fails the next call, too
}

std::unique_ptr<Graph> CudaStream::do_capture(std::span<Stream* const> others,
                                              const std::function<void()>& queue_work) {
  static std::atomic<uint64_t> last_number = 0;
  const uint64_t number = ++last_number;
  std::optional<Counted> counted(std::in_place, cuda_device_.captures_);
  std::vector<CudaStream*> side;
  for (Stream* stream : others) side.push_back(&cuda_stream(*stream));
  std::vector<CudaStream*> all = side;
  all.push_back(this);
  // Thread-local: a call of this thread that would wait for the GPU fails the capture.
  cuda_check(cudaStreamBeginCapture(handle_, cudaStreamCaptureModeThreadLocal),
             "starting to capture a step");
  for (CudaStream* stream : all) {
    stream->capture_ = number;
    stream->capturing_ = all;
    stream->captures_.push_back(number);
  }
  const auto leave = [&all] {
    for (CudaStream* stream : all) {
      stream->capture_ = 0;
      stream->capturing_.clear();
    }
  };
  // The first work of the others follows, and the end of the graph comes after their last.
  std::vector<std::unique_ptr<CudaEvent>> borders;
  const auto border = [&borders](CudaStream& earlier, CudaStream& later) {
    borders.push_back(std::make_unique<CudaEvent>(cudaEventDisableTiming));
    order(*borders.back(), earlier.handle(), later.handle());
  };
  cudaGraph_t captured = nullptr;
  try {
    for (CudaStream* stream : side) border(*this, *stream);
    queue_work();
    for (CudaStream* stream : side) border(*stream, *this);
  } catch (...) {
    leave();
    cudaStreamEndCapture(handle_, &captured);
    if (captured != nullptr) cudaGraphDestroy(captured);
    cudaGetLastError();  // the first exception is the cause
    throw;
  }
  leave();
  cuda_check(cudaStreamEndCapture(handle_, &captured), "capturing a step");
  const Counted preparing(cuda_device_.graph_preparations_);
  counted.reset();
  auto graph = std::make_unique<CudaGraph>(captured, std::move(side));
  const std::scoped_lock lock(cuda_device_.graphs_mutex_);
  std::erase_if(cuda_device_.graphs_, [](const auto& one) { return one.expired(); });
  cuda_device_.graphs_.push_back(graph->exec);
  return graph;
}

void CudaStream::do_launch(const Graph& graph) {
  const auto* found = dynamic_cast<const CudaGraph*>(&graph);
  TRIREME_CHECK(found != nullptr, "stream '{}' was given a graph of another device", name());
  // The kernels of an aborted graph end late: each one waits for its peer before it looks.
  cuda_device_.run_check();
  CudaEvent border(cudaEventDisableTiming);
  for (const CudaStream* stream : found->others) order(border, stream->handle(), handle_);
  if (!found->exec->launch(handle_)) {
    cuda_device_.run_check();
    throw base::DeviceError("a captured step was destroyed by an abort");
  }
  for (const CudaStream* stream : found->others) order(border, handle_, stream->handle());
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
