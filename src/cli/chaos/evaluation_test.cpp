// SPDX-License-Identifier: Apache-2.0
#include "cli/chaos/evaluation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>

#include "base/error.h"
#include "cli/chaos/report.h"
#include "obs/scratch_folder_test.h"

namespace trireme::cli {
namespace {

constexpr double no_number = std::numeric_limits<double>::quiet_NaN();

// Steps [first, last], one a second from `time` on; the loss of a step is its inverse.
void add_step_lines(std::vector<StepLine>& lines, int64_t first, int64_t last, double time,
                    int64_t attempt = 1) {
  for (int64_t step = first; step <= last; ++step) {
    lines.push_back({.step = step,
                     .attempt = attempt,
                     .time = time + static_cast<double>(step - first),
                     .loss = 1 / static_cast<double>(step),
                     .tokens = 64 * static_cast<double>(step)});
  }
}

obs::Event verdict_about(double time, std::vector<int> ranks) {
  obs::Event event;
  event.time = time;
  event.kind = obs::EventKind::verdict;
  event.text = "a rank was killed";
  event.data = {{"ranks", ranks}};
  return event;
}

DoneDisturbance made(DisturbanceKind kind, int rank, double time, int64_t newest) {
  return {.what = {.number = 1, .kind = kind, .rank = rank},
          .process = 1,
          .time = time,
          .newest = newest};
}

TEST(ChaosEvaluation, a_kill_costs_the_time_to_the_next_attempts_first_step) {
  RunFacts run;
  add_step_lines(run.steps, 1, 10, 100);  // at 109.0 the tenth; the kill is at 108.5
  add_step_lines(run.steps, 8, 20, 112, 2);
  run.starts = {99, 111};
  run.events = {verdict_about(109, {2})};
  const auto results = results_of(run, std::vector{made(DisturbanceKind::kill, 2, 108.5, 9)});
  ASSERT_EQ(results.size(), 1U);
  EXPECT_DOUBLE_EQ(results[0].next_step_seconds.value(), 3.5);  // not the line of step 10
  EXPECT_EQ(results[0].repeated_steps, 3);
  EXPECT_EQ(results[0].naming, Naming::right);
}

TEST(ChaosEvaluation, an_epoch_of_the_same_processes_is_a_recovery) {
  RunFacts run;
  add_step_lines(run.steps, 1, 10, 100);
  add_step_lines(run.steps, 11, 20, 110);
  run.starts = {99};
  obs::Event phase;  // another sequence length, not a recovery
  phase.time = 109.6;
  phase.kind = obs::EventKind::replan;
  phase.data = {{"seq_len", 32}};
  obs::Event epoch = phase;
  epoch.time = 109.8;
  epoch.data = {{"epoch", 1}, {"repeated_steps", 0}};
  run.events = {phase, epoch};
  auto results = results_of(run, std::vector{made(DisturbanceKind::kill, 0, 109.5, 10)});
  EXPECT_DOUBLE_EQ(results[0].next_step_seconds.value(), 0.5);
  EXPECT_EQ(results[0].repeated_steps, 0);
  EXPECT_EQ(results[0].naming, Naming::missing);
  run.events = {phase};
  results = results_of(run, std::vector{made(DisturbanceKind::kill, 0, 109.5, 10)});
  EXPECT_FALSE(results[0].next_step_seconds);
}

obs::Event recovered_at(double time, double detect) {
  obs::Event event;
  event.time = time;
  event.kind = obs::EventKind::recovered;
  for (const char* part : recovery_parts) event.data[part] = 0.5;
  event.data["detect"] = detect;
  return event;
}

TEST(ChaosEvaluation, parts_of_a_recovery_are_those_before_the_next_disturbance) {
  RunFacts run;
  obs::Event damaged = recovered_at(35, 3);
  damaged.data.erase("repeat");
  run.events = {recovered_at(12, 1), recovered_at(13, 9), damaged};
  const auto results = results_of(
      run, std::vector{made(DisturbanceKind::kill, 0, 11, 1), made(DisturbanceKind::kill, 1, 20, 5),
                       made(DisturbanceKind::kill, 2, 30, 9)});
  EXPECT_EQ(results[0].parts, (std::vector{1.0, 0.5, 0.5, 0.5, 0.5, 0.5}));
  EXPECT_TRUE(results[1].parts.empty());
  EXPECT_TRUE(results[2].parts.empty());
}

TEST(ChaosEvaluation, a_pause_must_have_no_verdict) {
  RunFacts run;
  add_step_lines(run.steps, 1, 10, 100);
  DoneDisturbance pause = made(DisturbanceKind::pause, 1, 104.5, 5);
  pause.what.pause_seconds = 2;
  auto results = results_of(run, std::vector{pause});
  EXPECT_DOUBLE_EQ(results[0].next_step_seconds.value(), 0.5);  // after 106.5
  EXPECT_EQ(results[0].naming, Naming::none);
  run.events = {verdict_about(105, {1})};
  results = results_of(run, std::vector{pause});
  EXPECT_EQ(results[0].naming, Naming::wrong);
  EXPECT_EQ(results[0].verdict, "a rank was killed");
}

TEST(ChaosEvaluation, names_are_those_of_the_first_verdict_before_the_next_disturbance) {
  RunFacts run;
  const std::vector<DoneDisturbance> all = {made(DisturbanceKind::kill, 0, 10, 1),
                                            made(DisturbanceKind::freeze, 1, 20, 5),
                                            made(DisturbanceKind::kill, 2, 30, 9)};
  obs::Event of_signal = verdict_about(10.1, {});
  of_signal.data = {{"signal", 9}};
  run.events = {of_signal, verdict_about(10.5, {0}), verdict_about(21, {0, 1}),
                verdict_about(22, {1})};
  const auto results = results_of(run, all);
  EXPECT_EQ(results[0].naming, Naming::right);
  EXPECT_EQ(results[0].verdict_seconds, 0.5);
  EXPECT_FALSE(results[2].verdict_seconds);
  EXPECT_EQ(results[1].naming, Naming::wrong);  // one rank too many
  EXPECT_EQ(results[2].naming, Naming::missing);
}

TEST(ChaosEvaluation, percentiles_are_values_that_were_measured) {
  std::vector<double> values;
  for (int i = 100; i >= 1; --i) values.push_back(i);
  EXPECT_EQ(percentile(values, 0.5), 50);
  EXPECT_EQ(percentile(values, 0.99), 99);
  EXPECT_EQ(percentile(values, 1), 100);
  EXPECT_EQ(percentile(values, 0), 1);
  EXPECT_EQ(percentile({3, 1}, 0.99), 3);
  EXPECT_TRUE(std::isnan(percentile({}, 0.5)));
}

TEST(ChaosEvaluation, finds_every_difference_of_steps) {
  std::vector<StepLine> quiet, same;
  add_step_lines(quiet, 1, 20, 0);
  add_step_lines(same, 1, 12, 0);
  add_step_lines(same, 10, 20, 50, 2);  // steps 10 to 12 are repeated
  EXPECT_TRUE(differences(quiet, same).are_none());
  {
    std::vector<StepLine> lost = same;
    lost.erase(lost.begin() + 4);
    EXPECT_EQ(differences(quiet, lost).missing_steps, 1);
  }
  {
    std::vector<StepLine> other = same;
    other.back().loss = std::nextafter(other.back().loss, 1);
    EXPECT_EQ(differences(quiet, other).other_losses, 0);
    other.back().loss *= 1 + 1e-7;
    EXPECT_EQ(differences(quiet, other).other_losses, 1);
    other.back().loss = no_number;
    EXPECT_EQ(differences(quiet, other).other_losses, 1);
  }
  {
    std::vector<StepLine> repeated = same;
    repeated[9].loss += 1e-7;  // of step 10, the first time
    const StepDifferences found = differences(quiet, repeated);
    EXPECT_EQ(found.other_losses, 0);
    EXPECT_EQ(found.other_repeats, 1);
    EXPECT_FALSE(found.are_none());
  }
  for (const double tokens : {-64.0, 128.0}) {
    std::vector<StepLine> counted = same;
    counted.back().tokens += tokens;
    const StepDifferences found = differences(quiet, counted);
    EXPECT_EQ(found.lost_tokens, tokens < 0 ? 64 : 0);
    EXPECT_EQ(found.doubled_tokens, tokens > 0 ? 128 : 0);
  }
  EXPECT_EQ(differences(quiet, {}).missing_steps, 20);
  EXPECT_EQ(longest_gap(same), 39);
  EXPECT_EQ(longest_gap({}), 0);
}

TEST(ChaosEvaluation, a_disturbance_is_read_back_and_damage_refused) {
  DoneDisturbance one = made(DisturbanceKind::pause, 3, 12.25, 40);
  one.what.pause_seconds = 0.125;
  one.what.after_step = 37;
  one.what.step_share = 1.5;
  const DoneDisturbance read = done_from(base::Json::parse(to_json(one).dump()));
  EXPECT_EQ(read.what, one.what);
  EXPECT_EQ(read.time, one.time);
  EXPECT_EQ(read.newest, one.newest);
  base::Json damaged = to_json(one);
  damaged["kind"] = "hug";
  EXPECT_THROW((void)done_from(damaged), base::ConfigError);
  damaged.erase("kind");
  EXPECT_THROW((void)done_from(damaged), base::Json::exception);
}

// ---- the file of metrics

class StepLinesTest : public testing::Test {
 protected:
  void add(std::string_view text) const {
    std::ofstream(file_, std::ios::binary | std::ios::app) << text;
  }
  obs::ScratchFolder folder_;
  const std::filesystem::path file_ = folder_.path() / "metrics.jsonl";
};

TEST_F(StepLinesTest, follows_a_file_that_grows) {
  StepLines lines(file_);
  lines.read();
  EXPECT_TRUE(lines.steps().empty());
  add(R"({"kind":"start","attempt":1,"step":0,"time":5.5})"
      "\n"
      R"({"kind":"train","attempt":1,"step":1,"time":6,"loss_metrics/global_avg_loss":5.25,"tokens":64})"
      "\n"
      R"({"kind":"train","attempt":1,"step":2,"ti)");
  lines.read();
  lines.read();
  ASSERT_EQ(lines.steps().size(), 1U);
  EXPECT_EQ(lines.steps()[0].loss, 5.25);
  EXPECT_EQ(lines.steps()[0].tokens, 64);
  EXPECT_EQ(lines.starts(), std::vector<double>{5.5});
  // The process was killed: the next one removes the incomplete line.
  std::filesystem::resize_file(file_, std::filesystem::file_size(file_) - 40);
  lines.read();
  add(R"({"kind":"resume","attempt":2,"step":0,"time":8})"
      "\n"
      R"({"kind":"train","attempt":2,"step":2,"time":9,"loss_metrics/global_avg_loss":"NaN"})"
      "\n"
      R"({"kind":"validation","attempt":2,"step":2,"time":9})"
      "\n"
      "damaged\n");
  lines.read();
  ASSERT_EQ(lines.steps().size(), 2U);
  EXPECT_EQ(lines.steps()[1].attempt, 2);
  EXPECT_TRUE(std::isnan(lines.steps()[1].loss));
  EXPECT_EQ(lines.newest(), 2);
  EXPECT_EQ(lines.starts().size(), 2U);
}

TEST_F(StepLinesTest, a_file_that_is_replaced_is_an_error) {
  StepLines lines(file_);
  add("{\"kind\":\"train\",\"step\":1}\n{\"kind\":\"train\",\"step\":2}\n");
  lines.read();
  std::filesystem::resize_file(file_, 10);
  EXPECT_THROW(lines.read(), base::IoError);
}

// ---- the report

ChaosReport good_report() {
  ChaosReport report{.seed = 7, .ranks = 4, .planned = 2, .steps = 20};
  for (const DisturbanceKind kind : {DisturbanceKind::kill, DisturbanceKind::freeze}) {
    report.results.push_back({.done = made(kind, 1, 10, 5),
                              .next_step_seconds = 0.25,
                              .repeated_steps = 3,
                              .naming = Naming::right});
  }
  report.weights = report.quiet_weights = "abc";
  return report;
}

TEST(ChaosReportTest, is_good_only_if_nothing_is_lost_and_the_bits_are_equal) {
  EXPECT_TRUE(good_report().is_good());
  ChaosReport report = good_report();
  report.planned = 3;
  EXPECT_FALSE(report.is_good());
  report = good_report();
  report.quiet_weights = "abd";
  EXPECT_FALSE(report.is_good());
  report.weights = report.quiet_weights = "";
  EXPECT_FALSE(report.is_good());
  report = good_report();
  report.exit_code = 93;
  EXPECT_FALSE(report.is_good());
  report = good_report();
  report.differences.doubled_tokens = 64;
  EXPECT_FALSE(report.is_good());
}

TEST(ChaosReportTest, shows_the_same_figures_as_text_and_as_json) {
  ChaosReport report = good_report();
  report.results[1].naming = Naming::wrong;
  report.results[1].verdict = "rank 0 is silent";
  report.results[1].verdict_seconds = 1.5;
  report.results[0].parts = {0.125, 0.25, 0.5, 1, 2, 0.0625};
  report.launcher = {.begin = {.descriptors = 10, .threads = 2, .memory_bytes = 1 << 20},
                     .end = {.descriptors = 11, .threads = 2, .memory_bytes = 1 << 20},
                     .is_known = true};
  const std::string text = to_text(report);
  for (const char* part :
       {"2 of 2 with seed 7 on 4 ranks: 1 kill, 1 freeze, 0 pauses",
        "p50 0.25 s, p99 0.25 s, max 0.25 s of 1", "6, at most 3 after one disturbance",
        "of which detect                       | p50 0.125 s", "p50 2 s, p99 2 s, max 2 s of 1",
        "from a freeze to its verdict            | p50 1.5 s",
        "1 right, 1 wrong, 0 missing; number 1 (freeze of rank 1): rank 0 is silent",
        "descriptors 10 -> 11", "equal, SHA-256 abc", "the run survives"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
  const base::Json json = to_json(report);
  EXPECT_EQ(json.at("ok"), true);
  EXPECT_EQ(json.at("repeated_steps"), 6);
  EXPECT_EQ(json.at("next_step_seconds").at("kill").at("p99"), 0.25);
  EXPECT_TRUE(json.at("next_step_seconds").at("pause").is_null());
  EXPECT_EQ(json.at("verdict_seconds").at("freeze").at("max"), 1.5);
  EXPECT_TRUE(json.at("verdict_seconds").at("kill").is_null());
  EXPECT_EQ(json.at("recovery_seconds").at("reform").at("p50"), 0.5);
  EXPECT_EQ(json.at("recovery_seconds").at("repeat").at("count"), 1);
  EXPECT_EQ(json.at("disturbances")[0].at("parts").at("start"), 0.0625);
  EXPECT_FALSE(json.at("disturbances")[1].contains("parts"));
  EXPECT_EQ(json.at("names").at("wrong"), 1);
  EXPECT_EQ(json.at("launcher").at("end").at("descriptors"), 11);
  EXPECT_TRUE(json.at("rank_processes").is_null());
  EXPECT_EQ(json.at("disturbances").size(), 2U);
}

}  // namespace
}  // namespace trireme::cli
