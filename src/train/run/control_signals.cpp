// SPDX-License-Identifier: Apache-2.0
#include "train/run/control_signals.h"

#include <algorithm>

#include "obs/clock.h"

namespace trireme::train {
namespace {

constexpr double settle_seconds = 1;

struct Told {
  Request request;
  double step_seconds = 0;  // since the ranks last settled
};

}  // namespace

ControlSignals::ControlSignals(const std::atomic<bool>* stop, std::atomic<bool>* save)
    : stop_(stop), save_(save), settled_seconds_(obs::steady_seconds()) {}

Request ControlSignals::settle(Rank& rank, int64_t step, bool is_fenced) {
  Request request{.stop = stop_ != nullptr && stop_->load(),
                  .save = save_ != nullptr && save_->exchange(false),
                  .is_fenced = is_fenced};
  if (rank.is_alone()) return request;
  const double passed = obs::steady_seconds() - settled_seconds_;
  double step_seconds = passed / static_cast<double>(step - settled_step_);
  // All ranks see the same numbers, so all know when to meet again.
  for (const Told& told : rank.gather(Told{request, step_seconds})) {
    request.stop = request.stop || told.request.stop;
    request.save = request.save || told.request.save;
    request.is_fenced = request.is_fenced || told.request.is_fenced;
    step_seconds = std::max(step_seconds, told.step_seconds);
  }
  settled_seconds_ = obs::steady_seconds();
  settled_step_ = step;
  const double steps = settle_seconds / std::max(step_seconds, 1e-6);
  next_step_ = step + std::max<int64_t>(1, static_cast<int64_t>(steps));
  return request;
}

}  // namespace trireme::train
