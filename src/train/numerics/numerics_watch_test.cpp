// SPDX-License-Identifier: Apache-2.0
#include "train/numerics/numerics_watch.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/text/json.h"

namespace trireme::train {
namespace {

using spec::Quantized;

// Five quiet blocks, blocks 0 to 4; `bits` raises act of one of them.
std::vector<LayerFigures> sample_of(int block, double bits, const std::vector<int>& fallen = {}) {
  std::vector<LayerFigures> layers;
  for (int i = 0; i < 5; ++i) {
    if (std::find(fallen.begin(), fallen.end(), i) != fallen.end()) continue;
    LayerFigures of{.layer = i + 1, .by = {}};
    of[Quantized::act].amax = std::exp2(i == block ? bits : 0);
    layers.push_back(of);
  }
  return layers;
}

// Block 3 grows by a bit a step from step 101 on, unless it is in bf16.
NumericsWatch::Decision run_watch(NumericsWatch& watch, int64_t first, int64_t last) {
  NumericsWatch::Decision all;
  for (int64_t step = first; step <= last; ++step) {
    const double bits = step > 100 ? static_cast<double>(step - 100) : 0;
    const NumericsWatch::Decision of = watch.add(step, sample_of(3, bits, watch.fallen()));
    for (const DriftFinding& alarm : of.alarms) all.alarms.push_back(alarm);
    for (const int block : of.to_bf16) all.to_bf16.push_back(block);
    for (const int block : of.to_fp8) all.to_fp8.push_back(block);
  }
  return all;
}

TEST(NumericsWatchTest, an_alarm_sends_its_block_to_bf16_and_warn_does_not) {
  NumericsWatch watch({.fallback = Fallback::bf16});
  const NumericsWatch::Decision of = run_watch(watch, 1, 300);
  ASSERT_EQ(of.alarms.size(), 1U);
  EXPECT_EQ(of.alarms[0].layer, 4);
  EXPECT_LT(of.alarms[0].step, 110);
  EXPECT_EQ(of.to_bf16, std::vector<int>{3});
  EXPECT_EQ(of.to_fp8, std::vector<int>{});
  EXPECT_EQ(watch.fallen(), std::vector<int>{3});

  NumericsWatch warns({.fallback = Fallback::warn});
  const NumericsWatch::Decision warned = run_watch(warns, 1, 120);
  EXPECT_EQ(warned.alarms.size(), 1U);
  EXPECT_FALSE(warned.changes());
  NumericsWatch off({.fallback = Fallback::off});
  EXPECT_TRUE(run_watch(off, 1, 120).alarms.empty());
}

TEST(NumericsWatchTest, a_block_returns_and_then_stays_away_twice_as_long) {
  NumericsWatch watch({.fallback = Fallback::bf16, .return_steps = 50});
  for (int64_t step = 1; step <= 110; ++step) {
    (void)watch.add(step,
                    sample_of(3, step > 100 ? static_cast<double>(step - 100) : 0, watch.fallen()));
  }
  ASSERT_EQ(watch.fallen(), std::vector<int>{3});
  std::vector<int64_t> changes;
  // It returns quietly; from step 300 on it drifts again.
  for (int64_t step = 111; step <= 600; ++step) {
    const double bits = step > 300 ? static_cast<double>(step - 300) : 0;
    if (watch.add(step, sample_of(3, bits, watch.fallen())).changes()) changes.push_back(step);
  }
  ASSERT_EQ(changes.size(), 4U);  // returns, falls back, returns, falls back
  EXPECT_EQ(changes[2] - changes[1], 100);
}

TEST(NumericsWatchTest, a_refused_decision_leaves_the_blocks_as_they_are) {
  NumericsWatch watch({.fallback = Fallback::bf16, .return_steps = 10});
  for (int64_t step = 1; step <= 120; ++step) {
    const double bits = step > 100 ? static_cast<double>(step - 100) : 0;
    const NumericsWatch::Decision of = watch.add(step, sample_of(3, bits, watch.fallen()));
    if (of.changes()) watch.refuse(of);
  }
  EXPECT_TRUE(watch.fallen().empty());
}

TEST(NumericsWatchTest, a_restored_watch_continues_exactly) {
  const NumericsWatch::Options options{.fallback = Fallback::bf16, .return_steps = 20};
  NumericsWatch whole(options), restored(options);
  for (const int64_t first : {1, 51, 103, 121}) {
    const int64_t last = first == 1 ? 50 : first == 51 ? 102 : first == 103 ? 120 : 400;
    run_watch(whole, first, last);
    run_watch(restored, first, last);
    restored = NumericsWatch::from_json(base::Json::parse(restored.to_json().dump()), options);
  }
  EXPECT_EQ(whole.to_json(), restored.to_json());
  EXPECT_GT(whole.to_json().at("fallen_back").at(0).at("times").get<int64_t>(), 1);
}

}  // namespace
}  // namespace trireme::train
