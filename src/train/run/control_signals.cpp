// SPDX-License-Identifier: Apache-2.0
#include "train/run/control_signals.h"

#include <algorithm>

#include "obs/clock.h"

namespace trireme::train {
namespace {

constexpr double exchange_interval_seconds = 1;

// What each rank contributes to an exchange.
struct RankSignals {
  Request request;
  double step_seconds = 0;  // mean since the last exchange
  obs::RankSample sample = {};
};

}  // namespace

ControlSignals::ControlSignals(const std::atomic<bool>* stop, std::atomic<bool>* save)
    : stop_(stop), save_(save), exchanged_seconds_(obs::steady_seconds()) {}

Request ControlSignals::exchange(Rank& rank, int64_t step, const Noticed& noticed,
                                 const obs::RankSample* sample) {
  samples_.clear();
  Request request{.stop = stop_ != nullptr && stop_->load(),
                  .save = save_ != nullptr && save_->exchange(false),
                  .is_fenced = noticed.is_fenced,
                  .other_samples_step = noticed.other_samples_step,
                  .other_samples_rank = rank.number()};
  if (rank.is_alone()) {
    if (sample != nullptr) samples_ = {*sample};
    return request;
  }
  const double passed = obs::steady_seconds() - exchanged_seconds_;
  double step_seconds = passed / static_cast<double>(step - exchanged_step_);
  // All ranks see the same values, so all compute the same next step.
  RankSignals own{request, step_seconds};
  if (sample != nullptr) own.sample = *sample;
  request.other_samples_step = 0;
  for (const RankSignals& of_rank : rank.gather(own)) {
    if (request.other_samples_step == 0 && of_rank.request.other_samples_step > 0) {
      request.other_samples_step = of_rank.request.other_samples_step;
      request.other_samples_rank = of_rank.request.other_samples_rank;
    }
    if (sample != nullptr) samples_.push_back(of_rank.sample);
    request.stop = request.stop || of_rank.request.stop;
    request.save = request.save || of_rank.request.save;
    request.is_fenced = request.is_fenced || of_rank.request.is_fenced;
    step_seconds = std::max(step_seconds, of_rank.step_seconds);
  }
  exchanged_seconds_ = obs::steady_seconds();
  exchanged_step_ = step;
  const double steps = exchange_interval_seconds / std::max(step_seconds, 1e-6);
  next_step_ = step + std::max<int64_t>(1, static_cast<int64_t>(steps));
  return request;
}

}  // namespace trireme::train
