// SPDX-License-Identifier: Apache-2.0
// Snapshot: copies an engine's state to host memory while the next step computes. A side stream
// downloads it, and the next update waits until that is done. What becomes of the memory is the
// caller's business: a file of a checkpoint (checkpointer.h), or a copy in memory that outlives the
// process (memory/memory_copies.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "device/device.h"
#include "device/memory.h"
#include "engine/engine.h"
#include "kernels/args.h"
#include "train/checkpointing/saved_state.h"

namespace trireme::train {

class Snapshot {
 public:
  // `copies`: what is copied, and where to; the same every time. The engine must outlive it.
  // `has_sums`: the device also adds up what is copied (kernels::ContentSumArgs), for which the
  // copies must lie at multiples of 16 bytes; its memory is taken from the device.
  Snapshot(engine::Engine&, device::Device&, std::string name, std::vector<StagedCopy> copies,
           bool has_sums = false);

  // Timed points of the side stream, for Stream::seconds_between().
  struct Span {
    device::Event begin, end;
  };
  // Begins to copy the state as it is after all queued work, and returns when that runs. REQUIRES:
  // the memory has bytes(), and stays until wait() has returned or this object is destroyed.
  // `other`: a snapshot that was begun since the last step, which the next update then waits for,
  // too; null: none. `sum`: memory of one base::ContentSum, which receives that of the state on the
  // device, and stays as long; null: not wanted. REQUIRES: has_sums for that.
  Span begin(std::byte* memory, const Snapshot* other = nullptr, std::byte* sum = nullptr);
  // Waits until all copies have run. May be called on a thread that has called
  // device().use_on_this_thread(). Throws what has become of the device's work.
  void wait() { stream_->synchronize(); }
  // REQUIRES: wait() has returned since that begin().
  double seconds(const Span& span) const { return stream_->seconds_between(span.begin, span.end); }
  // Returns how long the engine waited for this copy before it changed state; 0: it has not come to
  // that yet, and will not wait. REQUIRES: it was the last begin(), and wait() has returned since.
  double exposed_seconds(const Span& span) const;
  // Brings what was copied into the file's format, after wait(). See StagedCopy::finish().
  void finish(std::byte* memory, std::span<std::byte> workspace) const;

  int64_t bytes() const;  // from the beginning of the memory to the end of the last copy
  device::Device& device() const { return stream_->device(); }

 private:
  // The sums of what is copied on compute, and of the rest.
  struct Sums {
    device::Buffer memory;
    kernels::ContentSumArgs own, others;
  };
  Sums make_sums(device::Device&) const;

  engine::Engine& engine_;
  const std::vector<StagedCopy> copies_;
  std::optional<Sums> sums_;
  std::unique_ptr<device::Stream> stream_;
  device::Event copied_;  // of the last begin()
};

}  // namespace trireme::train
