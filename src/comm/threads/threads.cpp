// SPDX-License-Identifier: Apache-2.0
#include "comm/threads.h"

#include <fmt/format.h>
#include <pthread.h>

#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/system/rank_activity.h"
#include "base/system/start_thread.h"
#include "comm/threads/rendezvous_point.h"
#include "comm/threads/thread_communicator.h"

namespace trireme::comm {

struct ThreadWorld::Shared {
  Shared(int ranks, double deadline) : thread_group(ranks), deadline_s(deadline) {}

  ThreadGroup thread_group;
  const double deadline_s;
};

ThreadWorld::ThreadWorld(int ranks, double deadline_s)
    : shared_(std::make_unique<Shared>(ranks, deadline_s)) {}

ThreadWorld::~ThreadWorld() = default;

int ThreadWorld::ranks() const { return shared_->thread_group.ranks(); }

FlightRecorder& ThreadWorld::recorder(int rank) { return shared_->thread_group.recorder(rank); }

std::unique_ptr<Communicator> ThreadWorld::communicator(int rank, Communicator::Options options) {
  TRIREME_CHECK(rank >= 0 && rank < ranks(), "rank {} of {}", rank, ranks());
  ThreadGroup& thread_group = shared_->thread_group;
  return std::make_unique<ThreadCommunicator>(thread_group, thread_group.world(), rank,
                                              std::move(options), shared_->deadline_s);
}

std::string ThreadWorld::verdict() const { return shared_->thread_group.verdict(); }

void ThreadWorld::abort(const std::string& reason) noexcept { shared_->thread_group.abort(reason); }

void run_ranks(ThreadWorld& world, const std::function<void(int rank)>& body) {
  std::mutex mutex;  // guards first_aborted and first_other
  std::exception_ptr first_aborted, first_other;
  const auto keep = [&](std::exception_ptr& first) {
    const std::scoped_lock lock(mutex);
    if (!first) first = std::current_exception();
  };
  const auto run = [&](int rank) {
    // For debuggers and the list of threads of a process.
    ::pthread_setname_np(::pthread_self(), fmt::format("rank {}", rank).c_str());
    const base::RankActivityScope activity(rank);
    try {
      body(rank);
    } catch (const base::CommAborted&) {
      keep(first_aborted);
      world.abort(fmt::format("rank {} left its group", rank));
    } catch (const std::exception& error) {
      keep(first_other);
      world.abort(fmt::format("rank {} failed: {}", rank, error.what()));
    } catch (...) {
      keep(first_other);
      world.abort(fmt::format("rank {} failed", rank));
    }
  };
  std::vector<std::thread> threads;
  try {
    for (int rank = 0; rank < world.ranks(); ++rank) {
      threads.push_back(base::start_thread(fmt::format("of rank {} of {}", rank, world.ranks()),
                                           [&run, rank] { run(rank); }));
    }
  } catch (
      const std::exception& error) {  // the ranks already started would wait for the missing ones
    keep(first_other);
    world.abort(error.what());
  }
  for (std::thread& thread : threads) thread.join();
  if (first_other) std::rethrow_exception(first_other);
  if (first_aborted) std::rethrow_exception(first_aborted);
}

}  // namespace trireme::comm
