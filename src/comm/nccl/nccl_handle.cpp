// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/nccl_handle.h"

#include <fmt/format.h>

#include <atomic>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "comm/clock.h"

namespace trireme::comm {
namespace {

// finish() waits this long for work in progress.
constexpr double finish_seconds = 2;

// Most calls are enqueued within tens of microseconds; the first of a group connects ranks.
void pause(Clock::time_point begin) {
  if (seconds_since(begin) < 1e-3) {
    std::this_thread::yield();
  } else {
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

}  // namespace

NcclHandle::NcclHandle(ProcessWorld& world, std::string name, double deadline_s)
    : world_(world), name_(std::move(name)), deadline_s_(deadline_s) {}

NcclHandle::~NcclHandle() = default;

void NcclHandle::throw_if_aborted() const {
  if (!is_ending_) return;
  world_.throw_if_aborted();
  throw base::CommAborted(fmt::format("group '{}' has ended", name_));
}

std::string NcclHandle::text_of(const char* what, ncclResult_t result) const {
  const char* last = ncclGetLastError(comm_);
  return fmt::format("group '{}', {}: {}{}{}", name_, what, ncclGetErrorString(result),
                     last == nullptr || last[0] == '\0' ? "" : ": ", last == nullptr ? "" : last);
}

void NcclHandle::run(const char* what, const Issue& issue, Waits waits) {
  world_.throw_if_aborted();
  const auto begin = Clock::now();
  ncclResult_t result = ncclInProgress;
  std::string problem;
  bool is_issued = false;
  // The library may report a split as complete and be at work on the parent once more: it refuses a
  // call meanwhile.
  const auto advance = [&] {
    const std::scoped_lock lock(mutex_);
    throw_if_aborted();
    if (comm_ != nullptr) {
      const ncclResult_t asked = ncclCommGetAsyncError(comm_, &result);
      if (asked != ncclSuccess) result = asked;
    }
    if (!is_issued && (comm_ == nullptr || result == ncclSuccess)) {
      is_issued = true;
      result = issue(comm_);
    }
    if (result != ncclSuccess && result != ncclInProgress) problem = text_of(what, result);
  };
  advance();
  while (problem.empty() && result == ncclInProgress) {
    if (seconds_since(begin) >= deadline_s_) {
      world_.fail(ProcessWorld::Failure::deadline, fmt::format("in {}", what), deadline_s_);
    }
    if (waits == Waits::connecting) world_.throw_if_ended();
    pause(begin);
    advance();
  }
  if (!problem.empty()) {
    world_.fail(ProcessWorld::Failure::connection, problem, deadline_s_);
  }
}

void NcclHandle::connect(const ncclUniqueId& id, int rank, int ranks, ncclConfig_t& config) {
  run(
      "ncclCommInitRankConfig",
      [&](ncclComm_t& comm) {
        const ncclResult_t result = ncclCommInitRankConfig(&arriving_, ranks, id, rank, &config);
        comm = arriving_;  // set at once, and written again when all ranks are connected
        return result;
      },
      Waits::connecting);
}

void NcclHandle::adopt() {
  // The library may report the parent as ready before it has written the new communicator.
  const auto begin = Clock::now();
  const std::atomic_ref<ncclComm_t> arriving(arriving_);
  while (arriving.load() == nullptr) {
    world_.throw_if_ended();
    if (seconds_since(begin) >= deadline_s_) {
      world_.fail(ProcessWorld::Failure::deadline, "in ncclCommSplit", deadline_s_);
    }
    pause(begin);
  }
  {
    const std::scoped_lock lock(mutex_);
    throw_if_aborted();
    comm_ = arriving_;
  }
  run(
      "ncclCommSplit",
      [](ncclComm_t& comm) {
        ncclResult_t state = ncclSuccess;
        const ncclResult_t asked = ncclCommGetAsyncError(comm, &state);
        return asked == ncclSuccess ? state : asked;
      },
      Waits::connecting);
}

std::string NcclHandle::async_error() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() || is_ending_ || comm_ == nullptr) return {};
  ncclResult_t result = ncclSuccess;
  const ncclResult_t asked = ncclCommGetAsyncError(comm_, &result);
  if (asked != ncclSuccess) result = asked;
  if (result == ncclSuccess || result == ncclInProgress) return {};
  return text_of("work in progress", result);
}

void NcclHandle::abort() noexcept {
  std::unique_lock lock(mutex_);
  if (std::exchange(is_ending_, true)) {
    ended_.wait(lock, [this] { return has_ended_; });
    return;
  }
  // A split that the library has completed, but adopt() has not adopted yet, belongs to this
  // handle.
  if (comm_ == nullptr) comm_ = std::atomic_ref<ncclComm_t>(arriving_).exchange(nullptr);
  const ncclComm_t comm = std::exchange(comm_, nullptr);
  // Without the lock: the library waits for graphs that hold this communicator, and a thread that
  // is capturing one destroys it when run() throws.
  lock.unlock();
  if (comm != nullptr) ncclCommAbort(comm);
  lock.lock();
  has_ended_ = true;
  ended_.notify_all();
}

void NcclHandle::finish() noexcept {
  const auto begin = Clock::now();
  std::unique_lock lock(mutex_);
  if (is_ending_ || comm_ == nullptr) return;
  is_ending_ = true;
  ncclResult_t result = ncclCommFinalize(comm_);
  while (result == ncclInProgress && seconds_since(begin) < finish_seconds) {
    pause(begin);
    if (ncclCommGetAsyncError(comm_, &result) != ncclSuccess) break;
  }
  if (result == ncclSuccess) {
    ncclCommDestroy(std::exchange(comm_, nullptr));
  } else {
    // Peers may have left, or never entered the calls in progress here.
    ncclCommAbort(std::exchange(comm_, nullptr));
  }
  has_ended_ = true;
  ended_.notify_all();
}

}  // namespace trireme::comm
