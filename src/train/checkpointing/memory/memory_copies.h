// SPDX-License-Identifier: Apache-2.0
// MemoryCopies: keeps copies of this rank's training state in memory that outlives its process
// (ckpt/memory/copy_memory.h), so that a process that replaces it, and ranks that have gone
// further, continue from a step of which every rank has a copy.
//
// A copy is made like a save: a Snapshot downloads the state while the next step computes, and a
// thread writes it into a sink, a buffer of that memory (ckpt/memory/copy_sink.h), which hashes and
// seals it. Before each copy the ranks exchange which steps they
// have sealed, so a buffer is overwritten only when all of them hold a newer step; otherwise the
// copy is skipped, on all ranks. A slow rank costs freshness, never time.
//
// With several nodes each sealed copy is also sent to a rank on another one, which keeps it
// (train/checkpointing/peer/). The next copy waits until all have arrived, or failed.
//
// On a GPU the Snapshot goes through page-locked memory of one copy, from which the thread fills
// the buffer: transfers to other memory block the host.
//
// A copy is sealed only if the ranks were not aborted by the time it was complete: an aborted call
// may have left garbage in the state. Which copies a later epoch trusts: resume_point()
// (train/run/state/epoch_state.h).
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ckpt/generation/folder.h"
#include "ckpt/memory/copy_memory.h"
#include "ckpt/memory/copy_round.h"
#include "ckpt/memory/copy_sink.h"
#include "engine/engine.h"
#include "train/checkpointing/memory/copy_pace.h"
#include "train/checkpointing/peer/peer_copies.h"
#include "train/checkpointing/snapshot.h"
#include "train/run/state/copied_state.h"
#include "train/run/state/epoch_state.h"
#include "train/setup/rank.h"

namespace trireme::train {

// Totals over all copies of an attempt, in this process.
struct CopyFigures {
  int64_t copies = 0, skipped = 0, failed = 0;
  double exposed_seconds = 0;  // for which copies delayed steps; at most
  int64_t interval = 0;        // steps, at the end
  // To the rank that keeps them. Those of the last copy may be missing.
  int64_t sent = 0, sent_bytes = 0, send_failed = 0;
};

class MemoryCopies {
 public:
  // All references must outlive it.
  struct Parts {
    engine::Engine& engine;
    const spec::ModelSpec& model;
    Rank& rank;
    device::Device& device;
    ckpt::CopyMemory& memory;
    CopyPace& pace;               // of the attempt
    CopyFigures& figures;         // likewise
    PeerCopies* peers = nullptr;  // null: copies are sent to no other rank
    bool is_staged = false;       // through memory of the device
  };
  explicit MemoryCopies(const Parts&);
  ~MemoryCopies();  // waits for the thread

  // The run continues after `step` (-1: it starts) in this epoch: copies of later steps, or of
  // another run, are emptied. Before the first copy(), on all ranks before any of them makes a
  // step. Collective.
  void begin(const std::string& run, int64_t epoch, int64_t step);

  // Is a copy to be made after this step? The same on all ranks.
  bool is_due(int64_t step) const { return step >= next_step_; }
  struct Point {
    KeptState::Point at;
    std::vector<int> bf16_blocks;
    kernels::StepState step_state;
    double step_seconds = 0;          // of a step, about
    const Snapshot* other = nullptr;  // of the same step, as for Snapshot::begin()
    bool is_complete = true;          // the engine's state is that after the step
  };
  // Exchanges what ranks have sealed, and begins a copy unless they skip it. REQUIRES: is_due().
  // Collective.
  void copy(const Point&);
  // Waits until all copies are sealed, or given up.
  void finish();
  int64_t staging_bytes() const { return staging_ ? staging_->bytes() : 0; }
  // Returns why copies could not be sealed since the last call, each reason once; empty: none.
  std::string problem();
  // Returns which ranks' copies do not reach the rank that keeps them any more, or do so again,
  // since the last call.
  std::vector<PartnerNews> news() { return std::exchange(news_, {}); }

 private:
  enum class State : uint8_t { empty, filling, sealed };
  struct Buffer {
    State state = State::empty;
    int64_t step = ckpt::CopySteps::empty;
  };
  struct Job {
    std::unique_ptr<ckpt::CopySink> sink;
    std::span<const std::byte> content;
    Snapshot::Span span;
  };

  ckpt::CopySteps steps();
  CopySender::State sender_state();  // of the last sends; their totals are added to the figures
  // Returns how long the last copy has delayed a step, at most. Its download runs beside forward
  // and backward, which take more than half of a step.
  double exposed_seconds(double step_seconds);
  void begin_copy(const Point&, int buffer, std::optional<int64_t> keep);
  void mark_held(std::optional<int64_t> step);
  void seal_jobs();  // on the thread
  void seal(Job&);   // likewise
  bool is_aborted() const;

  engine::Engine& engine_;
  Rank& rank_;
  ckpt::CopyMemory& memory_;
  CopyPace& pace_;
  CopyFigures& figures_;
  PeerCopies* const peers_;
  CopySender::State counted_;  // in the figures
  std::vector<PartnerNews> news_;
  const CopyLayout layout_;
  std::optional<device::HostBuffer> staging_;
  Snapshot snapshot_;  // destroyed before the memory that it copies to
  std::string run_;
  int64_t epoch_ = 0;
  int64_t next_step_ = 0;
  double blocked_seconds_ = 0;  // the host, by the last copy on this rank
  std::mutex mutex_;            // guards all below
  std::condition_variable changed_;
  std::vector<Buffer> buffers_;
  std::deque<Job> jobs_;
  bool is_working_ = false, is_ended_ = false;
  std::string problem_;
  int64_t failed_ = 0;
  double copy_seconds_ = 0;  // of the last download
  std::thread thread_;
};

}  // namespace trireme::train
