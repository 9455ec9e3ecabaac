// SPDX-License-Identifier: Apache-2.0
#include "analysis/waterfall.h"

#include <gtest/gtest.h>

#include <map>

#include "analysis/made_run_test.h"

namespace trireme::analysis {
namespace {

using obs::RankColumn;

std::map<std::string, WaterfallTerm> by_id(const Waterfall& fall) {
  std::map<std::string, WaterfallTerm> terms;
  for (const WaterfallTerm& term : fall.terms) terms[term.id] = term;
  return terms;
}

base::Json prediction() {
  return {{"seconds", 0.2},
          {"band", 0.1},
          {"terms",
           {{"forward", 0.03},
            {"backward", 0.06},
            {"recompute", 0.02},
            {"ends", 0.01},
            {"optimizer", 0.01},
            {"tensor", 0.01},
            {"data", 0.02},
            {"bubble", 0.02},
            {"messages", 0.005},
            {"host", 0.004},
            {"jitter", 0.006},
            {"rest", 0.005}}},
          {"model_flops", 3.2e12},
          {"hardware_flops", 4e12},
          {"peak_flops", 1e13},
          {"ranks", 4}};
}

TEST(WaterfallTest, terms_sum_to_the_step_measured_and_predicted) {
  for (uint64_t seed = 1; seed < 20; ++seed) {
    MadeRun made{.seed = seed};
    made.plant = [](int record, int rank, obs::RankSample& sample) {
      sample[RankColumn::data_seconds] = 0.004F;
      sample[RankColumn::save_seconds] = record % 4 == 0 ? 0.01F : 0;
      sample[RankColumn::gap_seconds] += 0.02F + 0.001F * static_cast<float>(rank);
    };
    RunRecord run = made_run(made);
    for (const bool has_peak : {false, true}) {
      run.prediction = prediction();
      if (!has_peak) run.prediction["peak_flops"] = nullptr;
      run.series["tokens/trained"] = {{100, 300}, {900, 900}};
      run.series["tokens/masked"] = {{100, 300}, {60, 60}};
      run.series["tokens/padding"] = {{100, 300}, {40, 40}};
      const Waterfall fall = waterfall(run);
      ASSERT_TRUE(fall.is_measured);
      double measured = fall.residual, predicted = 0;
      for (const WaterfallTerm& term : fall.terms) {
        measured += term.measured;
        predicted += term.predicted.value();
        EXPECT_GE(term.measured, 0) << term.id;
      }
      EXPECT_NEAR(measured, fall.measured_seconds, 1e-9);
      EXPECT_NEAR(predicted, 0.2, 1e-9);
      EXPECT_LT(std::abs(fall.residual), 1e-6 * fall.measured_seconds);
      auto terms = by_id(fall);
      EXPECT_NEAR(terms["data_wait"].measured, 0.004, 1e-6);
      EXPECT_NEAR(terms["data"].measured, 0.01, 1e-6);
      EXPECT_EQ(terms.contains("useful"), has_peak);
      EXPECT_EQ(terms.contains("compute"), !has_peak);
      if (has_peak) {
        EXPECT_NEAR(terms["useful"].measured, 0.9 * 3.2e12 / 4e13, 1e-9);
        EXPECT_NEAR(terms["padding"].measured, 0.1 * 3.2e12 / 4e13, 1e-9);
        EXPECT_NEAR(terms["recompute"].measured, 0.8e12 / 4e13, 1e-9);
      }
    }
  }
}

TEST(WaterfallTest, a_mean_rank_is_predicted_to_wait_for_the_slowest_stage) {
  RunRecord run = made_run({.stages = 2, .ranks_per_stage = 2});
  run.prediction = prediction();
  run.prediction["peak_flops"] = nullptr;
  run.prediction["stage_seconds"] = {0.13, 0.065};
  const Waterfall fall = waterfall(run);
  auto terms = by_id(fall);
  EXPECT_NEAR(terms["compute"].predicted.value() + terms["recompute"].predicted.value(),
              0.13 * 0.75, 1e-9);
  EXPECT_NEAR(terms["bubble"].predicted.value(), 0.02 + 0.13 * 0.25, 1e-9);
  double sum = 0;
  for (const WaterfallTerm& term : fall.terms) sum += term.predicted.value();
  EXPECT_NEAR(sum, 0.2, 1e-9);
}

TEST(WaterfallTest, waiting_for_a_slow_rank_is_not_communication) {
  MadeRun made{.noise = 0, .hit_share = 0};
  made.plant = [](int, int rank, obs::RankSample& sample) {
    if (rank == 0) sample[RankColumn::compute_seconds] = 0.14F;
  };
  auto terms = by_id(waterfall(made_run(made)));
  EXPECT_NEAR(terms["data"].measured, 0.01, 1e-6);
  EXPECT_NEAR(terms["late"].measured, 0.75 * 0.04, 1e-6);
}

TEST(WaterfallTest, skipped_steps_take_their_share_of_every_term) {
  MadeRun made{.noise = 0, .hit_share = 0};
  RunRecord run = made_run(made);
  run.series["skipped"] = {{100, 200, 300, 400}, {0, 1, 0, 0}};
  const Waterfall fall = waterfall(run);
  auto terms = by_id(fall);
  EXPECT_NEAR(terms["skipped"].measured, fall.measured_seconds / 4, 1e-9);
  EXPECT_NEAR(terms["compute"].measured, 0.1 * 0.75, 1e-6);
}

TEST(WaterfallTest, the_host_clock_of_phases_decides_about_the_residual) {
  RunRecord run = made_run({.noise = 0, .hit_share = 0});
  const double device = waterfall(run).measured_seconds;
  for (int64_t step = 20; step < 800; step += 20) {
    PhaseSpan span{.attempt = 1, .first_step = step + 1, .last_step = step + 20};
    span.seconds[static_cast<size_t>(obs::Phase::useful)] = 20 * device * 1.02;
    span.seconds[static_cast<size_t>(obs::Phase::validation)] = 5;
    run.phases.push_back(span);
  }
  const Waterfall fall = waterfall(run);
  EXPECT_NEAR(fall.measured_seconds, 1.02 * device, 1e-9);
  EXPECT_NEAR(fall.residual, 0.02 * device, 1e-6);
}

TEST(WaterfallTest, both_clocks_measure_the_same_steps) {
  // Steps become slower, spans begin elsewhere than records, and the first spans cover others.
  MadeRun made{.noise = 0, .hit_share = 0};
  made.plant = [](int record, int, obs::RankSample& sample) {
    sample[RankColumn::compute_seconds] *= 1 + 0.02F * static_cast<float>(record);
  };
  RunRecord run = made_run(made);
  const auto seconds_to = [&](int64_t from, int64_t to) {
    double sum = 0;
    for (int64_t step = from; step <= to; ++step) {
      const auto record = static_cast<size_t>((step - 1) / 20);
      sum += static_cast<double>(
          run.ranks[record].values[static_cast<size_t>(RankColumn::step_seconds)]);
    }
    return sum;
  };
  int64_t begin = 0;
  for (const int64_t end : {10, 60, 140, 210, 300, 700, 790}) {
    PhaseSpan span{.attempt = 1, .first_step = begin + 1, .last_step = end};
    span.seconds[static_cast<size_t>(obs::Phase::useful)] = seconds_to(begin + 1, end);
    run.phases.push_back(span);
    begin = end;
  }
  Waterfall fall = waterfall(run);
  EXPECT_EQ(fall.first_step, 61);
  EXPECT_EQ(fall.last_step, 700);
  EXPECT_NEAR(fall.residual, 0, 1e-5 * fall.measured_seconds);
  // Spans that share two ends with records, which are near each other, are left out.
  run.phases.erase(run.phases.begin() + 4, run.phases.end());
  fall = waterfall(run);
  EXPECT_EQ(fall.first_step, 21);
  EXPECT_NEAR(fall.residual, 0, 1e-5 * fall.measured_seconds);
}

TEST(WaterfallTest, only_the_chosen_steps_are_measured) {
  const Waterfall fall = waterfall(only_steps(made_run({}), 201, 400));
  EXPECT_EQ(fall.first_step, 201);
  EXPECT_EQ(fall.last_step, 400);
}

}  // namespace
}  // namespace trireme::analysis
