// SPDX-License-Identifier: Apache-2.0
// Device, Stream, Event: where work runs, in what order, and how one order waits for another.
//
// A Stream is a first-in first-out queue of kernels and copies. Work on two streams is ordered only
// by events. The host may run ahead of any stream; host memory given to upload() or download() must
// stay valid until the stream has passed that point.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "device/ledger.h"
#include "device/tensor.h"

namespace trireme::kernels {
struct Kernels;
class OpObserver;
}  // namespace trireme::kernels

namespace trireme::device {

class Device;

// A point in a stream's queue. Copies denote the same point. A default-constructed event has always
// happened.
class Event {
 public:
  class State {
   public:
    virtual ~State() = default;
  };

  Event() = default;
  explicit Event(std::shared_ptr<State> state) : state_(std::move(state)) {}
  State* state() const { return state_.get(); }
  // Shared because recorder and waiters may each be the last to need the point.
  const std::shared_ptr<State>& shared() const { return state_; }

 private:
  std::shared_ptr<State> state_;
};

class Stream {
 public:
  Stream(Device& device, std::string name) : device_(device), name_(std::move(name)) {}
  virtual ~Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  Device& device() const { return device_; }
  const std::string& name() const { return name_; }

  virtual Event record() = 0;           // the point after all work queued so far
  virtual void wait(const Event&) = 0;  // later work on this stream starts after the event; the
                                        // host does not wait
  virtual void synchronize() = 0;       // the host waits until the queue is empty

  // Contiguous tensors only; sizes must be equal.
  void upload(Tensor to, std::span<const std::byte> from);
  void download(std::span<std::byte> to, ConstTensor from);

  // Told of every operation that the fronts in kernels/ops.h send here. Null: nobody. Not owned.
  kernels::OpObserver* observer() const { return observer_; }
  void set_observer(kernels::OpObserver* observer) { observer_ = observer; }

 private:
  virtual void copy(std::byte* to, const std::byte* from, int64_t bytes) = 0;

  Device& device_;
  std::string name_;
  kernels::OpObserver* observer_ = nullptr;
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

  // The stream must be destroyed before the device.
  virtual std::unique_ptr<Stream> make_stream(std::string name) = 0;

 private:
  friend class Buffer;
  // At least `bytes` bytes (> 0) on a multiple of the grain; throws OutOfMemory.
  virtual std::byte* allocate(int64_t bytes) = 0;
  virtual void release(std::byte* data, int64_t bytes) noexcept = 0;

  std::string name_;
  const kernels::Kernels& kernels_;
  Ledger ledger_;
};

}  // namespace trireme::device
