// SPDX-License-Identifier: Apache-2.0
#include "train/run/control_signals.h"

#include <algorithm>

#include "obs/clock.h"

namespace trireme::train {
namespace {

constexpr double settle_seconds = 1;

struct Told {
  Wish wish;
  double step_seconds = 0;  // since the ranks last settled
};

}  // namespace

Wishes::Wishes(const std::atomic<bool>* stop, std::atomic<bool>* save)
    : stop_(stop), save_(save), settled_seconds_(obs::steady_seconds()) {}

Wish Wishes::settle(Rank& rank, int64_t step, bool is_fenced) {
  Wish wish{.stop = stop_ != nullptr && stop_->load(),
            .save = save_ != nullptr && save_->exchange(false),
            .is_fenced = is_fenced};
  if (rank.is_alone()) return wish;
  const double passed = obs::steady_seconds() - settled_seconds_;
  double step_seconds = passed / static_cast<double>(step - settled_step_);
  // All ranks see the same numbers, so all know when to meet again.
  for (const Told& told : rank.gather(Told{wish, step_seconds})) {
    wish.stop = wish.stop || told.wish.stop;
    wish.save = wish.save || told.wish.save;
    wish.is_fenced = wish.is_fenced || told.wish.is_fenced;
    step_seconds = std::max(step_seconds, told.step_seconds);
  }
  settled_seconds_ = obs::steady_seconds();
  settled_step_ = step;
  const double steps = settle_seconds / std::max(step_seconds, 1e-6);
  next_step_ = step + std::max<int64_t>(1, static_cast<int64_t>(steps));
  return wish;
}

}  // namespace trireme::train
