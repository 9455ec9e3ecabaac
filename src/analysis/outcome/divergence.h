// SPDX-License-Identifier: Apache-2.0
// Divergence: whether the numbers of a run have diverged, by the loss of every step and the steps
// that were skipped. The run itself and the readers of its files judge by the same rule.
//
// A run has diverged if the median loss of its last steps (the later half of an attempt, at most
// 10) is not finite, or at least twice that of the run's first step and 1 above it; or if half of
// an attempt's steps (nine tenths of fewer than 10), or of its last 100, were skipped. A spike that
// the run recovers from is none.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

namespace trireme::analysis {

struct DivergenceFound {
  int64_t first_step = 0;  // since when
  std::string text;        // "the loss is about 6.6e+08, at the start it was 5.54"
};

class Divergence {
 public:
  // Before an attempt has so many steps, only its end can be judged.
  static constexpr int64_t min_steps = 10;

  // `start_loss`: of the run's first step, if that belongs to an earlier attempt.
  explicit Divergence(std::optional<double> start_loss = {}) : start_loss_(start_loss) {}

  // The next step of the attempt, or one that is repeated: the later ones are then forgotten.
  // `was_skipped`: not by a fall of the loss scale.
  void add(int64_t step, double loss, bool was_skipped);
  // Judges the steps so far. Returns none for an attempt that `goes_on` before min_steps.
  std::optional<DivergenceFound> judge(bool goes_on) const;

 private:
  struct Step {
    int64_t step = 0;
    double loss = 0;
    bool was_skipped = false;
  };
  std::optional<DivergenceFound> judge_losses() const;
  std::optional<DivergenceFound> judge_skips() const;
  bool is_high(double loss) const;

  std::optional<double> start_loss_;
  std::deque<Step> last_;  // at most 100
  int64_t steps_ = 0, skipped_ = 0, first_skipped_ = 0;
};

}  // namespace trireme::analysis
