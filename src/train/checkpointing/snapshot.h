// SPDX-License-Identifier: Apache-2.0
// Snapshot: copies an engine's state to host memory while the next step computes. A side stream
// downloads it, and the next update waits until that is done. What becomes of the memory is the
// caller's business: a file of a checkpoint (checkpointer.h), or a copy in memory that outlives the
// process (memory/memory_copies.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "device/device.h"
#include "engine/engine.h"
#include "train/checkpointing/saved_state.h"

namespace trireme::train {

class Snapshot {
 public:
  // `copies`: what is copied, and where to; the same every time. The engine must outlive it.
  Snapshot(engine::Engine&, device::Device&, std::string name, std::vector<StagedCopy> copies);

  // Timed points of the side stream, for Stream::seconds_between().
  struct Span {
    device::Event begin, end;
  };
  // Begins to copy the state as it is after all queued work, and returns when that runs. REQUIRES:
  // the memory has bytes(), and stays until wait() has returned or this object is destroyed.
  // `other`: a snapshot that was begun since the last step, which the next update then waits for,
  // too; null: none.
  Span begin(std::byte* memory, const Snapshot* other = nullptr);
  // Waits until all copies have run. May be called on a thread that has called
  // device().use_on_this_thread(). Throws what has become of the device's work.
  void wait() { stream_->synchronize(); }
  // REQUIRES: wait() has returned since that begin().
  double seconds(const Span& span) const { return stream_->seconds_between(span.begin, span.end); }
  // Brings what was copied into the file's format, after wait(). See StagedCopy::finish().
  void finish(std::byte* memory, std::span<std::byte> workspace) const;

  int64_t bytes() const;  // from the beginning of the memory to the end of the last copy
  device::Device& device() const { return stream_->device(); }

 private:
  engine::Engine& engine_;
  const std::vector<StagedCopy> copies_;
  std::unique_ptr<device::Stream> stream_;
  device::Event copied_;  // of the last begin()
};

}  // namespace trireme::train
