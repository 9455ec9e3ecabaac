// SPDX-License-Identifier: Apache-2.0
// NcclHandle: one NCCL communicator, non-blocking, so that the host never waits inside the library:
// it polls, and stops when the run is aborted or a deadline passes. The lock orders the library's
// calls and the destruction of the communicator, which another thread may abort.
#pragma once

#include <nccl.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

#include "comm/world/process_world.h"

namespace trireme::comm {

class NcclHandle {
 public:
  // `name` of the group and `deadline_s` of its calls are for messages and verdicts.
  NcclHandle(ProcessWorld& world, std::string name, double deadline_s);
  ~NcclHandle();  // REQUIRES: finish() or abort() was called, if it has a communicator
  NcclHandle(const NcclHandle&) = delete;
  NcclHandle& operator=(const NcclHandle&) = delete;

  double deadline_s() const { return deadline_s_; }

  // Connects the ranks that have the same id. Throws as run() with Waits::connecting.
  void connect(const ncclUniqueId& id, int rank, int ranks, ncclConfig_t& config);
  // Makes one call, or one group of calls, of the library and waits until it has enqueued the work:
  // kernels are then in their streams. Throws CommAborted when the run is aborted, by
  // ProcessWorld::fail() when the library fails or the deadline passes, and while ranks are being
  // connected by ProcessWorld::throw_if_ended().
  using Issue = std::function<ncclResult_t(ncclComm_t& comm)>;
  enum class Waits : uint8_t { enqueueing, connecting };
  void run(const char* what, const Issue& issue, Waits waits = Waits::enqueueing);
  // A split writes its result here, inside run() of the parent; adopt() then takes ownership.
  ncclComm_t* place() { return &arriving_; }
  void adopt();

  // Returns the asynchronous error of the library; empty if there is none. Does not wait.
  std::string async_error();

  // Ends work in progress. Any thread; run() throws from the beginning. Returns when the library
  // has ended the communicator, for which it waits until all graphs are destroyed that captured
  // calls.
  void abort() noexcept;
  // The normal end: waits a short time for work in progress, then destroys the communicator.
  void finish() noexcept;

 private:
  // REQUIRES: mutex_ held
  void throw_if_aborted() const;
  std::string text_of(const char* what, ncclResult_t result) const;

  ProcessWorld& world_;
  const std::string name_;
  const double deadline_s_;
  ncclComm_t arriving_ = nullptr;  // written by the library while ranks are being connected
  std::mutex mutex_;               // guards what follows
  ncclComm_t comm_ = nullptr;
  bool is_ending_ = false, has_ended_ = false;
  std::condition_variable ended_;
};

}  // namespace trireme::comm
