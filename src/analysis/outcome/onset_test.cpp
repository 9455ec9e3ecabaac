// SPDX-License-Identifier: Apache-2.0
#include "analysis/outcome/onset.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <random>

#include "base/text/json.h"

namespace trireme::analysis {
namespace {

constexpr int64_t length = 400;

// Values of steps 1, 2, ... with noise of a normal distribution.
std::vector<double> series_of(const std::function<double(int64_t step)>& value, double noise,
                              unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal(0, noise);
  std::vector<double> values;
  for (int64_t step = 1; step <= length; ++step) values.push_back(value(step) + normal(random));
  return values;
}

std::vector<int64_t> steps_of(size_t count) {
  std::vector<int64_t> steps(count);
  std::iota(steps.begin(), steps.end(), 1);
  return steps;
}

std::optional<Onset> range_left(Signal signal, const std::vector<double>& values) {
  return left_range(signal, steps_of(values.size()), values);
}

double falling(int64_t step) { return 3 + 2.5 * std::exp(-static_cast<double>(step) / 40); }

TEST(OnsetTest, a_sudden_rise_is_dated_to_the_step) {
  for (const double high : {6.0, 40.0, 1e9, std::numeric_limits<double>::infinity()}) {
    for (unsigned seed = 0; seed < 20; ++seed) {
      const auto onset = range_left(
          Signal::loss,
          series_of([&](int64_t step) { return step < 250 ? falling(step) : high; }, 0.02, seed));
      ASSERT_TRUE(onset) << high;
      EXPECT_EQ(onset->step, 250) << "seed " << seed;
      EXPECT_EQ(onset->first_bad_state(), 249);
    }
  }
}

TEST(OnsetTest, a_slow_drift_is_dated_before_it_can_be_told_from_noise_for_long) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    const auto drifting = [](int64_t step) {
      return falling(std::min<int64_t>(step, 200)) +
             (step < 200 ? 0 : 0.01 * static_cast<double>(step - 200));
    };
    const auto onset = range_left(Signal::loss, series_of(drifting, 0.02, seed));
    ASSERT_TRUE(onset);
    // The noise has a standard deviation of two steps of drift, the range six of them.
    EXPECT_GT(onset->step, 200) << "seed " << seed;
    EXPECT_LE(onset->step, 225) << "seed " << seed;
  }
}

TEST(OnsetTest, a_spike_that_recovered_is_none_and_moves_no_later_onset) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    const auto spiky = [](int64_t step) { return step >= 100 && step < 130 ? 9.0 : falling(step); };
    EXPECT_FALSE(range_left(Signal::loss, series_of(spiky, 0.02, seed))) << "seed " << seed;
    const auto twice = [&](int64_t step) { return step >= 300 ? 8.0 : spiky(step); };
    const auto onset = range_left(Signal::loss, series_of(twice, 0.02, seed));
    ASSERT_TRUE(onset);
    EXPECT_EQ(onset->step, 300) << "seed " << seed;
  }
}

TEST(OnsetTest, a_run_that_learns_has_none) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    EXPECT_FALSE(range_left(Signal::loss, series_of(falling, 0.05, seed))) << "seed " << seed;
    const auto norm = [](int64_t step) { return 2 + 1 / static_cast<double>(step); };
    EXPECT_FALSE(range_left(Signal::norm, series_of(norm, 0.3, seed))) << "seed " << seed;
  }
  EXPECT_FALSE(range_left(Signal::loss, {}));
  EXPECT_FALSE(range_left(Signal::loss, {5}));
}

TEST(OnsetTest, a_run_that_diverges_at_once_is_wrong_from_its_first_update) {
  const auto onset = range_left(Signal::loss, {5.5, 9, 30, 100, 1e4, 1e6, 1e7, 1e8});
  ASSERT_TRUE(onset);
  EXPECT_EQ(onset->step, 2);
  EXPECT_EQ(onset->first_bad_state(), 1);
}

TEST(OnsetTest, norms_leave_their_range_at_ten_times_their_median) {
  const auto norms = [](double high) {
    return series_of([=](int64_t step) { return step < 350 ? 2.0 : high; }, 0.1, 3);
  };
  EXPECT_FALSE(range_left(Signal::norm, norms(15)));
  EXPECT_EQ(range_left(Signal::norm, norms(30))->step, 350);
  EXPECT_EQ(range_left(Signal::norm, norms(std::nan("")))->step, 350);
  EXPECT_EQ(
      range_left(Signal::norm, norms(std::nan("")))
          ->text.find(
              "the gradient norm left its range at step 350 (not finite, the range ended at "),
      0U);
}

TEST(OnsetTest, skipped_steps_count_from_where_most_are) {
  std::vector<double> skipped(200, 0);
  for (const size_t i : {20U, 60U, 61U}) skipped[i] = 1;
  EXPECT_FALSE(range_left(Signal::skipped, skipped));
  std::fill(skipped.begin() + 150, skipped.end(), 1);
  EXPECT_EQ(range_left(Signal::skipped, skipped)->step, 151);
}

// ---- of a run

obs::Event event_of(obs::EventKind kind, int64_t step, base::Json data) {
  obs::Event event{.step = step, .kind = kind, .text = "act of blocks.1 grows"};
  event.data = std::move(data);
  return event;
}

RunRecord run_with(const std::vector<double>& losses, const std::vector<double>& norms) {
  RunRecord run;
  run.last_step = std::ssize(losses);
  run.series["loss_metrics/global_avg_loss"] = {steps_of(losses.size()), losses};
  run.series["grad_norm"] = {steps_of(norms.size()), norms};
  return run;
}

RunRecord diverged_at_300() {
  return run_with(
      series_of([](int64_t step) { return step < 300 ? falling(step) : 50.0; }, 0.02, 1),
      series_of([](int64_t step) { return step < 280 ? 1.0 : 70.0; }, 0.02, 2));
}

TEST(OnsetTest, the_earliest_signal_dates_the_run) {
  RunRecord run = diverged_at_300();
  EXPECT_EQ(find_onset(run)->step, 280);
  run.series.erase("grad_norm");
  EXPECT_EQ(find_onset(run)->step, 300);
  run.series.clear();
  EXPECT_FALSE(find_onset(run));
}

TEST(OnsetTest, alarms_of_8_bit_numbers_count_until_their_block_falls_back) {
  using obs::EventKind;
  RunRecord run = diverged_at_300();
  run.events.push_back(event_of(EventKind::start, 0, {}));
  run.events.push_back(event_of(EventKind::numerics, 120, {{"what", "alarm"}, {"block", 1}}));
  EXPECT_EQ(find_onset(run)->step, 120);
  EXPECT_EQ(find_onset(run)->text,
            "8-bit numbers left their range at step 120: act of blocks.1 grows");
  RunRecord kept = run;
  kept.events.push_back(event_of(EventKind::numerics, 121, {{"what", "kept"}, {"blocks", {1}}}));
  EXPECT_EQ(find_onset(kept)->step, 120);
  RunRecord fallen = run;
  fallen.events.push_back(
      event_of(EventKind::numerics, 121, {{"what", "fallback"}, {"blocks", {0, 1}}}));
  EXPECT_EQ(find_onset(fallen)->step, 280);
  // A later attempt that goes back behind the alarm computes these steps again.
  run.events.push_back(event_of(EventKind::start, 100, {}));
  EXPECT_EQ(find_onset(run)->step, 280);
}

TEST(OnsetTest, steps_that_only_an_earlier_attempt_computed_do_not_count) {
  RunRecord run = diverged_at_300();
  run.last_step = 250;
  EXPECT_FALSE(find_onset(run));
}

}  // namespace
}  // namespace trireme::analysis
