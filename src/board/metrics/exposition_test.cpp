// SPDX-License-Identifier: Apache-2.0
#include "board/metrics/exposition.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "board/board.h"
#include "board/run_folder_test.h"
#include "obs/run_owner.h"
#include "obs/scratch_folder_test.h"

namespace trireme::board {
namespace {

// What a text breaks of its format, by the rules of OpenMetrics 1.0 or of the older format; empty:
// nothing. Returns the samples by name and labels.
std::string fault_of(const std::string& text, bool is_openmetrics,
                     std::map<std::string, std::string>& samples) {
  const std::regex meta(R"(^# (TYPE|UNIT|HELP) ([a-zA-Z_:][a-zA-Z0-9_:]*) ?(.*)$)");
  const std::regex sample(
      R"(^([a-zA-Z_:][a-zA-Z0-9_:]*)(\{((?:[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\"n])*",?)*)\})? (\+Inf|-Inf|NaN|-?[0-9.]+(?:e[+-]?[0-9]+)?)$)");
  std::set<std::string> families;
  std::string family, type;
  std::istringstream in(text);
  std::string line;
  bool has_ended = false;
  if (!text.empty() && text.back() != '\n') return "the last line has no end";
  while (std::getline(in, line)) {
    std::smatch found;
    if (has_ended) return "a line after # EOF";
    if (line == "# EOF") {
      has_ended = true;
    } else if (std::regex_match(line, found, meta)) {
      if (found[1] == "TYPE") {
        family = found[2];
        type = found[3];
        if (!families.insert(family).second) return "two families " + family;
        if (type != "gauge" && type != "counter") return "type " + type;
        const bool has_suffix = family.ends_with("_total");
        if (type == "counter" && has_suffix == is_openmetrics) return "name of " + family;
      } else if (found[2] != family) {
        return "interleaved: " + line;
      } else if (found[1] == "UNIT") {
        if (!is_openmetrics || !family.ends_with("_" + found[3].str())) return "unit: " + line;
      }
    } else if (std::regex_match(line, found, sample)) {
      std::string expected = family;
      if (is_openmetrics && type == "counter") expected += "_total";
      if (found[1] != expected) return "sample outside of its family: " + line;
      const std::string series = found[1].str() + found[2].str();
      if (!samples.emplace(series, found[4]).second) return "twice: " + series;
    } else {
      return "neither sample nor comment: " + line;
    }
  }
  return has_ended == is_openmetrics ? "" : "# EOF";
}

std::string metrics_of(const Board& board, bool is_openmetrics) {
  Request request = request_of("/metrics");
  if (is_openmetrics) request.headers["accept"] = "application/openmetrics-text; version=1.0.0";
  return board.handle(request).body;
}

TEST(ExpositionTest, both_formats_are_strictly_correct) {
  obs::ScratchFolder folder;
  write_run(folder / "a", {.name = "a \"quoted\\\" \n<name>", .ranks = 300});
  write_run(folder / "b");
  write_run(folder / "c");
  Board board({.runs = {folder / "a", folder / "b", folder / "c"}, .clock = [] { return 1250.0; }});
  board.poll();
  for (const bool is_openmetrics : {true, false}) {
    std::map<std::string, std::string> samples;
    const std::string text = metrics_of(board, is_openmetrics);
    EXPECT_EQ(fault_of(text, is_openmetrics, samples), "") << text;
    EXPECT_LE(samples.size(), max_series);
    EXPECT_EQ(samples["trireme_runs"], "3");
    EXPECT_EQ(samples["trireme_step{run=\"kjv\"}"], "200") << text;
    EXPECT_EQ(samples["trireme_tokens_total{run=\"kjv\"}"], "204800");
  }
}

TEST(ExpositionTest, series_are_bounded_and_runs_that_go_on_come_first) {
  obs::ScratchFolder folder;
  std::vector<std::filesystem::path> runs;
  for (int i = 0; i < 30; ++i) {
    runs.push_back(folder.path() / fmt::format("run{:02}", i));
    write_run(runs.back(), {.name = fmt::format("run{:02}", i), .steps = 130 + i});
  }
  write_run(folder / "zz_live", {.name = "zz_live", .steps = 120});
  runs.push_back(folder / "zz_live");
  const auto owner = obs::RunOwner::hold(folder / "zz_live", {});
  owner->begin("");
  Board board({.runs = runs, .clock = [] { return 1150.0; }});
  board.poll();
  const auto samples_within = [&](size_t limit) {
    std::map<std::string, std::string> samples;
    EXPECT_EQ(fault_of(exposition_text(metric_families(board, limit), true), true, samples), "");
    EXPECT_LE(samples.size(), limit);
    return samples;
  };
  // All of the run that goes on, and of the run that ended last, and the progress of all others.
  std::map<std::string, std::string> some = samples_within(4 * 31 + 250);
  EXPECT_EQ(some["trireme_runs"], "31");
  EXPECT_EQ(some["trireme_runs_left_out"], "0");
  EXPECT_EQ(some["trireme_up{run=\"zz_live\"}"], "1");
  EXPECT_EQ(some["trireme_loss{run=\"zz_live\"}"], "6.8");
  EXPECT_EQ(some["trireme_tokens_total{run=\"run29\"}"], std::to_string(159 * 1024));
  EXPECT_FALSE(some.contains("trireme_tokens_total{run=\"run00\"}"));
  for (int i = 0; i < 30; ++i) {
    EXPECT_EQ(some[fmt::format("trireme_up{{run=\"run{:02}\"}}", i)], "0");
    EXPECT_EQ(some[fmt::format("trireme_step{{run=\"run{:02}\"}}", i)], std::to_string(130 + i));
    EXPECT_EQ(some[fmt::format("trireme_last_record_timestamp_seconds{{run=\"run{:02}\"}}", i)],
              std::to_string(1130 + i));
  }
  std::map<std::string, std::string> few = samples_within(60);
  EXPECT_TRUE(few.contains("trireme_up{run=\"zz_live\"}"));
  EXPECT_EQ(few["trireme_runs_left_out"],
            "18");  // 14 have their progress; one that goes on no more
}

TEST(ExpositionTest, names_have_no_control_characters) {
  obs::ScratchFolder folder;
  write_run(folder / "a", {.name = "x\033[2J\xc2\x9b\ny"});
  Board board({.runs = {folder / "a"}, .clock = [] { return 1250.0; }});
  board.poll();
  const std::string text = metrics_of(board, false);
  EXPECT_NE(text.find(R"(run="x\\x1b[2J\\u009b\\ny")"), std::string::npos) << text;
  EXPECT_EQ(text.find('\033'), std::string::npos);
}

TEST(ExpositionTest, an_ended_run_repeats_no_old_values) {
  obs::ScratchFolder folder;
  write_run(folder / "a");
  write_text(folder / "a/events.jsonl",
             "{\"time\":1201,\"attempt\":1,\"step\":200,\"kind\":\"end\",\"severity\":\"info\","
             "\"text\":\"done\",\"data\":{\"reason\":\"done\",\"exit_code\":0}}\n",
             true);
  Board board({.runs = {folder / "a"}, .clock = [] { return 1250.0; }});
  board.poll();
  const std::string text = metrics_of(board, true);
  EXPECT_NE(text.find("trireme_up{run=\"kjv\"} 0"), std::string::npos) << text;
  for (const char* gone : {"trireme_loss", "trireme_grad_norm", "trireme_step_seconds",
                           "trireme_rank_late_seconds", "trireme_mfu_ratio"}) {
    EXPECT_EQ(text.find(gone), std::string::npos) << gone;
  }
}

TEST(ExpositionTest, promtool_accepts_the_older_format) {
  if (std::system("promtool --version >/dev/null 2>&1") != 0) GTEST_SKIP() << "no promtool";
  obs::ScratchFolder folder;
  write_run(folder / "a", {.name = "a \"quoted\\\" \n<name>"});
  Board board({.runs = {folder / "a"}, .clock = [] { return 1250.0; }});
  board.poll();
  write_text(folder / "metrics.txt", metrics_of(board, false));
  const std::string file = folder / "metrics.txt";
  EXPECT_EQ(std::system(("promtool check metrics < " + file).c_str()), 0);
}

}  // namespace
}  // namespace trireme::board
