// SPDX-License-Identifier: Apache-2.0
// Micro-batches on their way from the host to the device.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "device/device.h"
#include "device/memory.h"
#include "spec/facts.h"

namespace trireme::engine {

// One micro-batch in host memory: a flat stream of T tokens, cut into sequences.
struct HostMicrobatch {
  std::span<int32_t> tokens;       // [T]
  std::span<int32_t> labels;       // [T]; negative: no loss here
  std::span<int32_t> positions;    // [T], within the sequence; below seq_len
  std::span<int32_t> seq_offsets;  // [T + 1]: first 0, non-decreasing, last T; pad with T
};

// Positions and offsets of `sequences` equal sequences, without document borders.
void set_equal_sequences(const HostMicrobatch&, int64_t sequences, int64_t seq_len);

// Where batches come from. Called on the thread that calls the engine.
class MicrobatchSource {
 public:
  virtual ~MicrobatchSource() = default;
  // Fills all of `out` with micro-batch `index` (0 .. accumulation - 1) of the current step.
  virtual void fill(int index, const HostMicrobatch& out) = 0;
};

struct Microbatch {
  device::ConstTensor tokens, labels, positions, seq_offsets;
};

// Host and device memory for all micro-batches of one step. Uploads run on the copy stream, after
// everything that the compute stream still does with the previous step's batches.
class InputStaging {
 public:
  InputStaging(device::Device&, device::Arena&, const spec::LocalShape&, int microbatches,
               int64_t vocab);

  // Asks the source for micro-batches [0, count), checks them and queues their upload; `compute`
  // waits for each only through the event that batch() returns. Throws ConfigError when a token,
  // label, position or offset is out of range.
  void load(MicrobatchSource&, int count, device::Stream& compute);

  const Microbatch& batch(int index) const { return device_[static_cast<size_t>(index)]; }
  const device::Event& ready(int index) const { return ready_[static_cast<size_t>(index)]; }

 private:
  void check(int index, const HostMicrobatch&) const;

  spec::LocalShape shape_;
  int64_t vocab_;
  std::unique_ptr<device::Stream> copy_;
  std::vector<std::vector<int32_t>> host_;  // four arrays per micro-batch
  std::vector<std::vector<device::Tensor>> tensors_;
  std::vector<Microbatch> device_;
  std::vector<device::Event> ready_;
};

}  // namespace trireme::engine
