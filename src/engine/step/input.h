// SPDX-License-Identifier: Apache-2.0
// Transfer of micro-batches from the host to the device.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "device/device.h"
#include "device/memory.h"
#include "device/wait_watch.h"
#include "nn/layer.h"
#include "spec/facts/facts.h"

namespace trireme::engine {

// One micro-batch in host memory: a flat stream of T tokens, cut into sequences.
struct HostMicrobatch {
  std::span<int32_t> tokens;       // [T]
  std::span<int32_t> labels;       // [T]; negative: the token has no loss (base/token_label.h)
  std::span<int32_t> positions;    // [T], within the sequence; below seq_len
  std::span<int32_t> seq_offsets;  // [T + 1]: first 0, non-decreasing, last T; pad with T
};

// Fills in positions and offsets of `sequences` equal sequences, without document boundaries.
void set_equal_sequences(const HostMicrobatch&, int64_t sequences, int64_t seq_len);

// The source of micro-batches. Called on the thread that calls the engine.
class MicrobatchSource {
 public:
  virtual ~MicrobatchSource() = default;
  // Fills all of `out` with micro-batch `index` (0 .. accumulation - 1) of the current step.
  virtual void fill(int index, const HostMicrobatch& out) = 0;
  // Returns the sum, modulo 2^64, of base::hash_of(id) over the samples of micro-batch `index`; 0
  // if samples have no ids. REQUIRES: fill(index) was called.
  virtual uint64_t sample_hash(int /*index*/) const { return 0; }
};

struct Microbatch {
  device::ConstTensor tokens, labels, positions, seq_offsets;
  nn::ContextKeys keys;  // if groups along cp share its rows
};

// Host and device memory for all micro-batches of one step, double-buffered: the copy stream
// uploads a step's batches into `landing_` while the compute stream still works on the previous
// step; then the compute stream copies them into `current_`.
class InputStaging {
 public:
  // `cp_rank`: of this rank, which stages its rows of every micro-batch (spec::rank_rows).
  InputStaging(device::Device&, device::Arena&, const spec::LocalShape&, int microbatches,
               int64_t vocab, int cp_rank = 0);

  // Calls the source for micro-batches [0, count), checks them and queues their upload. The host
  // waits for the previous upload, not for the compute stream. Throws ConfigError if a token,
  // label, position or offset is out of range.
  void load(MicrobatchSource&, int count);
  // Queues on `compute` a wait for the upload and the copy of the batches.
  void take(device::Stream& compute, int count);
  // Queues the copy of the sum of the micro-batches' sample hashes and of their numbers of masked
  // and padding tokens, on all ranks along cp, into `to` (spec::batch_counts_spec()).
  void take_counts(device::Stream& compute, device::Tensor to);

  // Returns the rows of the micro-batch that this rank staged last, and the (query, key) pairs of
  // each group along cp.
  const spec::Rows& rows(int index) const { return rows_[static_cast<size_t>(index)]; }
  const std::vector<int64_t>& pairs(int index) const { return pairs_[static_cast<size_t>(index)]; }

  // Returns how many (query, key) pairs of one head this rank computes, or its share of them if it
  // has some heads of all rows.
  int64_t own_pairs(int index) const;

  // Returns the offsets of the whole micro-batch that were staged last.
  std::span<const int32_t> host_offsets(int index) const {
    return host_batches_[static_cast<size_t>(index)].seq_offsets;
  }

  device::Stream& stream() { return *copy_; }  // of uploads

  const Microbatch& batch(int index) const { return batches_[static_cast<size_t>(index)]; }

 private:
  void check(int index, const HostMicrobatch&) const;
  // Copies this rank's rows of whole_ to the staged arrays of a micro-batch, and computes its keys.
  void slice(int index);
  void know_chunks();  // without documents the host knows all keys
  int own_group() const { return cp_rank_ / split_.ulysses; }

  spec::LocalShape shape_;
  spec::ContextSplit split_;
  int cp_rank_;
  int64_t vocab_;
  int64_t batch_bytes_ = 0;  // one micro-batch
  device::HostBuffer host_;
  std::unique_ptr<device::Stream> copy_;  // declared after host_: its destructor ends the uploads
  device::Tensor landing_, current_;      // flat; counts, then micro-batches one after the other
  std::vector<HostMicrobatch> host_batches_;
  // ---- with several ranks along cp
  std::array<std::vector<int32_t>, 3> whole_;  // tokens, labels, positions of all rows
  struct HostKeys {
    std::span<int32_t> begin, end, order;
  };
  std::vector<HostKeys> host_keys_;  // by micro-batch; empty spans where there are none
  std::vector<std::vector<kernels::QueryChunk>> chunks_;  // by source of keys, the same for all
  std::vector<spec::Rows> rows_;                          // by micro-batch
  std::vector<std::vector<int64_t>> pairs_;
  std::vector<Microbatch> batches_;  // views of current_
  device::Event arrived_;            // on the copy stream
  device::Event taken_;              // on the compute stream
};

}  // namespace trireme::engine
