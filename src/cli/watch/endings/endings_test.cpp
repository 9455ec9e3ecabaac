// SPDX-License-Identifier: Apache-2.0
// Planted endings of runs: all readers say the same of each, none that failed is green, and none
// that is well is red.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <stdexcept>

#include "agent/exit_codes.h"
#include "base/text/json.h"
#include "board/board.h"
#include "board/metrics/exposition.h"
#include "board/report/report.h"
#include "cli/watch/endings/planted_endings_test.h"
#include "cli/watch/run_summary.h"
#include "cli/watch/short_findings.h"
#include "cli/watch/watch_screen.h"
#include "obs/clock.h"
#include "obs/files/event_log.h"
#include "obs/scratch_folder_test.h"

namespace trireme::cli {
namespace {

std::string expected_reason(const PlantedEnding& ending) {
  const std::map<int, std::string> reasons = {{agent::exit_done, "done"},
                                              {agent::exit_stopped, "stopped"},
                                              {agent::exit_failed, "failed"},
                                              {agent::exit_diverged, "diverged"}};
  return reasons.at(ending.exit_code);
}

// The reason of the last end event; empty: there is none in the last attempt.
std::string end_reason(const std::filesystem::path& folder) {
  std::string reason;
  for (const obs::Event& event : obs::read_events(folder)) {
    if (event.kind == obs::EventKind::start) reason.clear();
    if (event.kind == obs::EventKind::end) reason = event.data.at("reason");
  }
  return reason;
}

std::string one_line(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += (text.empty() ? "" : " ") + line;
  return text;
}

TEST(EndingsTest, all_readers_say_the_same) {
  obs::ScratchFolder scratch;
  std::deque<PlantedRun> runs;
  std::vector<std::filesystem::path> folders;
  for (const PlantedEnding& ending : endings()) {
    PlantedRun& run = runs.emplace_back(scratch / ending.name, ending.total_steps);
    ending.plant(run);
    folders.push_back(run.folder());
    EXPECT_EQ(run.is_over(), ending.exit_code != alive) << ending.name;
    EXPECT_EQ(run.exit_code(), std::max(ending.exit_code, -1)) << ending.name;
  }
  board::Board board({.runs = folders});
  board.poll();
  const base::Json listed =
      base::Json::parse(board.handle(board::request_of("/api/runs")).body).at("runs");
  const base::Json report = base::Json::parse(board::inlined_answers(board));
  const std::string metrics = board::exposition_text(board::metric_families(board), true);
  for (size_t i = 0; i < runs.size(); ++i) {
    SCOPED_TRACE(endings()[i].name);
    const PlantedEnding& ending = endings()[i];
    const std::string name = ending.name;
    const RunSummary summary = read_summary(folders[i], obs::wall_seconds());
    const analysis::Diagnosis& diagnosis = summary.diagnosis;
    const std::string& sentence = diagnosis.sentence;
    // diagnose
    EXPECT_EQ(name_of(diagnosis.outcome.kind), ending.kind) << sentence;
    EXPECT_EQ(diagnosis.lamp, ending.severity) << sentence;
    // runs
    EXPECT_EQ(to_json(summary).at("sentence"), sentence);
    EXPECT_EQ(to_json(summary).at("outcome").at("kind"), ending.kind);
    EXPECT_EQ(to_json(summary).at("lamp"), ending.severity);
    // watch
    const std::string screen = one_line(watch_screen(summary, {.columns = 400}, 0));
    EXPECT_TRUE(screen.starts_with(name + ": " + sentence)) << screen;
    // the last line of train
    const auto own = diagnosis_of(folders[i]);
    ASSERT_TRUE(own);
    EXPECT_TRUE(short_text(*own, name, folders[i]).ends_with(name + ": " + sentence + "\n"));
    // the board and the report
    for (const base::Json& entry : {listed.at(i), report.at("/api/runs").at("runs").at(i)}) {
      EXPECT_EQ(entry.at("sentence"), sentence);
      EXPECT_EQ(entry.at("lamp"), ending.severity);
      EXPECT_EQ(entry.at("outcome"), ending.kind);
    }
    // Prometheus
    const std::string labels = fmt::format(
        "trireme_run_info{{run=\"{}\",group=\"\",state=\"{}\",outcome=\"{}\",lamp=\"{}\"}} 1", name,
        name_of(summary.run.state), ending.kind, ending.severity);
    EXPECT_NE(metrics.find(labels + "\n"), std::string::npos) << labels;
    // the end event
    const bool has_end = ending.exit_code >= 0 && !name.starts_with("data_cut");
    EXPECT_EQ(end_reason(folders[i]), has_end ? expected_reason(ending) : "");
    // None that failed is green, and none that is well is red.
    const bool is_well =
        ending.exit_code == agent::exit_done || ending.exit_code == agent::exit_stopped;
    if (ending.exit_code == alive) continue;
    EXPECT_EQ(diagnosis.lamp != "bad", is_well);
  }
}

TEST(EndingsTest, sentences_and_advice_name_steps) {
  obs::ScratchFolder scratch;
  const auto outcome_of = [&](const std::string& name) {
    for (const PlantedEnding& ending : endings()) {
      if (ending.name != name) continue;
      PlantedRun run(scratch.path() / name, ending.total_steps);
      ending.plant(run);
      return read_summary(run.folder(), obs::wall_seconds()).diagnosis.outcome;
    }
    throw std::invalid_argument(name);
  };
  const analysis::Outcome unsaved = outcome_of("full_since_step_10");
  EXPECT_NE(unsaved.advice.find("would export step 10, not step 40"), std::string::npos)
      << unsaved.advice;
  EXPECT_NE(unsaved.headline.find("step 40 is the last one, and its checkpoint was not saved"),
            std::string::npos)
      << unsaved.headline;
  EXPECT_EQ(outcome_of("short").headline,
            "done, step 12 of 12; too short to judge its speed (needs 40 steps)");
  const analysis::Outcome diverged_run = outcome_of("diverged");
  EXPECT_EQ(diverged_run.headline,
            "ended, step 12 of 12: diverged since step 5: the loss is about 6.6e+08, at the start "
            "it was 5.5; 7 of 12 steps were skipped because the gradient norm was not finite or "
            "far above its running mean: this run has not trained; lower optimizer.lr, or check "
            "the data");
  EXPECT_NE(diverged_run.advice.find("the checkpoint of step 12 has diverged, too"),
            std::string::npos)
      << diverged_run.advice;
  EXPECT_EQ(outcome_of("killed_and_continued").headline,
            "done, step 40 of 40, after 1 failure; too short to judge its speed (needs 40 steps)");
  const RunSummary continued =
      read_summary(scratch.path() / "killed_and_continued", obs::wall_seconds());
  ASSERT_EQ(continued.diagnosis.findings.size(), 1U);
  EXPECT_EQ(
      continued.diagnosis.findings[0].evidence,
      (std::vector<std::string>{"attempt 1 ended at step 25: its process ended without a record"}));
}

TEST(EndingsTest, divergence_is_an_alert_and_does_not_end_the_run) {
  obs::ScratchFolder scratch;
  PlantedRun run(scratch / "run", 100);
  run.start();
  run.steps(60, explodes);
  int64_t alerts = 0;
  for (const obs::Event& event : obs::read_events(run.folder())) {
    if (event.kind != obs::EventKind::alert) continue;
    ++alerts;
    EXPECT_EQ(event.data.at("rule"), "diverged");
    EXPECT_EQ(event.step, 10) << event.text;
  }
  EXPECT_EQ(alerts, 1);
}

}  // namespace
}  // namespace trireme::cli
