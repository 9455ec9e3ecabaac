// SPDX-License-Identifier: Apache-2.0
#include "cli/watch/watch_screen.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "obs/files/rank_columns.h"
#include "obs/terminal/terminal.h"

namespace trireme::cli {
namespace {

constexpr double now = 1e9;

// A run in which everything that the screen shows is present.
RunSummary full_summary() {
  RunSummary s;
  s.run.name = "kjv\033[2J";
  s.run.state = analysis::RunState::running;
  s.run.last_step = 1200;
  s.run.total_steps = 100000;
  analysis::Series& loss = s.run.series["loss_metrics/global_avg_loss"];
  for (int step = 1; step <= 1200; ++step) {
    loss.steps.push_back(step);
    loss.values.push_back(step == 700 ? std::numeric_limits<double>::quiet_NaN()
                                      : 2 + 3.0 / std::sqrt(step));
  }
  s.diagnosis.sentence =
      "slow since step 120: rank 3 computes 21 % slower than the others of its stage on node "
      "a-very-long-"
      "name-of-a-node-that-fits-no-narrow-screen";
  s.diagnosis.waterfall = {.is_measured = true,
                           .predicted_seconds = 0.9,
                           .measured_seconds = 1,
                           .first_step = 1,
                           .last_step = 1200,
                           .terms = {{"useful", "useful compute", 0.5, 0.5},
                                     {"kernels", "kernels below peak", 0.3, 0.3},
                                     {"late", "waiting for slow ranks", {}, 0.19}},
                           .residual = 0.01};
  s.loss = 2.0866;
  s.tokens_per_second = 12345;
  s.predicted_tokens_per_second = 13000;
  s.age_seconds = 3;
  s.eta_seconds = 98800;
  s.late_ranks = {{3, "rank 3", 0.6, 0.19}, {1, "rank 1", 0.5, 0.01}, {0, "rank 0", 0.5, 0}};
  s.checkpoints.entries = {{.step = 1000, .time = now - 600, .bytes = 5, .folder = "step-1000"}};
  s.checkpoints.resume_steps = {1000};
  for (int i = 0; i < 6; ++i) {
    s.run.events.push_back(
        {.time = now - 100 + i,
         .step = 1000 + i,
         .kind = obs::EventKind::skip,
         .text = "step was skipped\n\033]0;title\a\xc2\x9b" + std::string(200, 'x')});
  }
  s.run.problems = {"ranks.bin: is missing"};
  return s;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

TEST(WatchScreen, every_line_fits_and_has_no_control_characters) {
  for (const int columns : {40, 41, 63, 80, 132, 400}) {
    for (const bool is_unicode : {false, true}) {
      for (const std::string& line :
           watch_screen(full_summary(), {.columns = columns, .is_unicode = is_unicode}, now)) {
        EXPECT_LE(obs::columns_of(line), columns) << line;
        for (const char c : line) EXPECT_TRUE(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f);
        EXPECT_EQ(line.find("\xc2\x9b"), std::string::npos);
        if (!is_unicode) {
          for (const char c : line) EXPECT_LT(static_cast<unsigned char>(c), 0x80) << line;
        }
      }
    }
  }
}

TEST(WatchScreen, shows_the_sentence_speed_terms_ranks_checkpoint_and_events) {
  const std::string text = joined(watch_screen(full_summary(), {.columns = 100}, now));
  for (const char* part :
       {"kjv\\x1b[2J: slow since step 120", "running, step 1,200 of 100,000, loss 2.0866",
        "12,345 tokens/s (13,000 predicted, -5.0 %)", "a step takes 1.000 s, 0.900 s predicted",
        "useful compute", "50.0 %", "rank 3: 190.0 ms late, computes 600.0 ms",
        "can go back to step 1,000, saved 10 min ago (1 kept)",
        "step 1,005 skip: step was skipped\\n", "note: ranks.bin: is missing", "loss"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
  EXPECT_EQ(text.find("rank 0:"), std::string::npos);  // it is not late
}

TEST(WatchScreen, keeps_to_the_rows_of_a_small_terminal) {
  for (const int rows : {1, 5, 12, 24, 60}) {
    EXPECT_LE(std::ssize(watch_screen(full_summary(), {.columns = 40, .rows = rows}, now)), rows);
  }
}

TEST(WatchScreen, a_run_that_has_written_nothing_is_shown) {
  RunSummary s;
  s.run.name = "new";
  s.diagnosis.sentence = "no steps yet";
  const std::string text = joined(watch_screen(s, {.columns = 40}, now));
  EXPECT_NE(text.find("new: no steps yet"), std::string::npos);
  EXPECT_NE(text.find("no checkpoint to go back to"), std::string::npos);
}

TEST(WatchScreen, lines_are_split_between_words_and_long_words_are_cut) {
  EXPECT_EQ(wrapped("one two three", 8), (std::vector<std::string>{"one two", "three"}));
  EXPECT_EQ(wrapped("abcdefghij", 4), (std::vector<std::string>{"abcd", "efgh", "ij"}));
  EXPECT_EQ(wrapped("", 4), (std::vector<std::string>{""}));
}

TEST(WatchScreen, a_loss_that_is_not_finite_is_printed) {
  RunSummary s = full_summary();
  s.loss = std::numeric_limits<double>::quiet_NaN();
  EXPECT_NE(joined(watch_screen(s, {.columns = 80}, now)).find("loss nan"), std::string::npos);
  EXPECT_EQ(to_json(s).at("loss").get<std::string>(), "NaN");
}

}  // namespace
}  // namespace trireme::cli
