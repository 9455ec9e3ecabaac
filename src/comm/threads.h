// SPDX-License-Identifier: Apache-2.0
// Ranks as threads of one process. Tensors may be in host memory (CpuDevice, inline or worker
// streams) or in the memory of one GPU that the ranks share, each with a device and streams of its
// own. Not inside Stream::capture(): the streams of several ranks cannot be captured as one.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "comm/communicator.h"

namespace trireme::comm {

// What the ranks of one world share. Must outlive its communicators and the work that they queued.
// Its groups are aborted together.
class ThreadWorld {
 public:
  // `deadline_s` bounds the deadlines of all its groups.
  explicit ThreadWorld(int ranks, double deadline_s = 600);
  ~ThreadWorld();

  int ranks() const;
  FlightRecorder& recorder(int rank);
  // The handle of one rank on all ranks; called once per rank, on any thread.
  std::unique_ptr<Communicator> communicator(int rank, Communicator::Options options);

  // Why the world was aborted, and by which rank; empty if it was not.
  std::string verdict() const;
  void abort(const std::string& reason) noexcept;

 private:
  struct Shared;
  std::unique_ptr<Shared> shared_;
};

// Runs body(rank) on a thread per rank and waits for all. If one throws, the world is aborted and
// the first exception that is not CommAborted (else the first) is thrown again here.
void run_ranks(ThreadWorld&, const std::function<void(int rank)>& body);

}  // namespace trireme::comm
