// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/nccl_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "base/system/start_thread.h"
#include "device/stream_number.h"

namespace trireme::comm {
namespace {

constexpr auto busy_pause = std::chrono::milliseconds(5);
constexpr auto idle_pause = std::chrono::milliseconds(100);
// All groups together may take this long to abort. What comes on top is the capture of a step and
// the preparation of its graph, which cannot be interrupted, and calls that the GPU still ends one
// after the other: a kernel waits for its peer for about 10 ms before it looks whether it is
// aborted, longer where processes share the GPU, and hundreds of them may be queued.
constexpr double abort_seconds = 2;
constexpr auto abort_pause = std::chrono::milliseconds(20);

}  // namespace

NcclWatch::NcclWatch(ProcessWorld& world, device::CudaDevice& device)
    : world_(world), device_(device) {
  device_.set_check([&world] { world.throw_if_aborted(); });
  thread_ = base::start_thread("that watches NCCL", [this] { serve(); });
  // It only notifies the thread: aborting communicators takes time, and other waiters must be
  // woken.
  wake_.emplace(world_, [this] {
    {
      const std::scoped_lock lock(mutex_);
      is_aborted_ = true;
    }
    changed_.notify_all();
  });
}

NcclWatch::~NcclWatch() {
  wake_.reset();
  {
    const std::scoped_lock lock(mutex_);
    is_stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
  device_.set_check(nullptr);
}

void NcclWatch::add(std::shared_ptr<NcclHandle> handle) {
  const std::scoped_lock lock(mutex_);
  if (is_aborted_) handle->abort();
  handles_.push_back(std::move(handle));
}

void NcclWatch::remove(const NcclHandle& handle) {
  const std::scoped_lock lock(mutex_);
  std::erase_if(handles_, [&](const auto& one) { return one.get() == &handle; });
}

void NcclWatch::prepare_ticks(const device::CudaStream& stream) {
  if (ticks_.contains(&stream)) return;
  ticks_.emplace(&stream,
                 Ticks{device_.make_host_buffer(device::Mem::comm, sizeof(int64_t), "ticks")});
}

void NcclWatch::watch(const device::CudaStream& stream, int64_t record_id, double deadline_s) {
  Ticks& ticks = ticks_.at(&stream);
  ticks.expected += 2;
  {
    const std::scoped_lock lock(mutex_);
    arriving_.push_back({.record_id = record_id,
                         .deadline_s = deadline_s,
                         .ticks = ticks.number(),
                         .begin_tick = ticks.expected - 1,
                         .end_tick = ticks.expected});
  }
  changed_.notify_all();
}

void NcclWatch::tick(device::CudaStream& stream, Tick which) {
  const auto ticks = ticks_.find(&stream);
  TRIREME_CHECK(ticks != ticks_.end(), "the first call on stream '{}' is captured", stream.name());
  const Ticks& of = ticks->second;
  if (stream.is_capturing()) {
    device::add_in_order(stream, of.number());
  } else {
    device::set_in_order(stream, of.number(), of.expected - (which == Tick::begin ? 1 : 0));
  }
}

bool NcclWatch::has_begun(const Flight& flight) {
  return device::read_number(flight.ticks) >= flight.begin_tick;
}

bool NcclWatch::has_ended(const Flight& flight) {
  return device::read_number(flight.ticks) >= flight.end_tick;
}

void NcclWatch::serve() {
  bool is_over = false;
  try {
    device_.use_on_this_thread();
  } catch (const std::exception& error) {
    world_.abort(world_.own_verdict(VerdictKind::failed, error.what()));
    is_over = true;
  }
  while (!is_over) {
    {
      std::unique_lock lock(mutex_);
      const auto pause = watched_.empty() && arriving_.empty() ? idle_pause : busy_pause;
      changed_.wait_for(lock, pause, [this] { return is_aborted_ || is_stopping_; });
      is_over = is_aborted_ || is_stopping_;
      for (Flight& flight : arriving_) watched_.push_back({std::move(flight), {}});
      arriving_.clear();
      if (is_aborted_) break;
    }
    try {
      if (is_over) {
        look_at_flights();  // records calls that are complete by now
      } else {
        look();
      }
    } catch (const base::CommAborted&) {  // the run is aborted already
      is_over = true;
    } catch (const std::exception& error) {
      world_.abort(world_.own_verdict(VerdictKind::failed, error.what()));
      is_over = true;
    }
  }
  if (world_.is_aborted()) abort_all();
}

void NcclWatch::look() {
  look_at_flights();
  std::vector<std::shared_ptr<NcclHandle>> handles;
  {
    const std::scoped_lock lock(mutex_);
    handles = handles_;
  }
  for (const auto& handle : handles) {
    const std::string problem = handle->async_error();
    if (problem.empty()) continue;
    base::log_warning("rank {}: NCCL reports: {}", world_.info().rank, problem);
    world_.fail(ProcessWorld::Failure::connection, problem, handle->deadline_s());
  }
}

void NcclWatch::look_at_flights() {
  FlightRecorder& recorder = world_.recorder();
  double passed_deadline = 0;
  std::erase_if(watched_, [&](Watched& one) {
    if (!one.begun) {
      if (!has_begun(one.flight)) return false;
      one.begun = Clock::now();
      recorder.started(one.flight.record_id);
    }
    if (!has_ended(one.flight)) {
      const std::chrono::duration<double> taken = Clock::now() - *one.begun;
      if (taken.count() >= one.flight.deadline_s) passed_deadline = one.flight.deadline_s;
      return false;
    }
    recorder.completed(one.flight.record_id);
    return true;
  });
  if (passed_deadline > 0) {
    world_.fail(ProcessWorld::Failure::deadline, "NCCL's kernel did not complete", passed_deadline);
  }
}

size_t NcclWatch::abort_together(const std::vector<std::shared_ptr<NcclHandle>>& handles) {
  struct Progress {
    std::mutex mutex;
    std::condition_variable changed;
    size_t left;
  };
  const auto progress = std::make_shared<Progress>();
  progress->left = handles.size();
  for (const auto& handle : handles) {
    const auto abort = [handle, progress] {
      handle->abort();
      const std::scoped_lock lock(progress->mutex);
      --progress->left;
      progress->changed.notify_all();
    };
    try {
      std::thread(abort).detach();
    } catch (const std::system_error& error) {
      base::log_warning("NCCL's groups are aborted one after the other: {}", error.what());
      abort();
    }
  }
  auto begin = Clock::now();
  size_t moves = 0;
  while (true) {
    {
      std::unique_lock lock(progress->mutex);
      if (progress->changed.wait_for(lock, abort_pause, [&] { return progress->left == 0; }) ||
          seconds_since(begin) >= abort_seconds) {
        return progress->left;
      }
    }
    device_.destroy_graphs();
    const size_t moves_before = std::exchange(moves, count_moves());
    if (moves != moves_before || device_.is_preparing_graph()) begin = Clock::now();
  }
}

size_t NcclWatch::count_moves() {
  {
    const std::scoped_lock lock(mutex_);
    for (Flight& flight : arriving_) watched_.push_back({std::move(flight), {}});
    arriving_.clear();
  }
  size_t moves = 0;
  for (const Watched& one : watched_) {
    moves += (has_begun(one.flight) ? 1U : 0U) + (has_ended(one.flight) ? 1U : 0U);
  }
  return moves;
}

void NcclWatch::abort_all() noexcept {
  // An aborted kernel goes on to signal its peers, without data: by then no rank may be about to
  // change what it keeps.
  world_.await_abort_flags();
  std::vector<std::shared_ptr<NcclHandle>> handles;
  {
    const std::scoped_lock lock(mutex_);
    is_aborted_ = true;
    handles = handles_;
  }
  // A thread that captures a step throws at its next call, as long as its group exists.
  const auto begin = Clock::now();
  while (device_.is_capturing() && seconds_since(begin) < abort_seconds) {
    std::this_thread::sleep_for(busy_pause);
  }
  size_t left = handles.size();
  try {
    left = abort_together(handles);
  } catch (const std::exception& error) {  // the GPU has failed: no group on it ends
    base::log(base::LogLevel::error, error.what());
  }
  if (left > 0) {
    base::log(base::LogLevel::error,
              fmt::format(
                  "rank {}: NCCL has not ended {} of {} groups after {} s in which nothing moved; "
                  "the process ends itself",
                  world_.info().rank, left, handles.size(), abort_seconds));
    world_.count_ended_by_budget();
    std::_Exit(1);
  }
  for (const Watched& one : watched_) world_.recorder().failed(one.flight.record_id);
}

}  // namespace trireme::comm
