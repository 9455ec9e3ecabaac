// SPDX-License-Identifier: Apache-2.0
#include "base/system/threads.h"

#include <algorithm>
#include <system_error>

#include "base/check.h"
#include "base/log.h"
#include "base/system/fatal_signals.h"
#include "base/system/start_thread.h"

namespace trireme::base {
namespace {

// A worker checks for new jobs this many times before it sleeps. Kernels of one step follow each
// other within microseconds; a sleep and a wake-up cost tens.
constexpr int spins_before_sleep = 2000;

}  // namespace

ThreadPool::ThreadPool(int threads) {
  TRIREME_CHECK(threads >= 1, "threads = {}", threads);
  try {
    for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { serve(); });
  } catch (const std::system_error& error) {
    log_warning("only {} of {} threads could be started, so kernels are slower: {}",
                this->threads(), threads, thread_refusal(error.code()));
  }
}

ThreadPool::~ThreadPool() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  posted_.fetch_add(1, std::memory_order_release);
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run(int64_t count, Call call, void* body) {
  if (count <= 0) return;
  if (workers_.empty() || count == 1) {
    for (int64_t i = 0; i < count; ++i) call(body, i);
    return;
  }
  Job job{.call = call, .body = body, .count = count, .activity = RankActivity::current()};
  {
    const std::scoped_lock lock(mutex_);
    jobs_.push_back(&job);
  }
  posted_.fetch_add(1, std::memory_order_release);
  wake_.notify_all();
  work(job);
  std::unique_lock lock(mutex_);
  jobs_.erase(std::find(jobs_.begin(), jobs_.end(), &job));
  left_.wait(lock, [&job] { return job.helpers == 0; });
}

void ThreadPool::work(Job& job) {
  while (true) {
    const int64_t index = job.next.fetch_add(1, std::memory_order_relaxed);
    if (index >= job.count) return;
    job.call(job.body, index);
  }
}

ThreadPool::Job* ThreadPool::open_job() const {
  for (Job* job : jobs_) {
    if (job->next.load(std::memory_order_relaxed) < job->count) return job;
  }
  return nullptr;
}

void ThreadPool::serve() {
  const SignalStack stack;
  uint32_t seen = 0;
  while (true) {
    for (int spin = 0; spin < spins_before_sleep; ++spin) {
      if (posted_.load(std::memory_order_acquire) != seen) break;
      std::this_thread::yield();
    }
    std::unique_lock lock(mutex_);
    // Looked up once: another thread may take its last task, without the lock, at any moment.
    Job* job = nullptr;
    wake_.wait(lock, [this, &job] {
      job = open_job();
      return stopping_ || job != nullptr;
    });
    if (stopping_) return;
    seen = posted_.load(std::memory_order_acquire);
    ++job->helpers;
    lock.unlock();
    {
      const SharedActivityScope scope(job->activity);
      work(*job);
    }
    lock.lock();
    --job->helpers;
    lock.unlock();
    left_.notify_all();
  }
}

}  // namespace trireme::base
