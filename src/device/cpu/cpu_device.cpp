// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/cpu_device.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/system/start_thread.h"
#include "device/host_memory.h"

namespace trireme::device {
namespace {

class CpuEvent final : public Event::State {
 public:
  using Clock = std::chrono::steady_clock;

  // `failure` is the exception of the work before this point; null if it succeeded.
  void set(std::exception_ptr failure = nullptr) {
    {
      const std::scoped_lock lock(mutex_);
      happened_ = true;
      failure_ = std::move(failure);
      at_ = Clock::now();
    }
    changed_.notify_all();
  }
  // For an event that is recorded again, and that no thread waits for.
  void clear() {
    const std::scoped_lock lock(mutex_);
    happened_ = false;
    failure_ = nullptr;
  }
  bool is_set() {
    const std::scoped_lock lock(mutex_);
    if (happened_ && failure_) std::rethrow_exception(failure_);
    return happened_;
  }
  Clock::time_point at() {
    const std::scoped_lock lock(mutex_);
    TRIREME_CHECK(happened_, "the time of an event that has not been reached");
    return at_;
  }
  void await() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return happened_; });
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  std::mutex mutex_;  // guards happened_, failure_ and at_
  std::condition_variable changed_;
  bool happened_ = false;
  std::exception_ptr failure_;
  Clock::time_point at_;
};

CpuEvent& cpu_event(const Event& event, const std::string& stream) {
  auto* state = dynamic_cast<CpuEvent*>(event.state());
  TRIREME_CHECK(state != nullptr, "stream '{}' was given an event of another device", stream);
  return *state;
}

}  // namespace

// The work of streams, in the order in which the host queued it.
class CpuGraph final : public Graph {
 public:
  struct Step {
    CpuStream* stream;
    CpuStream::Item item;
  };
  std::vector<Step> steps;
  std::vector<std::shared_ptr<Event::State>> events;  // that the work sets
  std::vector<CpuStream*> streams;
};

CpuDevice::CpuDevice(const kernels::Kernels& kernels, const Options& options)
    : Device("cpu", kernels, options.budget_bytes),
      streams_(options.streams),
      pool_(options.threads) {}

std::unique_ptr<Stream> CpuDevice::make_stream(std::string name) {
  return std::make_unique<CpuStream>(*this, std::move(name), streams_);
}

std::unique_ptr<Stream> CpuDevice::make_side_stream(std::string name) {
  return std::make_unique<CpuStream>(*this, std::move(name), StreamMode::worker_threads);
}

std::byte* CpuDevice::allocate(int64_t bytes) {
  const int64_t rounded = base::round_up(bytes, base::grain_bytes);
  void* data =
      std::aligned_alloc(static_cast<size_t>(base::grain_bytes), static_cast<size_t>(rounded));
  if (data == nullptr) {
    throw base::OutOfMemory(fmt::format(
        "out of memory on the host: needs {} bytes, {} are available; use a smaller model, "
        "micro-batch or sequence",
        rounded, host_memory_available()));
  }
  return static_cast<std::byte*>(data);
}

void CpuDevice::release(std::byte* data, int64_t /*bytes*/) noexcept { std::free(data); }

CpuStream::CpuStream(CpuDevice& device, std::string name, StreamMode mode)
    : Stream(device, std::move(name)), cpu_device_(device), mode_(mode) {
  if (mode_ == StreamMode::worker_threads) {
    worker_ = base::start_thread("of stream '" + this->name() + "'", [this] { serve(); });
  }
}

CpuStream::~CpuStream() {
  if (!worker_.joinable()) return;
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  worker_.join();
}

Event CpuStream::record() {
  if (mode_ == StreamMode::inline_calls) return {};
  return record_timed();
}

Event CpuStream::record_timed() {
  auto event = std::make_shared<CpuEvent>();
  if (mode_ == StreamMode::inline_calls) {
    event->set();
  } else {
    if (capture_ != nullptr) capture_->events.push_back(event);
    push({[this, event] { event->set(failure_); }, true});
  }
  return event_at(event);
}

void CpuStream::record_timed(Event& reused) {
  if (reused.state() == nullptr) {
    reused = record_timed();
    return;
  }
  CpuEvent& event = cpu_event(reused, name());
  if (mode_ == StreamMode::inline_calls) {
    event.set();
    return;
  }
  event.clear();
  if (capture_ != nullptr) capture_->events.push_back(reused.shared());
  push({[this, keep = reused, state = &event] { state->set(failure_); }, true});
}

bool CpuStream::is_reached(const Event& event) const {
  return event.state() == nullptr || cpu_event(event, name()).is_set();
}

double CpuStream::seconds_between(const Event& begin, const Event& end) const {
  const std::chrono::duration<double> taken =
      cpu_event(end, name()).at() - cpu_event(begin, name()).at();
  return taken.count();
}

Stream::HostCalls CpuStream::host_calls() const {
  return mode_ == StreamMode::inline_calls ? HostCalls::immediate : HostCalls::queued;
}

void CpuStream::do_wait(const Event& event) {
  enqueue([keep = event, state = &cpu_event(event, name())] { state->await(); });
}

void CpuStream::synchronize() {
  if (mode_ == StreamMode::inline_calls) return;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return queue_.empty() && !busy_; });
  if (failure_) std::rethrow_exception(failure_);
}

void CpuStream::drain() noexcept {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return queue_.empty() && !busy_; });
  failure_ = nullptr;
}

std::unique_ptr<Graph> CpuStream::do_capture(std::span<Stream* const> others,
                                             const std::function<void()>& queue_work) {
  auto graph = std::make_unique<CpuGraph>();
  graph->streams.push_back(this);
  for (Stream* other : others) {
    auto* stream = dynamic_cast<CpuStream*>(other);
    TRIREME_CHECK(stream != nullptr, "stream '{}' is captured with '{}' of another device", name(),
                  other->name());
    graph->streams.push_back(stream);
  }
  const auto is_inline = [](const CpuStream* stream) {
    return stream->mode_ == StreamMode::inline_calls;
  };
  if (std::ranges::any_of(graph->streams, is_inline)) return nullptr;
  const auto set = [&graph](CpuGraph* to) {
    for (CpuStream* stream : graph->streams) stream->capture_ = to;
  };
  set(graph.get());
  try {
    queue_work();
  } catch (...) {
    set(nullptr);
    throw;
  }
  set(nullptr);
  return graph;
}

void CpuStream::do_launch(const Graph& graph) {
  const auto* found = dynamic_cast<const CpuGraph*>(&graph);
  TRIREME_CHECK(found != nullptr, "stream '{}' was given a graph of another device", name());
  // The events are those of the last launch.
  for (CpuStream* stream : found->streams) stream->synchronize();
  for (const auto& event : found->events) static_cast<CpuEvent&>(*event).clear();
  for (const CpuGraph::Step& step : found->steps) step.stream->push(step.item);
}

void CpuStream::copy(std::byte* to, const std::byte* from, int64_t bytes) {
  enqueue([=] { std::memcpy(to, from, static_cast<size_t>(bytes)); });
}

void CpuStream::push(Item item) {
  if (capture_ != nullptr) {
    capture_->steps.push_back({this, std::move(item)});
    return;
  }
  {
    const std::scoped_lock lock(mutex_);
    queue_.push_back(std::move(item));
  }
  changed_.notify_all();
}

void CpuStream::serve() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;  // stopping, and all queued work is done or skipped
    const bool skipped = failure_ && !queue_.front().even_if_failed;
    std::function<void()> work = std::move(queue_.front().work);
    queue_.pop_front();
    busy_ = true;
    lock.unlock();
    std::exception_ptr failure;
    try {
      if (!skipped) work();
    } catch (...) {
      failure = std::current_exception();
    }
    work = nullptr;  // destroying it may take locks
    lock.lock();
    if (failure) failure_ = std::move(failure);
    busy_ = false;
    if (queue_.empty()) changed_.notify_all();
  }
}

}  // namespace trireme::device
