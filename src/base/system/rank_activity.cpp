// SPDX-License-Identifier: Apache-2.0
#include "base/system/rank_activity.h"

#include <array>

namespace trireme::base {
namespace {

// As many as a process may have ranks (train/setup/ranks.cpp). Pages that no rank uses take no
// memory.
constinit std::array<RankActivity, 4096> scopes;
constinit RankActivity without_rank;
constinit thread_local RankActivity* of_this_thread = &without_rank;

}  // namespace

RankActivity& RankActivity::current() noexcept { return *of_this_thread; }

std::span<const RankActivity> RankActivity::all() noexcept { return scopes; }

void RankActivity::set_work(const QueuedWork& work) {
  const std::scoped_lock lock(work_mutex_);
  work_ = &work;
}

void RankActivity::remove_work(const QueuedWork& work) {
  const std::scoped_lock lock(work_mutex_);
  if (work_ == &work) work_ = nullptr;
}

std::optional<QueuedWork::Count> RankActivity::work() const {
  const std::scoped_lock lock(work_mutex_);
  if (work_ == nullptr) return std::nullopt;
  return work_->count();
}

RankActivityScope::RankActivityScope(int rank) noexcept : before_(of_this_thread), own_(nullptr) {
  for (RankActivity& activity : scopes) {
    int is_free = -1;
    if (!activity.rank_.compare_exchange_strong(is_free, rank)) continue;
    own_ = of_this_thread = &activity;
    activity.set_step(0);
    activity.set_op(nullptr);
    activity.phase_ = nullptr;
    return;
  }
}

RankActivityScope::~RankActivityScope() {
  of_this_thread = before_;
  if (own_ != nullptr) own_->rank_ = -1;
}

SharedActivityScope::SharedActivityScope(RankActivity& of_other) noexcept
    : before_(of_this_thread) {
  of_this_thread = &of_other;
}

SharedActivityScope::~SharedActivityScope() { of_this_thread = before_; }

}  // namespace trireme::base
