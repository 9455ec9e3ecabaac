// SPDX-License-Identifier: Apache-2.0
// Rules on made runs: planted trouble gets its cause and its rank, noise gets none.
#include <gtest/gtest.h>

#include "analysis/diagnosis.h"
#include "analysis/made_run_test.h"

namespace trireme::analysis {
namespace {

using obs::RankColumn;

void slow_down(obs::RankSample& sample, double factor) {
  sample[RankColumn::compute_seconds] =
      static_cast<float>(factor * static_cast<double>(sample[RankColumn::compute_seconds]));
}

std::string titles_of(const Diagnosis& diagnosis) {
  std::string text;
  for (const Finding& finding : diagnosis.findings) text += finding.title + "\n";
  return text;
}

bool is_first(const Diagnosis& diagnosis, Cause cause) {
  return !diagnosis.findings.empty() && diagnosis.findings.front().cause == cause;
}

TEST(DiagnoseTest, healthy_runs_of_any_size_have_no_findings) {
  int64_t checked = 0;
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    for (const int ranks : {1, 2, 4, 8}) {
      MadeRun made{.ranks_per_stage = ranks, .records = 3 + static_cast<int>(seed % 60)};
      made.steps_per_record = seed % 3 == 0 ? 2 : 20;
      made.seed = 1000 * seed + static_cast<uint64_t>(ranks);
      const Diagnosis diagnosis = diagnose(made_run(made));
      EXPECT_TRUE(diagnosis.findings.empty())
          << "seed " << seed << ", " << ranks << " ranks: " << titles_of(diagnosis);
      ++checked;
    }
  }
  EXPECT_EQ(checked, 600);
}

TEST(DiagnoseTest, blocks_that_drift_are_named_unless_they_have_fallen_back) {
  RunRecord run = made_run({});
  const auto add = [&run](int64_t step, base::Json data) {
    obs::Event event{.step = step, .attempt = 1, .kind = obs::EventKind::numerics};
    event.text = "act has grown";
    event.data = std::move(data);
    run.events.push_back(std::move(event));
  };
  add(100, {{"what", "alarm"}, {"block", 3}});
  add(120, {{"what", "alarm"}, {"block", 5}});
  add(120, {{"what", "fallback"}, {"blocks", {5}}});
  const Diagnosis diagnosis = diagnose(run);
  ASSERT_EQ(diagnosis.findings.size(), 1U) << titles_of(diagnosis);
  EXPECT_TRUE(is_first(diagnosis, Cause::drifting_numbers));
  EXPECT_EQ(diagnosis.findings.front().title, "the 8-bit numbers of blocks.3 drift since step 100");
  EXPECT_EQ(diagnosis.lamp, "warning");
}

TEST(DiagnoseTest, slow_ranks_are_named_and_no_other) {
  for (const double factor : {1.05, 1.1, 1.2, 2.0}) {
    int named = 0;
    constexpr int runs = 60;
    for (uint64_t seed = 1; seed <= runs; ++seed) {
      const int culprit = static_cast<int>(seed % 4), begin = 5 + static_cast<int>(seed % 20);
      MadeRun made{.seed = seed};
      made.plant = [&](int record, int rank, obs::RankSample& sample) {
        if (rank == culprit && record >= begin) slow_down(sample, factor);
      };
      const Diagnosis diagnosis = diagnose(made_run(made));
      for (const Finding& finding : diagnosis.findings) {
        ASSERT_EQ(finding.cause, Cause::slow_rank) << finding.title;
        ASSERT_EQ(finding.rank, culprit) << finding.title;
      }
      if (is_first(diagnosis, Cause::slow_rank)) ++named;
    }
    EXPECT_GE(named, 0.95 * runs) << factor;
  }
}

TEST(DiagnoseTest, longer_documents_are_no_slow_rank) {
  MadeRun made;
  made.plant = [](int, int rank, obs::RankSample& sample) {
    if (rank != 2) return;
    slow_down(sample, 1.3);
    sample[RankColumn::work] = 1.3F;
  };
  EXPECT_TRUE(diagnose(made_run(made)).findings.empty());
}

TEST(DiagnoseTest, stages_are_not_compared_with_each_other) {
  MadeRun made{.stages = 2, .ranks_per_stage = 2};
  made.plant = [](int, int rank, obs::RankSample& sample) {
    if (rank >= 2) slow_down(sample, 1.5);
  };
  // There is no plan, so that no better cut is known.
  EXPECT_TRUE(diagnose(made_run(made)).findings.empty());
}

TEST(DiagnoseTest, a_rank_alone_in_its_stage_is_compared_with_its_past) {
  MadeRun made{.stages = 4, .ranks_per_stage = 1};
  made.plant = [](int record, int rank, obs::RankSample& sample) {
    if (rank == 3 && record > 20) slow_down(sample, 1.3);
  };
  const Diagnosis diagnosis = diagnose(made_run(made));
  ASSERT_TRUE(is_first(diagnosis, Cause::slow_rank));
  EXPECT_EQ(diagnosis.findings.front().rank, 3);
  EXPECT_NEAR(static_cast<double>(diagnosis.findings.front().first_step), 421, 40);
}

TEST(DiagnoseTest, a_slow_link_is_no_slow_rank) {
  MadeRun made;
  made.slower_transfer = [](int record) { return record > 15 ? 0.03 : 0.0; };
  const Diagnosis diagnosis = diagnose(made_run(made));
  ASSERT_EQ(diagnosis.findings.size(), 1U) << titles_of(diagnosis);
  EXPECT_EQ(diagnosis.findings.front().cause, Cause::slow_link);
  EXPECT_EQ(diagnosis.findings.front().rank, -1);
  EXPECT_NEAR(diagnosis.findings.front().share, 0.03 / 0.141, 0.03);
}

TEST(DiagnoseTest, missing_batches_are_data_starvation) {
  MadeRun made;
  made.plant = [](int record, int rank, obs::RankSample& sample) {
    if (record < 10) return;
    const float wait = rank == 1 ? 0.03F : 0.02F;
    sample[RankColumn::data_seconds] = wait;
  };
  const Diagnosis diagnosis = diagnose(made_run(made));
  ASSERT_TRUE(is_first(diagnosis, Cause::data_starvation)) << titles_of(diagnosis);
  EXPECT_EQ(diagnosis.findings.size(), 1U) << titles_of(diagnosis);
}

TEST(DiagnoseTest, pauses_of_hosts_are_found_and_breaks_are_none) {
  MadeRun made;
  made.plant = [](int record, int, obs::RankSample& sample) {
    if (record % 4 != 3) return;
    sample[RankColumn::gap_seconds] += 0.6F / 20;
    sample[RankColumn::max_step_seconds] = 0.71F;
  };
  RunRecord run = made_run(made);
  const Diagnosis diagnosis = diagnose(run);
  ASSERT_TRUE(is_first(diagnosis, Cause::host_pauses)) << titles_of(diagnosis);
  EXPECT_EQ(diagnosis.findings.size(), 1U) << titles_of(diagnosis);
  for (int record = 3; record < made.records; record += 4) {
    run.events.push_back(
        {.step = record * 20 + 10, .attempt = 1, .kind = obs::EventKind::validation});
  }
  EXPECT_TRUE(diagnose(run).findings.empty()) << titles_of(diagnose(run));
}

TEST(DiagnoseTest, pauses_that_hit_ranks_by_turns_blame_no_rank) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    std::mt19937_64 random(seed);
    MadeRun made{.ranks_per_stage = 2, .records = 16, .seed = seed};
    int hit = 0;
    made.plant = [&](int record, int rank, obs::RankSample& sample) {
      if (rank == 0) hit = static_cast<int>(random() % 2);
      if (record < 3) return;
      // The other rank waits at that moment.
      if (rank == hit) sample[RankColumn::compute_seconds] += 0.5F / 20;
      sample[RankColumn::max_step_seconds] = 0.62F;
    };
    const Diagnosis diagnosis = diagnose(made_run(made));
    ASSERT_TRUE(is_first(diagnosis, Cause::host_pauses)) << seed << titles_of(diagnosis);
    EXPECT_EQ(diagnosis.findings.size(), 1U) << seed << titles_of(diagnosis);
    EXPECT_EQ(diagnosis.findings.front().rank, -1) << seed << titles_of(diagnosis);
  }
}

TEST(DiagnoseTest, a_power_cap_is_no_fault_unless_other_ranks_are_faster) {
  for (const double others : {1710e6, 1980e6}) {
    MadeRun made;
    made.plant = [others](int, int rank, obs::RankSample& sample) {
      sample[RankColumn::max_clock_hz] = 1980e6F;
      sample[RankColumn::clock_hz] = rank == 1 ? 1710e6F : static_cast<float>(others);
      sample[RankColumn::throttle_reasons] = 4;
    };
    const Diagnosis diagnosis = diagnose(made_run(made));
    const bool is_named =
        !diagnosis.findings.empty() && diagnosis.findings.front().cause == Cause::throttled_clock;
    EXPECT_EQ(is_named, others > 1710e6) << titles_of(diagnosis);
    if (is_named) {
      EXPECT_EQ(diagnosis.findings.front().rank, 1);
    }
  }
}

TEST(DiagnoseTest, a_throttled_clock_explains_its_slow_rank) {
  MadeRun made;
  made.plant = [](int record, int rank, obs::RankSample& sample) {
    sample[RankColumn::max_clock_hz] = 2e9F;
    sample[RankColumn::throttle_reasons] = 0;
    sample[RankColumn::clock_hz] = 1.98e9F;
    if (rank != 2 || record < 12) return;
    sample[RankColumn::clock_hz] = 1.2e9F;
    sample[RankColumn::throttle_reasons] = 0x20;
    slow_down(sample, 1.5);
  };
  const Diagnosis diagnosis = diagnose(made_run(made));
  ASSERT_EQ(diagnosis.findings.size(), 1U) << titles_of(diagnosis);
  EXPECT_EQ(diagnosis.findings.front().cause, Cause::throttled_clock);
  EXPECT_EQ(diagnosis.findings.front().rank, 2);
}

TEST(DiagnoseTest, full_memory_is_named_by_rank) {
  MadeRun made;
  made.plant = [](int, int rank, obs::RankSample& sample) {
    if (rank == 1) sample[RankColumn::memory_bytes] = 9.7e8F;
  };
  const Diagnosis diagnosis = diagnose(made_run(made));
  ASSERT_TRUE(is_first(diagnosis, Cause::memory_near_limit));
  EXPECT_EQ(diagnosis.findings.front().rank, 1);
}

TEST(DiagnoseTest, checkpoints_that_block_steps_are_named) {
  MadeRun made;
  made.plant = [](int record, int, obs::RankSample& sample) {
    if (record % 5 != 0) return;
    sample[RankColumn::save_seconds] = 1.5F / 20;
    sample[RankColumn::max_step_seconds] = 1.6F;
  };
  const Diagnosis diagnosis = diagnose(made_run(made));
  ASSERT_EQ(diagnosis.findings.size(), 1U) << titles_of(diagnosis);
  EXPECT_EQ(diagnosis.findings.front().cause, Cause::slow_save);
}

TEST(DiagnoseTest, what_passes_soon_is_no_finding) {
  MadeRun made{.records = 200, .steps_per_record = 2};
  made.plant = [](int record, int, obs::RankSample& sample) {
    if (record > 50 && record < 62) sample[RankColumn::data_seconds] = 0.02F;
    if (record == 150) sample[RankColumn::save_seconds] = 4;
  };
  const Diagnosis diagnosis = diagnose(made_run(made));
  EXPECT_TRUE(diagnosis.findings.empty()) << titles_of(diagnosis);
  // Neither is anything in runs of a second.
  made = {.records = 12, .steps_per_record = 1, .compute = 0.02, .transfer = 0.002};
  made.plant = [](int record, int rank, obs::RankSample& sample) {
    if (rank == 1) slow_down(sample, 1.5);
    sample[RankColumn::save_seconds] = record == 11 ? 0.05F : 0;
  };
  EXPECT_TRUE(diagnose(made_run(made)).findings.empty());
}

TEST(DiagnoseTest, slower_steps_without_a_reason_are_unknown) {
  MadeRun made;
  made.plant = [](int record, int, obs::RankSample& sample) {
    if (record > 20) slow_down(sample, 1.6);
  };
  const Diagnosis diagnosis = diagnose(made_run(made));
  ASSERT_EQ(diagnosis.findings.size(), 1U) << titles_of(diagnosis);
  EXPECT_EQ(diagnosis.findings.front().cause, Cause::unknown);
  EXPECT_EQ(diagnosis.lamp, "warning");
}

base::Json prediction_of(double compute, double data) {
  return {{"machine", "h100"},
          {"seconds", compute + data},
          {"band", 0.15},
          {"terms", {{"forward", compute / 3}, {"backward", 2 * compute / 3}, {"data", data}}},
          {"memory", {{"limit_bytes", 80e9}, {"total_bytes", 30e9}}},
          {"model_flops", 3e12},
          {"hardware_flops", 4e12},
          {"ranks", 4},
          {"recompute", "full"},
          {"memory_without_recompute_bytes", 79e9}};
}

TEST(DiagnoseTest, wrong_rates_of_a_machine_file_are_told_from_trouble) {
  for (const double factor : {0.5, 0.7, 1.0, 1.5, 2.5}) {
    RunRecord run = made_run({});
    run.prediction = prediction_of(0.1 / factor, 0.01 / factor);
    const Diagnosis diagnosis = diagnose(run);
    if (factor == 1) {
      EXPECT_TRUE(diagnosis.findings.empty()) << titles_of(diagnosis);
      continue;
    }
    ASSERT_EQ(diagnosis.findings.size(), 1U) << factor << titles_of(diagnosis);
    EXPECT_EQ(diagnosis.findings.front().cause, Cause::stale_machine_file);
  }
}

TEST(DiagnoseTest, ranks_that_compete_for_processors_are_not_blamed) {
  MadeRun made{.device = "CPU, 1 thread"};
  made.plant = [](int, int rank, obs::RankSample& sample) {
    sample[RankColumn::cpu_share] = 0.5F;
    if (rank == 1) slow_down(sample, 1.15);
  };
  EXPECT_TRUE(diagnose(made_run(made)).findings.empty());
  made.device = "GPU";  // whose host may be idle
  EXPECT_TRUE(is_first(diagnose(made_run(made)), Cause::slow_rank));
}

TEST(DiagnoseTest, other_programs_on_the_processors_do_not_make_a_machine_file_wrong) {
  MadeRun made{.device = "CPU, 1 thread"};
  made.plant = [](int, int, obs::RankSample& sample) {
    slow_down(sample, 2);
    sample[RankColumn::cpu_share] = 0.5F;
  };
  RunRecord run = made_run(made);
  run.prediction = prediction_of(0.1, 0.01);
  const Diagnosis diagnosis = diagnose(run);
  ASSERT_EQ(diagnosis.findings.size(), 1U) << titles_of(diagnosis);
  EXPECT_EQ(diagnosis.findings.front().cause, Cause::unknown);
}

TEST(DiagnoseTest, recompute_is_needless_only_if_the_run_fits_without) {
  RunRecord run = made_run({});
  run.prediction = prediction_of(0.1, 0.01);
  EXPECT_TRUE(diagnose(run).findings.empty());
  run.prediction["memory_without_recompute_bytes"] = 50e9;
  const Diagnosis diagnosis = diagnose(run);
  ASSERT_EQ(diagnosis.findings.size(), 1U);
  EXPECT_EQ(diagnosis.findings.front().cause, Cause::needless_recompute);
  EXPECT_NEAR(diagnosis.findings.front().share, 0.25 * 0.1 / 0.11, 0.05);
}

TEST(DiagnoseTest, a_verdict_comes_first) {
  MadeRun made;
  made.plant = [](int, int rank, obs::RankSample& sample) {
    if (rank == 0) slow_down(sample, 1.5);
  };
  RunRecord run = made_run(made);
  run.state = RunState::failed;
  run.events.push_back({.step = 790,
                        .attempt = 1,
                        .kind = obs::EventKind::verdict,
                        .rank = 3,
                        .text = "rank 3 was killed by signal 9 (SIGKILL)"});
  const Diagnosis diagnosis = diagnose(run);
  ASSERT_TRUE(is_first(diagnosis, Cause::dead_rank));
  EXPECT_EQ(diagnosis.findings.front().rank, 3);
  EXPECT_EQ(diagnosis.lamp, "bad");
  const base::Json json = to_json(diagnosis);
  EXPECT_EQ(json["findings"][0]["cause"], "dead_rank");
  EXPECT_EQ(json["findings"][1]["cause"], "slow_rank");
}

TEST(DiagnoseTest, a_run_without_records_is_judged_by_its_state) {
  RunRecord run;
  run.state = RunState::running;
  const Diagnosis diagnosis = diagnose(run);
  EXPECT_TRUE(diagnosis.findings.empty());
  EXPECT_FALSE(diagnosis.waterfall.is_measured);
  EXPECT_EQ(diagnosis.lamp, "good");
}

// A run of four steps that ended with the given reason.
RunRecord ended_run(RunState state) {
  RunRecord run = made_run({});
  run.state = state;
  run.last_step = run.total_steps = 4;
  run.series["skipped"] = {.steps = {1, 2, 3, 4}, .values = {0, 0, 0, 0}};
  run.events.push_back({.step = 0, .attempt = 1, .kind = obs::EventKind::start});
  return run;
}

void add_event(RunRecord& run, obs::EventKind kind, int64_t step, const std::string& text,
               obs::Severity severity = obs::Severity::info) {
  run.events.push_back(
      {.step = step, .attempt = 1, .kind = kind, .severity = severity, .text = text});
}

TEST(DiagnoseTest, a_run_of_unknown_state_is_not_called_good) {
  const Diagnosis diagnosis = diagnose(ended_run(RunState::unknown));
  EXPECT_EQ(diagnosis.sentence, "state unknown, step 4 of 4; too little is recorded to judge it");
  EXPECT_EQ(diagnosis.lamp, "off");
}

TEST(DiagnoseTest, a_run_that_saved_its_last_step_has_nothing_wrong) {
  RunRecord run = ended_run(RunState::done);
  add_event(run, obs::EventKind::checkpoint, 2, "saved");
  add_event(run, obs::EventKind::checkpoint, 4, "saved");
  const Diagnosis diagnosis = diagnose(run);
  EXPECT_EQ(diagnosis.sentence, "done, step 4 of 4, nothing is wrong");
  EXPECT_EQ(diagnosis.lamp, "good");
}

TEST(DiagnoseTest, steps_that_no_checkpoint_has_are_named) {
  RunRecord run = ended_run(RunState::done);
  add_event(run, obs::EventKind::checkpoint, 1, "saved");
  add_event(run, obs::EventKind::save_failed, 4, "the checkpoint of step 4 was not saved: full",
            obs::Severity::error);
  for (const RunState state : {RunState::done, RunState::stopped}) {
    run.state = state;
    const Diagnosis diagnosis = diagnose(run);
    ASSERT_EQ(diagnosis.findings.size(), 1U) << titles_of(diagnosis);
    EXPECT_EQ(diagnosis.findings[0].cause, Cause::unsaved_steps);
    EXPECT_EQ(diagnosis.findings[0].title,
              "steps 2 to 4 are not saved: the newest checkpoint is of step 1");
    EXPECT_EQ(diagnosis.findings[0].evidence.size(), 1U);
    EXPECT_EQ(diagnosis.lamp, "bad");
    EXPECT_EQ(diagnosis.sentence.find("nothing is wrong"), std::string::npos);
  }
  // A full disk may also keep the event from being written.
  run.events.pop_back();
  EXPECT_TRUE(is_first(diagnose(run), Cause::unsaved_steps));
  // While a run goes on, its last steps are never saved.
  run.state = RunState::running;
  EXPECT_TRUE(diagnose(run).findings.empty());
  // Nothing is to be saved.
  run.state = RunState::done;
  run.config = {{"checkpoint", {{"enable", false}}}};
  EXPECT_TRUE(diagnose(run).findings.empty());
}

TEST(DiagnoseTest, a_run_without_any_checkpoint_is_named_if_saves_failed) {
  RunRecord run = ended_run(RunState::done);
  EXPECT_TRUE(diagnose(run).findings.empty());  // of older builds, or copied in part
  add_event(run, obs::EventKind::save_failed, 4, "not saved", obs::Severity::error);
  EXPECT_EQ(diagnose(run).findings.at(0).title, "none of 4 steps is saved: there is no checkpoint");
}

TEST(DiagnoseTest, skipped_steps_are_named_unless_the_loss_scale_fell) {
  RunRecord run = ended_run(RunState::done);
  run.series["skipped"].values = {0, 1, 1, 0};
  add_event(run, obs::EventKind::loss_scale, 2, "fell");
  add_event(run, obs::EventKind::skip, 2, "step 2 was skipped", obs::Severity::warning);
  add_event(run, obs::EventKind::skip, 3, "step 3 was skipped", obs::Severity::warning);
  const Diagnosis diagnosis = diagnose(run);
  ASSERT_TRUE(is_first(diagnosis, Cause::skipped_steps));
  EXPECT_EQ(diagnosis.sentence, "done, step 4 of 4: 1 of 4 steps were skipped, the last at step 3");
  EXPECT_EQ(diagnosis.findings[0].evidence, (std::vector<std::string>{"step 3 was skipped"}));
  EXPECT_EQ(diagnosis.lamp, "warning");
}

TEST(DiagnoseTest, errors_of_the_last_attempt_are_named) {
  RunRecord run = ended_run(RunState::running);
  add_event(run, obs::EventKind::save_failed, 2, "step 2 was not saved", obs::Severity::error);
  EXPECT_EQ(diagnose(run).findings.at(0).title, "step 2 was not saved");
  add_event(run, obs::EventKind::hardware, 3, "XID 79", obs::Severity::error);
  const Diagnosis diagnosis = diagnose(run);
  EXPECT_EQ(diagnosis.findings.at(0).cause, Cause::reported_error);
  EXPECT_EQ(diagnosis.findings.at(0).title, "2 errors were reported, the last: XID 79");
  EXPECT_EQ(diagnosis.lamp, "warning");
  add_event(run, obs::EventKind::start, 2, "the next attempt begins");
  EXPECT_TRUE(diagnose(run).findings.empty());
}

TEST(DiagnoseTest, the_reason_of_a_failure_comes_before_what_else_was_found) {
  RunRecord run = ended_run(RunState::failed);
  run.series["skipped"].values = {0, 1, 1, 1};
  add_event(run, obs::EventKind::end, 4, "the weights were not exported", obs::Severity::error);
  const Diagnosis diagnosis = diagnose(run);
  EXPECT_EQ(diagnosis.sentence, "failed, step 4 of 4: the weights were not exported");
  EXPECT_EQ(diagnosis.lamp, "bad");
  EXPECT_TRUE(is_first(diagnosis, Cause::skipped_steps));
}

}  // namespace
}  // namespace trireme::analysis
