// SPDX-License-Identifier: Apache-2.0
// Device, Stream, Event: where work runs, in what order, and how streams wait for each other.
//
// A Stream is a first-in first-out queue of kernels and copies. Work on two streams is ordered only
// by events. The host may run ahead of any stream; host memory given to upload() or download() must
// stay valid until the stream has passed that point.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "device/call_observer.h"
#include "device/ledger.h"
#include "device/tensor.h"

namespace trireme::kernels {
struct Kernels;
class OpObserver;
}  // namespace trireme::kernels

namespace trireme::device {

class Device;
class WaitWatch;

// A point in a stream's queue. Copies denote the same point. A default-constructed event counts as
// reached.
class Event {
 public:
  class State {
   public:
    virtual ~State() = default;
  };

  Event() = default;
  // `source`: the name of the stream that has recorded it, shared with that stream.
  explicit Event(std::shared_ptr<State> state, std::shared_ptr<const std::string> source = nullptr)
      : state_(std::move(state)), source_(std::move(source)) {}
  State* state() const { return state_.get(); }
  // Shared, because the recorder or a waiter may be the last to need the point.
  const std::shared_ptr<State>& shared() const { return state_; }
  std::string_view source() const { return source_ ? std::string_view(*source_) : ""; }

 private:
  std::shared_ptr<State> state_;
  std::shared_ptr<const std::string> source_;  // the event may outlive the stream
};

// Work that was captured from streams and can be launched repeatedly. Must be destroyed before what
// the work uses: memory, and communicators.
class Graph {
 public:
  virtual ~Graph() = default;

 private:
  friend class Stream;
  std::vector<std::function<void()>> host_work_;  // Stream::at_launch()
  bool was_launched_ = false;
};

// Host memory for the fastest copies to and from the device (page-locked for a GPU); the device's
// kernels can also read and write it. Zeroed. Must be destroyed before the device.
class HostBuffer {
 public:
  using Memory = std::unique_ptr<std::byte, std::function<void(std::byte*)>>;
  HostBuffer(Memory memory, int64_t bytes) : memory_(std::move(memory)), bytes_(bytes) {}

  std::byte* data() const { return memory_.get(); }
  int64_t bytes() const { return bytes_; }

 private:
  Memory memory_;
  int64_t bytes_;
};

class Stream {
 public:
  Stream(Device& device, std::string name)
      : device_(device), name_(std::make_shared<const std::string>(std::move(name))) {}
  virtual ~Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  Device& device() const { return device_; }
  const std::string& name() const { return *name_; }

  virtual Event record() = 0;      // the point after all work queued so far
  void wait(const Event&);         // later work on this stream starts after the event; the host
                                   // does not wait
  virtual void synchronize() = 0;  // the host waits until the queue is empty
  // As synchronize(), whatever has become of the work: a stream that has failed takes work again.
  virtual void drain() noexcept = 0;
  // Has this device passed the event? The host does not wait. If work before the event failed, it
  // throws what synchronize() throws.
  virtual bool is_reached(const Event&) const = 0;

  // As record(), for seconds_between().
  virtual Event record_timed() = 0;
  // The same in an event of record_timed() that was reached and of which there is no copy; it then
  // denotes the new point. Allocates nothing if the event is of this device.
  virtual void record_timed(Event& reused) { reused = record_timed(); }
  // REQUIRES: both are from record_timed() of this device and have been reached.
  virtual double seconds_between(const Event& begin, const Event& end) const = 0;

  // Calls `queue_work`, which queues work on this stream and on `others` only, and returns that
  // work without running it. Returns null, without calling `queue_work`, if the device cannot
  // capture. `queue_work` must not wait for the device. Events that these streams have recorded
  // before it count as reached in it, and its events count as reached after launch(), which orders
  // the graph after all work of these streams and their later work after it.
  std::unique_ptr<Graph> capture(std::span<Stream* const> others,
                                 const std::function<void()>& queue_work);
  std::unique_ptr<Graph> capture(const std::function<void()>& queue_work) {
    return capture({}, queue_work);
  }
  // REQUIRES: from capture() of this stream; all its streams exist.
  void launch(Graph&);
  bool is_capturing() const { return host_work_ != nullptr; }
  // Every launch() of the graph that is being captured, except the first, calls `work` before it
  // queues the graph: for what the host did while it queued the work, as counting it. REQUIRES:
  // is_capturing().
  void at_launch(std::function<void()> work);

  // When call_host() runs its work: never, because the stream cannot call the host; at once; or
  // after all work that was queued before.
  enum class HostCalls : uint8_t { none, immediate, queued };
  virtual HostCalls host_calls() const { return HostCalls::none; }
  // Runs `work` on the host in the order of this stream. REQUIRES: host_calls() != none.
  virtual void call_host(std::function<void()> work);

  // Contiguous tensors only; sizes must be equal.
  void upload(Tensor to, std::span<const std::byte> from);
  void download(std::span<std::byte> to, ConstTensor from);
  // From device memory to device memory, byte by byte; any type.
  void copy_bytes(Tensor to, ConstTensor from);

  // Scratch that an op may use while it runs (library workspaces). Work on one stream is in order,
  // so one piece of memory serves all ops. Not owned; absent until set.
  Tensor workspace() const { return workspace_; }
  void set_workspace(Tensor workspace) { workspace_ = workspace; }

  // Names of the open ranges (class Range), outermost first ("step", "F0", "blocks.3.attention").
  const std::vector<std::string>& ranges() const { return ranges_; }

  // Is notified of every op that kernels/ops.h queues on this stream. May be null. Not owned.
  kernels::OpObserver* observer() const { return observer_; }
  void set_observer(kernels::OpObserver* observer) { observer_ = observer; }

  // Is notified when work of this stream makes compute wait (device/wait_watch.h). May be null. Not
  // owned.
  WaitWatch* waits() const { return waits_; }
  void set_waits(WaitWatch* waits) { waits_ = waits; }

  // Observers of calls must outlive the stream, or be removed. Several may be present.
  void add_call_observer(CallObserver& observer) { call_observers_.push_back(&observer); }
  void remove_call_observer(CallObserver& observer) { std::erase(call_observers_, &observer); }
  // Calls `queue_work` between the notifications of the observers.
  template <typename Work>
  void observed(const StreamCall& call, const Work& queue_work) {
    for (CallObserver* observer : call_observers_) observer->begins(*this, call);
    queue_work();
    for (CallObserver* observer : call_observers_) observer->ends(*this, call);
  }

 protected:
  // Returns the event of a point in this stream.
  Event event_at(std::shared_ptr<Event::State> state) const {
    return Event(std::move(state), name_);
  }

 private:
  friend class Range;
  virtual void do_wait(const Event&) = 0;  // the event has a state
  // As capture(); all streams are is_capturing().
  virtual std::unique_ptr<Graph> do_capture(std::span<Stream* const> /*others*/,
                                            const std::function<void()>& /*queue_work*/) {
    return nullptr;
  }
  virtual void do_launch(const Graph&);
  virtual void copy(std::byte* to, const std::byte* from, int64_t bytes) = 0;
  // Forward a range to a profiler; the names are kept here.
  virtual void range_begins(const std::string& /*name*/) {}
  virtual void range_ends() {}

  Device& device_;
  std::shared_ptr<const std::string> name_;  // shared with the stream's events
  Tensor workspace_;
  std::vector<std::string> ranges_;
  kernels::OpObserver* observer_ = nullptr;
  WaitWatch* waits_ = nullptr;
  std::vector<CallObserver*> call_observers_;
  std::vector<std::function<void()>>* host_work_ = nullptr;  // receives at_launch()
};

// Names the work that is queued during its lifetime, for profilers and traces. Ranges nest.
class Range {
 public:
  Range(Stream& stream, std::string name) : stream_(stream) {
    stream_.ranges_.push_back(std::move(name));
    stream_.range_begins(stream_.ranges_.back());
  }
  ~Range() {
    stream_.range_ends();
    stream_.ranges_.pop_back();
  }
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;

 private:
  Stream& stream_;
};

class Device {
 public:
  Device(std::string name, const kernels::Kernels& kernels, int64_t budget_bytes)
      : name_(std::move(name)), kernels_(kernels), ledger_(budget_bytes) {}
  virtual ~Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const std::string& name() const { return name_; }
  const kernels::Kernels& kernels() const { return kernels_; }
  Ledger& ledger() { return ledger_; }
  // The ledger of host memory. It has no budget and is never frozen.
  Ledger& host_ledger() { return host_ledger_; }

  // Makes this the current device of the calling thread. Every thread that uses a stream of the
  // device must call it first, except the one that created the device: the default device of a
  // thread is the first GPU, and a call that waits for another GPU's stream would create a context
  // there, some 500 MiB that no prediction includes. Any thread, any number of times. Does nothing
  // on a CPU.
  virtual void use_on_this_thread() {}

  // The stream must be destroyed before the device.
  virtual std::unique_ptr<Stream> make_stream(std::string name) = 0;
  // Returns a stream whose work never blocks the host, also on a device that runs work inline: for
  // messages, which wait for their peer.
  virtual std::unique_ptr<Stream> make_side_stream(std::string name) {
    return make_stream(std::move(name));
  }
  // Zeroed. Counted in host_ledger() while it lives.
  HostBuffer make_host_buffer(Mem, int64_t bytes, std::string_view what);

  // Returns the bytes that new Buffers can still allocate, from the budget or from the driver.
  virtual int64_t available_bytes() { return ledger_.available(); }
  // Are copies to and from other host memory slow, or do they block the host? Then such memory is
  // registered (device/host_registration.h).
  virtual bool registers_host_memory() const { return false; }

 private:
  friend class Buffer;
  friend class HostRegistration;
  // Page-locks host memory of a caller; throws OutOfMemory, DeviceError.
  virtual void register_host(std::span<std::byte> /*memory*/) {}
  virtual void unregister_host(std::byte* /*memory*/) noexcept {}
  // Returns at least `bytes` bytes (> 0), aligned to the grain; throws OutOfMemory.
  virtual std::byte* allocate(int64_t bytes) = 0;
  virtual void release(std::byte* data, int64_t bytes) noexcept = 0;
  // Returns zeroed memory, never null, aligned to 64 bytes; pageable unless the back end overrides
  // it.
  virtual HostBuffer::Memory allocate_host(int64_t bytes);

  std::string name_;
  const kernels::Kernels& kernels_;
  Ledger ledger_, host_ledger_;
};

}  // namespace trireme::device
