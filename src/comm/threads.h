// SPDX-License-Identifier: Apache-2.0
// Ranks as threads of one process. Tensors may be in host memory (CpuDevice, inline or worker
// streams) or in the memory of one GPU that the ranks share; each rank has its device and streams.
// Not inside Stream::capture(): the streams of several ranks cannot be captured as one.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "comm/communicator.h"

namespace trireme::comm {

// The state that the ranks of one world share. Must outlive its communicators and the work that
// they queued. All its groups are aborted together.
class ThreadWorld {
 public:
  // `deadline_s` bounds the deadlines of all its groups.
  explicit ThreadWorld(int ranks, double deadline_s = 600);
  ~ThreadWorld();

  int ranks() const;
  FlightRecorder& recorder(int rank);
  // Returns one rank's handle on the group of all ranks; called once per rank, on any thread.
  std::unique_ptr<Communicator> communicator(int rank, Communicator::Options options);

  // Returns why the world was aborted, and by which rank; empty if it was not aborted.
  std::string verdict() const;
  void abort(const std::string& reason) noexcept;

 private:
  struct Shared;
  std::unique_ptr<Shared> shared_;
};

// Runs body(rank) on a thread per rank and joins all threads. If one throws, the world is aborted,
// and the first exception that is not CommAborted (or the first, if all are) is rethrown here.
void run_ranks(ThreadWorld&, const std::function<void(int rank)>& body);

}  // namespace trireme::comm
