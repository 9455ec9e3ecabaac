// SPDX-License-Identifier: Apache-2.0
// Runs three stages over a stream of blocks on a fixed number of threads: read (one thread at a
// time, in order), work (in parallel), write (one thread at a time, in order). No thread is bound
// to a stage, so that all are busy as long as neither read nor write is the bottleneck. What is
// written, and which error is thrown, does not depend on the number of threads.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/system/start_thread.h"

namespace trireme::data {

template <typename Block>
struct Stages {
  std::function<bool(Block&)> read;  // false: there is no block any more
  std::function<void(Block&, size_t worker)> work;
  std::function<void(Block&)> write;
};

// Used once. Holds 4 blocks per worker, which are reused.
template <typename Block>
class InOrder {
 public:
  InOrder(Stages<Block> stages, int workers)
      : stages_(std::move(stages)),
        workers_(static_cast<size_t>(workers)),
        slots_(4 * static_cast<size_t>(workers)) {}

  // Returns when all blocks are written. Throws the error of the first block, in the order of
  // reading, that has one; then no later block is written. The caller's thread works, too.
  void run() {
    std::vector<std::thread> threads;
    try {
      for (size_t worker = 1; worker < workers_; ++worker) {
        threads.push_back(
            base::start_thread("that builds data", [this, worker] { serve(worker); }));
      }
    } catch (const base::Error&) {
      // The others do the work.
    }
    serve(0);
    for (std::thread& thread : threads) thread.join();
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  struct Slot {
    Block block;
    std::exception_ptr error;
    bool is_ready = false;  // worked on, or failed
  };

  Slot& slot(int64_t index) { return slots_[static_cast<size_t>(index) % slots_.size()]; }

  // Blocks are read ahead, so that a thread that is done with one finds the next without waiting
  // for another thread that is reading.
  void serve(size_t worker) {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return is_done() || can_write() || can_read() || can_work(); });
      if (is_done()) return;
      if (can_write()) {
        write_next(lock);
      } else if (can_read() && (!can_work() || next_read_ - next_work_ < read_ahead())) {
        read_next(lock);
      } else {
        work_next(lock, worker);
      }
      changed_.notify_all();
    }
  }

  // REQUIRES of all below: mutex_ is held.
  bool is_done() const { return failure_ || (is_at_end_ && next_write_ == next_read_); }
  bool can_write() {
    return !is_writing_ && next_write_ < next_work_ && slot(next_write_).is_ready;
  }
  bool can_work() const { return next_work_ < next_read_; }
  bool can_read() const {
    return !is_reading_ && !is_at_end_ &&
           next_read_ - next_write_ < static_cast<int64_t>(slots_.size());
  }
  int64_t read_ahead() const { return static_cast<int64_t>(workers_); }

  void read_next(std::unique_lock<std::mutex>& lock) {
    Slot& current = slot(next_read_);
    is_reading_ = true;
    lock.unlock();
    bool has_block = true;
    current.error = caught([&] { has_block = stages_.read(current.block); });
    lock.lock();
    is_reading_ = false;
    is_at_end_ = !has_block || current.error;
    if (has_block) ++next_read_;
  }

  void work_next(std::unique_lock<std::mutex>& lock, size_t worker) {
    Slot& current = slot(next_work_++);
    lock.unlock();
    if (!current.error) current.error = caught([&] { stages_.work(current.block, worker); });
    lock.lock();
    current.is_ready = true;
  }

  void write_next(std::unique_lock<std::mutex>& lock) {
    Slot& current = slot(next_write_);
    is_writing_ = true;
    lock.unlock();
    std::exception_ptr error = current.error;
    if (!error) error = caught([&] { stages_.write(current.block); });
    lock.lock();
    is_writing_ = false;
    current.is_ready = false;
    ++next_write_;
    if (error) failure_ = error;
  }

  template <typename Call>
  static std::exception_ptr caught(Call&& call) {
    try {
      call();
    } catch (...) {
      return std::current_exception();
    }
    return nullptr;
  }

  const Stages<Block> stages_;
  const size_t workers_;
  std::vector<Slot> slots_;  // a slot belongs to the thread that reads, works on or writes it

  std::mutex mutex_;  // guards the fields below and Slot::is_ready
  std::condition_variable changed_;
  int64_t next_read_ = 0, next_work_ = 0, next_write_ = 0;
  bool is_reading_ = false, is_writing_ = false, is_at_end_ = false;
  std::exception_ptr failure_;
};

}  // namespace trireme::data
