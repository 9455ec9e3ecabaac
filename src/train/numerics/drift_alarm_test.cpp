// SPDX-License-Identifier: Apache-2.0
// Simulated series of largest magnitudes: healthy ones, and ones in which one block drifts.
#include "train/numerics/drift_alarm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <iostream>
#include <optional>
#include <random>

#include "base/text/json.h"

namespace trireme::train {
namespace {

using spec::Quantized;

// One run: log2 of the largest magnitudes of all matrices of all blocks, by step. It has a warm-up
// in which blocks grow differently, slow growth afterwards, a learning rate that falls, noise that
// blocks share and noise of each, rare outliers of a batch, and hard batches.
class MadeRun {
 public:
  struct Drift {
    int block = -1;  // none
    int64_t onset = 0;
    double bits = 0;  // growth in a step
  };
  MadeRun(uint64_t seed, int blocks, Drift drift) : dice_(seed), drift_(drift) {
    for (int block = 0; block < blocks; ++block) {
      for (int q = 0; q < spec::quantized_count; ++q) {
        const auto role = static_cast<Quantized>(q);
        Shape shape{.level = uniform(-6, 3),
                    .warm_up = uniform(0, 4),
                    .warm_up_steps = uniform(50, 400),
                    .growth = uniform(0, 0.4),
                    .falls = uniform(0, 1),
                    .noise = uniform(0.1, 0.45)};
        if (spec::is_gradient(role)) shape.noise = uniform(0.3, 0.8);
        if (spec::is_weight(role)) shape.noise = 0.02;
        shapes_.push_back(shape);
      }
    }
    blocks_ = blocks;
  }

  std::vector<LayerFigures> step(int64_t step, bool measures) {
    const auto t = static_cast<double>(step);
    if (uniform(0, 1) < 0.002) spike_ = uniform(1, 4);
    spike_ *= 0.8;
    const double shared = normal(0.2);
    std::vector<LayerFigures> all;
    for (int block = 0; block < blocks_; ++block) {
      LayerFigures of{.layer = block + 2, .by = {}};
      for (int q = 0; q < spec::quantized_count; ++q) {
        const auto role = static_cast<Quantized>(q);
        const Shape& shape = shapes_[static_cast<size_t>(block * spec::quantized_count + q)];
        double x = shape.level + shape.warm_up * (1 - std::exp(-t / shape.warm_up_steps)) +
                   shape.growth * std::log(1 + t / 100);
        if (step > 5000) x -= shape.falls * std::min(1.0, (t - 5000) / 200);  // the learning rate
        if (!spec::is_weight(role)) {
          x += shared + normal(shape.noise);
          if (uniform(0, 1) < 0.003) x += uniform(1, 3);  // a token unlike the others
        }
        if (spec::is_gradient(role)) x += spike_ * uniform(0.5, 1.5);
        double flushed = 0.001;
        if (block == drift_.block && step > drift_.onset &&
            (role == Quantized::act || role == Quantized::up_weight)) {
          const double grown = drift_.bits * static_cast<double>(step - drift_.onset);
          x = std::max(x, x - 1 + grown);  // the channel that grows is not the largest at first
          flushed = std::min(1.0, flushed * std::exp2(grown));
        }
        of[role].amax = std::exp2(x);
        if (measures) {
          of[role].is_measured = true;
          of[role].flushed = flushed * uniform(0.8, 1.25);
          of[role].snr_db = 30;
        }
      }
      all.push_back(of);
    }
    return all;
  }

 private:
  struct Shape {
    double level, warm_up, warm_up_steps, growth, falls, noise;
  };
  double uniform(double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(dice_);
  }
  double normal(double deviation) { return std::normal_distribution<double>(0, deviation)(dice_); }

  std::mt19937_64 dice_;
  Drift drift_;
  int blocks_ = 0;
  std::vector<Shape> shapes_;
  double spike_ = 0;
};

TEST(DriftAlarmTest, fifty_thousand_healthy_steps_raise_no_alarm) {
  for (const int64_t every : {1, 10}) {
    for (uint64_t seed = 0; seed < 5; ++seed) {
      const int blocks = static_cast<int>(2 + seed);
      MadeRun run(seed, blocks, {});
      DriftAlarm alarm;
      for (int64_t step = 1; step <= 10'000 * every; step += every) {
        // A resumed run continues with the saved alarm, or without it.
        if (step / every % 3'000 == 1'500) alarm = DriftAlarm::from_json(alarm.to_json());
        if (step / every % 3'000 == 2'900) alarm = {};
        for (const DriftFinding& finding : alarm.add(step, run.step(step, step % 10 == 1))) {
          ADD_FAILURE() << "seed " << seed << " step " << step << ": " << text_of(finding);
        }
      }
    }
  }
}

// E4M3 covers 17.8 bits; the losses of real runs diverge after 16 to 19 (tests/drift/run.py).
constexpr double bits_to_divergence = 14;

TEST(DriftAlarmTest, drift_is_named_in_the_first_half_of_its_way_to_divergence) {
  int early = 0;
  constexpr int runs = 40;
  for (int run_number = 0; run_number < runs; ++run_number) {
    const auto seed = static_cast<uint64_t>(run_number);
    std::mt19937_64 dice(1000 + seed);
    const auto uniform = [&dice](double low, double high) {
      return std::uniform_real_distribution<double>(low, high)(dice);
    };
    const int blocks = static_cast<int>(uniform(3, 12));
    const MadeRun::Drift drift{.block = static_cast<int>(uniform(0, blocks)),
                               .onset = static_cast<int64_t>(uniform(100, 1500)),
                               .bits = std::exp2(uniform(-7, -1))};
    MadeRun run(seed, blocks, drift);
    DriftAlarm alarm;
    const auto half = drift.onset + static_cast<int64_t>(bits_to_divergence / drift.bits / 2);
    std::optional<DriftFinding> first;
    for (int64_t step = 1; step <= half && !first; ++step) {
      const std::vector<DriftFinding> found = alarm.add(step, run.step(step, step % 10 == 0));
      if (!found.empty()) first = found.front();
    }
    const bool is_right = first && first->step > drift.onset && first->layer == drift.block + 2;
    early += is_right ? 1 : 0;
    if (!is_right) {
      std::cout << "seed " << seed << ": block " << drift.block << " of " << blocks << ", "
                << drift.bits << " bits a step from step " << drift.onset << ": "
                << (first ? text_of(*first) : "not found until step " + std::to_string(half))
                << "\n";
    }
  }
  EXPECT_GE(early, runs * 19 / 20) << "of " << runs;
}

TEST(DriftAlarmTest, a_restored_alarm_continues_exactly) {
  MadeRun run(7, 6, {.block = 2, .onset = 300, .bits = 0.02});
  DriftAlarm whole, restored;
  std::vector<int64_t> expected, found;
  for (int64_t step = 1; step <= 900; ++step) {
    const std::vector<LayerFigures> sample = run.step(step, step % 10 == 0);
    for (const DriftFinding& of : whole.add(step, sample)) expected.push_back(of.step);
    if (step == 400) restored = DriftAlarm::from_json(base::Json::parse(restored.to_json().dump()));
    for (const DriftFinding& of : restored.add(step, sample)) found.push_back(of.step);
  }
  EXPECT_FALSE(expected.empty());
  EXPECT_EQ(found, expected);
  EXPECT_EQ(whole.to_json(), restored.to_json());
}

TEST(DriftAlarmTest, a_block_is_reported_once_until_it_is_low_again) {
  MadeRun run(3, 6, {.block = 4, .onset = 200, .bits = 0.1});
  DriftAlarm alarm;
  int reports = 0;
  for (int64_t step = 1; step <= 320; ++step) {
    reports += static_cast<int>(alarm.add(step, run.step(step, false)).size());
  }
  EXPECT_EQ(reports, 1);
}

// Growth that is too slow to see ends in values that are lost, or noise.
TEST(DriftAlarmTest, values_that_are_lost_are_reported_without_growth) {
  const auto report = [](auto damage) -> std::optional<DriftFinding> {
    DriftAlarm alarm;
    for (int64_t step = 1; step <= 200; ++step) {
      std::vector<LayerFigures> layers;
      for (int layer = 2; layer < 6; ++layer) {
        LayerFigures of{.layer = layer, .by = {}};
        of[Quantized::h2] = {.amax = 8, .is_measured = true, .flushed = 0.01, .snr_db = 30};
        if (layer == 3 && step > 100) damage(of[Quantized::h2]);
        layers.push_back(of);
      }
      const std::vector<DriftFinding> found = alarm.add(step, layers);
      if (!found.empty()) return found.front();
    }
    return {};
  };
  const auto flushed = report([](RoleFigures& of) { of.flushed = 0.6; });
  ASSERT_TRUE(flushed);
  EXPECT_EQ(flushed->layer, 3);
  EXPECT_EQ(flushed->step, 103);
  EXPECT_EQ(text_of(*flushed), "60 % of the values of h2 of blocks.2 are flushed to zero");
  const auto saturated = report([](RoleFigures& of) { of.saturated = 0.05; });
  ASSERT_TRUE(saturated);
  EXPECT_EQ(saturated->reason, DriftFinding::Reason::saturated);
  const auto noisy = report([](RoleFigures& of) { of.snr_db = 8; });
  ASSERT_TRUE(noisy);
  EXPECT_EQ(noisy->reason, DriftFinding::Reason::noise);
  EXPECT_FALSE(report([](RoleFigures&) {}));
}

TEST(DriftAlarmTest, figures_follow_their_definitions) {
  const RoleFigures of = figures_of(
      {.amax = 4, .values = 1000, .flushed = 20, .saturated = 1, .signal = 1000, .noise = 1},
      base::DType::f8e4m3);
  EXPECT_DOUBLE_EQ(of.flushed, 0.02);
  EXPECT_DOUBLE_EQ(of.saturated, 0.001);
  EXPECT_DOUBLE_EQ(of.snr_db, 30);
  EXPECT_NEAR(of.headroom_bits, std::log2(448 * 64) - 2, 1.0 / 2048);
  // Sums of the same squares in another order.
  const RoleFigures other_order = figures_of({.amax = 4,
                                              .values = 1000,
                                              .flushed = 20,
                                              .saturated = 1,
                                              .signal = std::nextafter(1000, 2000),
                                              .noise = std::nextafter(1, 0)},
                                             base::DType::f8e4m3);
  EXPECT_EQ(other_order, of);
  const RoleFigures unmeasured = figures_of({.amax = 4}, base::DType::f8e5m2);
  EXPECT_FALSE(unmeasured.is_measured);
  EXPECT_EQ(unmeasured.amax, 4);
}

}  // namespace
}  // namespace trireme::train
