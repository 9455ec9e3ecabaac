// SPDX-License-Identifier: Apache-2.0
// Sink: a place that receives the state of one rank after one step: a file of a checkpoint
// (generation/file_sink.h), or a copy in memory (memory/copy_sink.h). It does not know what the
// bytes mean, nor what other ranks have: a commit decides whether what all of them have sealed
// becomes a checkpoint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "ckpt/disk/hash.h"

namespace trireme::ckpt {

// What a sink has sealed.
struct Receipt {
  int64_t bytes = 0;        // of the content
  int64_t index_bytes = 0;  // of the index beside it, which has the hashes of its parts; 0: none
  Hash hash;                // of the index; without one, of the content
  bool operator==(const Receipt&) const = default;
};

// Calls come in the order begin(), write(), seal(), on any threads, one at a time. Each of them
// throws if the state cannot be stored; the sink is then given up. Until seal() has returned,
// readers find no state in this place.
class Sink {
 public:
  Sink() = default;
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;
  virtual ~Sink() = default;

  // Reserves the place. What it contained before is lost.
  void begin() {
    enter(State::created, State::begun);
    do_begin();
  }
  // Stores the complete content, which must not change until seal() has returned.
  void write(std::span<const std::byte> content) {
    enter(State::begun, State::written);
    do_write(content);
  }
  // Makes the content valid for readers, with its hash.
  Receipt seal() {
    enter(State::written, State::sealed);
    return do_seal();
  }

 private:
  enum class State : uint8_t { created, begun, written, sealed };
  void enter(State from, State to) {
    TRIREME_CHECK(state_ == from, "call {} of a sink after call {}", static_cast<int>(to),
                  static_cast<int>(state_));
    state_ = to;
  }
  virtual void do_begin() = 0;
  virtual void do_write(std::span<const std::byte> content) = 0;
  virtual Receipt do_seal() = 0;

  State state_ = State::created;
};

}  // namespace trireme::ckpt
