// SPDX-License-Identifier: Apache-2.0
// WaitWatch: marks on a compute stream the spans in which it waits for other ranks, for uploads or
// for a checkpoint, by kind. Code that makes compute wait opens a WaitSpan around it; spans cost
// nothing while the watch is closed. Only the host thread that queues work on the stream uses it.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "device/device.h"

namespace trireme::device {

// What compute waits for: ranks along an axis (data: those that sum gradients and share state;
// closing: all, at the end of a step), the upload of a batch, or a checkpoint that reads the state.
enum class Wait : uint8_t { tp, cp, ep, data, pp, closing, input, save, count };
std::string_view name_of(Wait);

class WaitWatch {
 public:
  explicit WaitWatch(Stream& compute) : compute_(compute) {}

  struct Span {
    Wait wait = Wait::count;
    Event begin, end;
  };

  // Later spans are appended to `spans`, which outlives close(). Open watches are replaced.
  void open(std::vector<Span>& spans) {
    spans_ = &spans;
    is_in_span_ = false;
  }
  void close() { spans_ = nullptr; }

  // Records a timed event on the stream, in one that was given back if there is one.
  Event record();
  // REQUIRES: the stream has reached the event, and there is no other copy of it.
  void give_back(Event event) {
    if (event.state() != nullptr) free_.push_back(std::move(event));
  }

 private:
  friend class WaitSpan;
  bool begin(Wait);  // false: the watch is closed, or another span is open, which contains this one
  void end() noexcept;

  Stream& compute_;
  std::vector<Span>* spans_ = nullptr;  // null: closed
  bool is_in_span_ = false;
  std::vector<Event> free_;
};

// During its lifetime the work that is queued on the compute stream is a wait. Within another span
// it does nothing.
class WaitSpan {
 public:
  // `stream`: the compute stream, or one that runs inline beside it (Stream::waits()). Wait::count:
  // nothing is marked.
  WaitSpan(Stream& stream, Wait wait) : WaitSpan(stream.waits(), wait) {}
  WaitSpan(WaitWatch* watch, Wait wait)
      : watch_(watch != nullptr && wait != Wait::count && watch->begin(wait) ? watch : nullptr) {}
  ~WaitSpan() {
    if (watch_ != nullptr) watch_->end();
  }
  WaitSpan(const WaitSpan&) = delete;
  WaitSpan& operator=(const WaitSpan&) = delete;

 private:
  WaitWatch* watch_;
};

// Makes `compute` wait for the event, as a wait of this kind.
inline void wait_for(Stream& compute, const Event& event, Wait wait) {
  if (event.state() == nullptr) return;
  const WaitSpan span(compute, wait);
  compute.wait(event);
}

}  // namespace trireme::device
