// SPDX-License-Identifier: Apache-2.0
// MemoryCopies: keeps copies of this rank's training state in memory that outlives its process
// (ckpt/memory/copy_memory.h), so that a process that replaces it, and ranks that have gone
// further, continue from a step of which every rank has a copy.
//
// A copy is made like a save: a Snapshot downloads the state into a sink, a buffer of that memory
// (ckpt/memory/copy_sink.h), while the next step computes, and a thread seals it with the hash that
// the device has computed of the source. Before each copy the ranks exchange which steps they have
// sealed, so a buffer is overwritten only when all of them hold a newer step; otherwise the copy is
// skipped, on all ranks. A slow rank costs freshness, never time.
//
// With several nodes each sealed copy is also sent to a rank on another one, which keeps it
// (train/checkpointing/peer/). The next copy waits until all have arrived, or failed.
//
// On a GPU the memory is page-locked first: transfers to other memory block the host. That takes
// seconds, so the thread does it beside the steps after the first one, and copies begin when all
// ranks have it. If one of them cannot have it, no rank makes copies.
//
// A copy is sealed only if the ranks were not aborted by the time it was complete: an aborted call
// may have left garbage in the state. Which copies a later epoch trusts: resume_point()
// (train/run/state/epoch_state.h).
#pragma once

#include <atomic>
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
#include "device/host_registration.h"
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
  double device_seconds = 0;   // of `timed` copies on the device
  int64_t timed = 0;
  int64_t interval = 0;  // steps, at the end
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
  };
  explicit MemoryCopies(const Parts&);
  ~MemoryCopies();  // waits for the thread

  // The run continues after `step` (-1: it starts) in this epoch: copies of later steps, or of
  // another run, are emptied. Before the first copy(), on all ranks before any of them makes a
  // step. Collective.
  void begin(const std::string& run, int64_t epoch, int64_t step);

  // Is a copy to be made after this step? The same on all ranks.
  bool is_due(int64_t step) const { return !is_off_ && step >= next_step_; }
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
  // Waits until copies can be made, or never will; begins what they need. For measurements.
  void prepare();
  bool is_off() const { return is_off_; }  // a rank cannot make copies
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
    Snapshot::Span span;
  };
  // How far the buffers are prepared for downloads.
  enum class Readiness : uint8_t { none, requested, ready, failed };

  ckpt::CopySteps steps();
  CopySender::State sender_state();  // of the last sends; their totals are added to the figures
  // Returns how long the last copy has delayed a step, at most: the host until it was begun, and
  // the update that waited for it.
  double exposed_seconds();
  void begin_copy(const Point&, int buffer, std::optional<int64_t> keep);
  void mark_held(std::optional<int64_t> step);
  Readiness request_buffers();  // returns how ready they are
  void work();                  // on the thread, and what follows
  void register_buffers();
  void seal(Job&);
  std::byte* sum_of(int buffer) const;  // of a ContentSum
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
  device::HostRegistration registration_;
  device::HostBuffer sums_;  // of the state on the device, by buffer
  Snapshot snapshot_;        // destroyed before the memory that it copies to
  Snapshot::Span last_;      // of the last copy
  bool is_off_ = false;
  std::string run_;
  int64_t epoch_ = 0;
  int64_t next_step_ = 0;
  double blocked_seconds_ = 0;  // the host, by the last copy on this rank
  std::mutex mutex_;            // guards all below
  std::condition_variable changed_;
  std::vector<Buffer> buffers_;
  std::deque<Job> jobs_;
  bool is_working_ = false;
  std::atomic<bool> is_ended_ = false;  // also read without the mutex
  Readiness readiness_;
  std::string problem_;
  int64_t failed_ = 0;
  double copy_seconds_ = 0;  // of the last copy on the device
  std::thread thread_;
};

}  // namespace trireme::train
