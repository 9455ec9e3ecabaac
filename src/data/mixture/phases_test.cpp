// SPDX-License-Identifier: Apache-2.0
#include "data/mixture/phases.h"

#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"
#include "base/text/json.h"
#include "data/files_test.h"

namespace trireme::data {
namespace {

RunPhases two_sources(std::vector<PhaseOptions> phases, int64_t steps) {
  return {.sources = {{.name = "web", .epoch_tokens = 100'000},
                      {.name = "books", .epoch_tokens = 10'000}},
          .phases = std::move(phases),
          .steps = steps,
          .seed = 3};
}

PhaseOptions phase_of(std::vector<double> weights, int64_t seq_len = 10, int64_t batch = 8) {
  return {.name = "main", .weights = std::move(weights), .seq_len = seq_len, .global_batch = batch};
}

PhaseOptions from_step(int64_t step, PhaseOptions phase) {
  phase.from_step = step;
  return phase;
}

PhaseOptions from_tokens(int64_t tokens, PhaseOptions phase) {
  phase.from_tokens = tokens;
  return phase;
}

TEST(PhasesTest, boundaries_are_exact_in_steps_samples_and_tokens) {
  const Phases phases(
      two_sources({phase_of({3, 1}), from_step(100, phase_of({1, 1}, 10, 16)),
                   from_tokens(20'001, phase_of({0, 1}, 20, 4)), from_step(500, phase_of({1, 0}))},
                  200));
  // Steps of 80, 160 and 80 tokens.
  const std::vector<Phase>& table = phases.table();
  EXPECT_EQ(table[1].first_sample, 800);
  EXPECT_EQ(table[1].first_token, 8000);
  EXPECT_EQ(table[2].first_step, 100 + 76);  // (20001 - 8000) / 160 = 75.006
  EXPECT_EQ(table[2].first_sample, 800 + 76 * 16);
  EXPECT_EQ(table[2].first_token, 8000 + 76 * 160);
  EXPECT_EQ(table[2].steps, 24);
  EXPECT_EQ(table[3].steps, 0);  // the run ends before
  EXPECT_EQ(phases.samples(), 800 + 76 * 16 + 24 * 4);
  int64_t sample = 0;
  for (int64_t step = 0; step < 200; ++step) {
    const PhasePosition at = phases.at_step(step);
    const Phase& phase = table[static_cast<size_t>(at.phase)];
    ASSERT_EQ(phase.first_step + at.step, step);
    ASSERT_EQ(phase.first_sample + at.sample, sample);
    for (int64_t i = 0; i < phase.options.global_batch; ++i, ++sample) {
      ASSERT_EQ(phases.at_sample(sample).phase, at.phase);
      ASSERT_EQ(phases.at_sample(sample).step, at.step);
    }
  }
  EXPECT_EQ(sample, phases.samples());
}

TEST(PhasesTest, the_mixture_switches_at_the_exact_sample_and_sources_continue) {
  const Phases phases(two_sources({phase_of({3, 1}), from_step(100, phase_of({1, 3}))}, 200));
  std::vector<int64_t> counts(2, 0);
  for (int64_t i = 0; i < phases.samples(); ++i) {
    const SampleOrigin origin = phases.origin(i);
    ASSERT_EQ(origin.sample, counts[static_cast<size_t>(origin.source)]++) << "sample " << i;
    if (i == 799) {
      EXPECT_TRUE(holds(counts, {600, 200}));
    }
  }
  EXPECT_TRUE(holds(counts, {800, 800}));
  EXPECT_TRUE(holds(phases.first_source_samples(1), {600, 200}));
}

TEST(PhasesTest, sources_continue_at_the_same_token_if_seq_len_changes) {
  const Phases phases(two_sources({phase_of({2, 1}, 10, 3), from_step(7, phase_of({1, 1}, 40, 2)),
                                   from_step(20, phase_of({1, 1}, 20, 2))},
                                  30));
  // 14 and 7 samples of 10 tokens: 3.5 and 1.75 of 40.
  EXPECT_TRUE(holds(phases.first_source_samples(1), {4, 2}));
  // 13 more of 40 each, as samples of 20.
  EXPECT_TRUE(holds(phases.first_source_samples(2), {34, 30}));
}

TEST(PhasesTest, limits_hold_over_all_phases) {
  RunPhases run = two_sources({phase_of({1, 1}), from_step(25, phase_of({1, 1}))}, 100);
  run.sources[1].max_epochs = 0.15;  // 1500 tokens, 150 samples; 100 in the first phase
  const Phases phases(run);
  std::vector<int64_t> counts(2, 0);
  for (int64_t i = 0; i < phases.samples(); ++i) {
    ++counts[static_cast<size_t>(phases.origin(i).source)];
  }
  EXPECT_TRUE(holds(counts, {650, 150}));
  const MixtureSegment& last = phases.mixture(1).segments().back();
  EXPECT_EQ(last.exhausted, 1);
  EXPECT_EQ(phases.origin(200 + last.begin - 1), (SampleOrigin{1, 149}));
  run.sources[1].max_tokens = 1009;  // the smaller limit counts, in whole samples
  EXPECT_TRUE(holds(Phases(run).mixture(1).counts(600), {600, 0}));
}

TEST(PhasesTest, phases_behind_a_position_do_not_change_it) {
  RunPhases run = two_sources({phase_of({1, 1}), from_step(50, phase_of({3, 1}))}, 100);
  const Phases before(run);
  run.phases.push_back(from_step(80, phase_of({0, 1}, 40, 2)));
  run.steps = 90;
  const Phases after(run);
  for (int64_t i = 0; i < 640; ++i) ASSERT_EQ(before.origin(i), after.origin(i));
  EXPECT_EQ(before.identity(80), after.identity(80));
  EXPECT_NE(before.identity(81), after.identity(81));
}

TEST(PhasesTest, learning_rates_are_a_factor_or_a_value) {
  EXPECT_EQ(PhaseOptions{}.learning_rate_of(3e-4), 3e-4);
  EXPECT_EQ(PhaseOptions{.learning_rate_factor = 0.5}.learning_rate_of(4), 2);
  EXPECT_EQ((PhaseOptions{.learning_rate = 1, .learning_rate_factor = 0.5}).learning_rate_of(4), 1);
}

TEST(PhasesTest, what_is_not_legal_is_refused_with_its_phase_or_source) {
  const auto refused = [](const std::function<void(RunPhases&)>& change) {
    RunPhases run = two_sources({phase_of({1, 1}), from_step(50, phase_of({1, 1}))}, 100);
    change(run);
    return message_of<base::ConfigError>([&] { const Phases phases(run); });
  };
  using Run = RunPhases;
  EXPECT_TRUE(says(refused([](Run& r) { r.phases.clear(); }), {"0 phases"}));
  EXPECT_TRUE(says(refused([](Run& r) { r.steps = 0; }), {"0 steps"}));
  EXPECT_TRUE(says(refused([](Run& r) { r.sources[1].name = "web"; }), {"name 'web'"}));
  EXPECT_TRUE(says(refused([](Run& r) { r.sources[0].name = ""; }), {"has no name"}));
  EXPECT_TRUE(says(refused([](Run& r) { r.sources[0].epoch_tokens = 0; }), {"'web'", "0 tokens"}));
  EXPECT_TRUE(says(refused([](Run& r) { r.sources[0].max_epochs = -1; }), {"max_epochs -1"}));
  EXPECT_TRUE(says(refused([](Run& r) { r.phases[1].weights = {1}; }),
                   {"phase 2 ('main'): 1 weights for 2 sources"}));
  EXPECT_TRUE(says(refused([](Run& r) {
                     r.phases[0].weights = {0, 0};
                   }),
                   {"phase 'main'", "none with samples left"}));
  EXPECT_TRUE(says(refused([](Run& r) { r.phases[0].seq_len = 0; }), {"phase 1", "seq_len = 0"}));
  EXPECT_TRUE(says(refused([](Run& r) { r.phases[0].global_batch = 0; }), {"batch of 0"}));
  EXPECT_TRUE(says(refused([](Run& r) { r.phases[0].from_step = 5; }), {"begins at step 0"}));
  EXPECT_TRUE(says(refused([](Run& r) { r.phases[1].from_step = 0; }),
                   {"phase 2 ('main') begins at step 0, the phase before it at step 0"}));
  EXPECT_TRUE(says(refused([](Run& r) { r.phases[1].from_tokens = 9; }),
                   {"phase 2", "either from_step or from_tokens"}));
  EXPECT_TRUE(says(refused([](Run& r) { r.phases[1].from_step = -1; }),
                   {"either from_step or from_tokens"}));
  EXPECT_TRUE(
      says(refused([](Run& r) { r.phases[1].from_step = int64_t{1} << 50; }), {"2^40 steps"}));
  EXPECT_TRUE(says(refused([](Run& r) { r.phases[1].learning_rate = -1; }), {"learning rate -1"}));
  EXPECT_TRUE(says(refused([](Run& r) {
                     r.sources[0].max_tokens = 2000;
                     r.sources[1].max_tokens = 5000;
                   }),
                   {"phase 'main' needs 400 samples of 10 tokens (steps 50 to 99)",
                    "exhausted after 300 of them, in step 87", "raise max_epochs or max_tokens"}));
}

}  // namespace
}  // namespace trireme::data
