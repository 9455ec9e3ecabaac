// SPDX-License-Identifier: Apache-2.0
#include "analysis/outcome/divergence.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "obs/terminal/number_text.h"

namespace trireme::analysis {
namespace {

constexpr size_t kept_steps = 100, max_loss_window = 10;
// No run that learns has a loss like this; smaller rises happen at a change of the data.
constexpr double diverged_ratio = 2, diverged_rise = 1;
constexpr double skipped_share = 0.5, short_skipped_share = 0.9;

}  // namespace

void Divergence::add(int64_t step, double loss, bool was_skipped) {
  while (!last_.empty() && last_.back().step >= step) {
    --steps_;
    if (last_.back().was_skipped) --skipped_;
    last_.pop_back();
  }
  if (!start_loss_) start_loss_ = loss;
  last_.push_back({step, loss, was_skipped});
  if (last_.size() > kept_steps) last_.pop_front();
  ++steps_;
  if (was_skipped && skipped_++ == 0) first_skipped_ = step;
}

bool Divergence::is_high(double loss) const {
  if (!std::isfinite(loss)) return true;
  // A first loss that is not finite compares with nothing.
  if (!std::isfinite(*start_loss_)) return false;
  return loss >= diverged_ratio * *start_loss_ && loss >= *start_loss_ + diverged_rise;
}

std::optional<DivergenceFound> Divergence::judge(bool goes_on) const {
  if (steps_ == 0 || (goes_on && steps_ < min_steps)) return {};
  std::optional<DivergenceFound> losses = judge_losses();
  std::optional<DivergenceFound> skips = judge_skips();
  if (losses && skips) {
    return DivergenceFound{std::min(losses->first_step, skips->first_step),
                           losses->text + "; " + skips->text};
  }
  return losses ? losses : skips;
}

std::optional<DivergenceFound> Divergence::judge_losses() const {
  const size_t window = std::clamp<size_t>(last_.size() / 2, 1, max_loss_window);
  std::vector<double> losses;
  for (size_t i = last_.size() - window; i < last_.size(); ++i) {
    const double loss = last_[i].loss;
    losses.push_back(std::isfinite(loss) ? loss : std::numeric_limits<double>::infinity());
  }
  const auto middle = losses.begin() + static_cast<ptrdiff_t>(losses.size() / 2);
  std::nth_element(losses.begin(), middle, losses.end());
  if (!is_high(*middle)) return {};
  // Since when: the first of the steps without a break at the end, or of the window.
  size_t first = last_.size();
  while (first > 0 && is_high(last_[first - 1].loss)) --first;
  if (first == last_.size()) first = last_.size() - window;
  const std::string loss = std::isfinite(*middle) ? fmt::format("the loss is about {:.3g}", *middle)
                                                  : std::string("the loss is not finite");
  return DivergenceFound{last_[first].step,
                         std::isfinite(*start_loss_)
                             ? fmt::format("{}, at the start it was {:.3g}", loss, *start_loss_)
                             : loss};
}

std::optional<DivergenceFound> Divergence::judge_skips() const {
  const auto is_most = [](int64_t skipped, int64_t of) {
    const double share = of < min_steps ? short_skipped_share : skipped_share;
    return static_cast<double>(skipped) >= share * static_cast<double>(of);
  };
  const char* const why = "because the gradient norm was not finite or far above its running mean";
  if (is_most(skipped_, steps_)) {
    return DivergenceFound{first_skipped_,
                           fmt::format("{} of {} steps were skipped {}", obs::grouped(skipped_),
                                       obs::grouped(steps_), why)};
  }
  const auto skipped = std::ranges::count_if(last_, &Step::was_skipped);
  if (last_.size() < kept_steps || !is_most(skipped, std::ssize(last_))) return {};
  const auto first = std::ranges::find_if(last_, &Step::was_skipped);
  return DivergenceFound{first->step, fmt::format("{} of the last {} steps were skipped {}",
                                                  skipped, last_.size(), why)};
}

}  // namespace trireme::analysis
