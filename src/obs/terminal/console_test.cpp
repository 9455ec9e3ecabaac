// SPDX-License-Identifier: Apache-2.0
// The human-readable output: step line, numbers, table, progress and curve.
#include "obs/terminal/console.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <limits>
#include <sstream>
#include <vector>

#include "obs/terminal/curve.h"
#include "obs/terminal/number_text.h"
#include "obs/terminal/progress.h"
#include "obs/terminal/table.h"
#include "obs/terminal/terminal.h"

namespace trireme::obs {
namespace {

// ---- numbers and lines

TEST(Console, step_line_has_the_known_shape) {
  StepLine line{.step = 10,
                .loss = 4.7215,
                .grad_norm = 1.2345,
                .learning_rate = 3e-4,
                .tokens = 5'242'880,
                .tokens_per_second = 5847,
                .step_seconds = 89.67,
                .memory_bytes = static_cast<int64_t>(49.66 * 1024 * 1024 * 1024),
                .memory_fraction = 0.5228,
                .mfu = 0.3424};
  EXPECT_EQ(step_line(line),
            "step: 10  loss:  4.72150  grad_norm:  1.2345  lr: 3.0e-04  tokens: 5.24M  "
            "tps: 5,847 (89.7 s)  memory: 49.66GiB(52.28%)  mfu: 34.24%");
  line.memory_fraction.reset();
  line.mfu.reset();
  line.step = 1;
  line.tokens = 512;
  line.step_seconds = 0.0876;
  line.skipped = 2;
  EXPECT_EQ(step_line(line),
            "step:  1  loss:  4.72150  grad_norm:  1.2345  lr: 3.0e-04  tokens: 512  "
            "tps: 5,847 (0.0876 s)  memory: 49.66GiB  skipped: 2");
}

TEST(NumberText, groups_digits) {
  EXPECT_EQ(grouped(int64_t{0}), "0");
  EXPECT_EQ(grouped(int64_t{999}), "999");
  EXPECT_EQ(grouped(int64_t{1000}), "1,000");
  EXPECT_EQ(grouped(int64_t{-123456}), "-123,456");
  EXPECT_EQ(grouped(int64_t{-1234567}), "-1,234,567");
  EXPECT_EQ(grouped(std::numeric_limits<int64_t>::min()), "-9,223,372,036,854,775,808");
  EXPECT_EQ(grouped(1234.5, 2), "1,234.50");
  EXPECT_EQ(grouped(999.96, 0), "1,000");
  EXPECT_EQ(grouped(std::nan(""), 0), "nan");
}

TEST(NumberText, large_counts_have_three_digits) {
  EXPECT_EQ(count_text(0), "0");
  EXPECT_EQ(count_text(99'999), "99,999");
  EXPECT_EQ(count_text(100'000), "100K");
  EXPECT_EQ(count_text(999'499), "999K");
  EXPECT_EQ(count_text(999'500), "1.00M");
  EXPECT_EQ(count_text(12'345'678), "12.3M");
  EXPECT_EQ(count_text(15'000'000'000'000), "15.0T");
  EXPECT_EQ(count_text(-1'536'000), "-1.54M");
}

TEST(NumberText, bytes_and_durations) {
  EXPECT_EQ(bytes_text(312), "312 B");
  EXPECT_EQ(bytes_text(1536), "1.50 KiB");
  EXPECT_EQ(bytes_text(1024 * 1024 - 1), "1.00 MiB");
  EXPECT_EQ(bytes_text(int64_t{3} << 40), "3.00 TiB");
  EXPECT_EQ(duration_text(62), "1:02");
  EXPECT_EQ(duration_text(3723), "1:02:03");
  EXPECT_EQ(duration_text(59.7), "1:00");
  EXPECT_EQ(duration_text(90061), "1d 01:01:01");
  EXPECT_EQ(duration_text(std::nan("")), "?");
}

TEST(Table, aligns_columns_of_any_text) {
  const std::vector<Column> columns = {{"memory", Align::left}, {"predicted"}, {"measured"}};
  const std::vector<std::vector<std::string>> rows = {
      {"weights", "1,024,000", "1,024,000"}, {"größe", "7", "8"}, {}, {"total", "", "x"}};
  EXPECT_EQ(table_text(columns, rows),
            "memory  | predicted |  measured\n"
            "--------+-----------+----------\n"
            "weights | 1,024,000 | 1,024,000\n"
            "größe   |         7 |         8\n"
            "--------+-----------+----------\n"
            "total   |           |         x\n");
  const std::vector<Column> left = {{"a", Align::left}, {"b", Align::left}};
  const std::vector<std::vector<std::string>> one = {{"1", "2"}};
  EXPECT_EQ(table_text(left, one), "a | b\n--+--\n1 | 2\n");
}

TEST(Terminal, a_pipe_is_no_terminal) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  EXPECT_FALSE(is_terminal(ends[1]));
  EXPECT_EQ(terminal_width(ends[1], 91), 91);
  write_quietly(ends[1], "hello");
  char text[6] = {};
  EXPECT_EQ(::read(ends[0], text, 5), 5);
  EXPECT_STREQ(text, "hello");
  ::close(ends[0]);
  ::close(ends[1]);
  write_quietly(ends[1], "no reader");
}

TEST(Terminal, text_is_cut_between_characters) {
  EXPECT_EQ(columns_of("größe"), 5);
  EXPECT_EQ(cut_to_columns("größe", 3), "grö");
  EXPECT_EQ(cut_to_columns("größe", 9), "größe");
  EXPECT_EQ(cut_to_columns("größe", 0), "");
}

// ---- progress

class ProgressTest : public testing::Test {
 protected:
  ProgressOptions options(bool is_live) {
    return {.label = "train",
            .unit = "steps",
            .total = 1000,
            .is_live = is_live,
            .width = [this] { return width_; },
            .plain_seconds = 10,
            .clock = [this] { return now_; },
            .write = [this](std::string_view text) { out_ += text; }};
  }
  std::string taken() { return std::exchange(out_, ""); }

  double now_ = 100;
  int width_ = 100;
  std::string out_;
};

TEST_F(ProgressTest, plain_lines_come_every_few_seconds) {
  Progress progress(options(false));
  EXPECT_EQ(taken(), "");
  now_ = 109;
  progress.update(90);
  EXPECT_EQ(taken(), "");
  now_ = 120;
  progress.update(200, "loss 4.5");
  EXPECT_EQ(taken(), "train  20%  200/1,000 steps  10.0/s  ETA 1:20  loss 4.5\n");
  progress.log("step: 200");
  EXPECT_EQ(taken(), "step: 200\n");
  now_ = 200;
  progress.update(1000);
  EXPECT_EQ(taken(), "train 100%  1,000/1,000 steps  10.0/s  in 1:40\n");
  progress.finish();
  progress.finish();
  EXPECT_EQ(taken(), "train 100%  1,000/1,000 steps  10.0/s  in 1:40\n");
}

TEST_F(ProgressTest, the_live_line_is_drawn_over_itself_and_stays_below_the_log) {
  {
    Progress progress(options(true));
    EXPECT_EQ(taken(), "\r\x1b[Ktrain [------------------------------]   0%  0/1,000 steps  ETA ?");
    now_ = 100.05;
    progress.update(1);
    EXPECT_EQ(taken(), "") << "drawn too often";
    now_ = 300;
    progress.update(500, "loss 4.5");
    const std::string drawn =
        "\r\x1b[Ktrain [###############---------------]  50%  500/1,000 steps  2.5/s  ETA 3:20  "
        "loss 4.5";
    EXPECT_EQ(taken(), drawn);
    progress.log("a log line");
    EXPECT_EQ(taken(), "\r\x1b[Ka log line\n" + drawn);
  }
  EXPECT_EQ(taken(), "\n") << "what follows starts on a new line";
}

TEST_F(ProgressTest, no_width_is_too_small) {
  ProgressOptions narrow = options(true);
  narrow.total = 1000;
  Progress progress(narrow);
  for (const int width : {80, 40, 20, 5, 1, 0}) {
    width_ = width;
    now_ += 1;
    taken();
    progress.update(500, "loss 4.5");
    const std::string text = taken();
    ASSERT_EQ(text.rfind("\r\x1b[K", 0), 0U);
    EXPECT_LE(columns_of(text.substr(4)), std::max(width - 1, 1)) << width;
  }
  progress.finish();
}

TEST_F(ProgressTest, a_narrow_line_keeps_share_and_eta) {
  const auto drawn = [this](int width) {
    width_ = width;
    now_ = 300;
    Progress progress(options(true));
    progress.begin(0);
    now_ = 500;
    taken();
    progress.update(500, "loss 4.5");
    return taken().substr(4);
  };
  EXPECT_EQ(drawn(60), "train  50%  500/1,000 steps  2.5/s  ETA 3:20  loss 4.5");
  EXPECT_EQ(drawn(50), "train  50%  500/1,000 steps  2.5/s  ETA 3:20");
  EXPECT_EQ(drawn(40), "train  50%  500/1,000 steps  ETA 3:20");
  EXPECT_EQ(drawn(30), "train  50%  ETA 3:20");
}

TEST_F(ProgressTest, without_escape_codes_blanks_erase_the_line) {
  ProgressOptions plain = options(true);
  plain.has_escapes = false;
  width_ = 40;
  Progress progress(plain);
  EXPECT_EQ(taken(), "\rtrain   0%  0/1,000 steps  ETA ?");
  progress.log("a log line");
  EXPECT_EQ(taken(),
            "\r" + std::string(32, ' ') + "\ra log line\n\rtrain   0%  0/1,000 steps  ETA ?");
}

TEST_F(ProgressTest, a_continued_job_has_an_honest_rate) {
  ProgressOptions continued = options(false);
  continued.done = 900;
  Progress progress(continued);
  now_ = 120;
  progress.update(902);
  EXPECT_EQ(taken(), "train  90%  902/1,000 steps  10.0 s each  ETA 16:20\n");
}

TEST_F(ProgressTest, the_rate_is_that_of_the_work) {
  Progress progress(options(true));
  now_ = 100;
  progress.begin(0);
  now_ = 200;
  progress.update(400);
  progress.exclude(50);  // a validation
  now_ = 350;
  progress.update(800);
  now_ = 450;  // the last save
  taken();
  progress.finish();
  EXPECT_NE(taken().find("800/1,000 steps  4.0/s"), std::string::npos);
}

TEST_F(ProgressTest, without_a_total_it_counts) {
  ProgressOptions open = options(false);
  open.total = 0;
  Progress progress(open);
  now_ = 110;
  progress.update(12345);
  EXPECT_EQ(taken(), "train 12,345 steps  1,234/s\n");
}

// ---- curve

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

TEST(Curve, ascii_golden) {
  const std::vector<CurveSeries> series = {{"loss", {{0, 4}, {10, 2}, {20, 1}, {30, 1}}},
                                           {"validation", {{30, 2.5}}}};
  EXPECT_EQ(curve_text(series, {.width = 32, .height = 7, .is_unicode = false}),
            "4.000 |**\n"
            "      |  **\n"
            "      |   ***\n"
            "2.500 |     **                 o\n"
            "      |       ***\n"
            "      |         *****\n"
            "1.000 |             ************\n"
            "      +-------------------------\n"
            "       0         step         30\n"
            "       ** loss   o validation\n");
}

// 20 steps from 5 down to 2, with a spike of two logged steps.
std::vector<CurvePoint> descent_with_spike(double spike) {
  std::vector<CurvePoint> points;
  for (int step = 1; step <= 20; ++step) {
    points.push_back({static_cast<double>(step), 2 + 3.0 / step});
  }
  points[11].y = points[12].y = spike;
  return points;
}

TEST(Curve, a_spike_does_not_take_the_height) {
  const std::vector<CurveSeries> series = {{"loss", descent_with_spike(80)}};
  const auto lines = lines_of(curve_text(series, {.width = 60, .height = 10, .is_unicode = false}));
  EXPECT_TRUE(lines[0].starts_with("5.000 |")) << lines[0];
  EXPECT_NE(lines[0].find('^'), std::string::npos) << lines[0];
  EXPECT_EQ(lines.back(), "       ^ 2 values above 5.000, up to 80.000");
}

TEST(Curve, what_is_no_spike_is_drawn_whole) {
  // As high as the start; and a start that is far above all that follows.
  std::vector<CurvePoint> falling = descent_with_spike(2);
  falling[0].y = 80;
  for (const auto& points : {descent_with_spike(5), falling}) {
    const std::vector<CurveSeries> series = {{"loss", points}};
    const std::string text = curve_text(series, {.width = 60, .height = 10, .is_unicode = false});
    EXPECT_EQ(text.find('^'), std::string::npos) << text;
  }
}

TEST(Curve, unicode_fits_and_has_all_lines) {
  CurveSeries falling{"loss", {}};
  for (int i = 0; i < 1000; ++i) {
    falling.points.push_back({static_cast<double>(i), 5 * std::exp(-i / 200.0) + 1});
  }
  const std::vector<CurveSeries> series = {falling};
  const auto lines = lines_of(curve_text(series, {.width = 60, .height = 10}));
  ASSERT_EQ(lines.size(), 13U);
  for (const std::string& line : lines) {
    EXPECT_LE(columns_of(line), 60) << line;
    EXPECT_FALSE(line.ends_with(' ')) << line;
  }
  EXPECT_NE(lines.front().find("6.000 │⠱⡀"), std::string::npos) << lines.front();
  EXPECT_NE(lines[11].find("999"), std::string::npos) << lines[11];
}

TEST(Curve, odd_input_is_drawn_or_refused_in_words) {
  const CurveOptions small{.width = 24, .height = 2, .is_unicode = false};
  const double nan = std::nan("");
  EXPECT_EQ(curve_text({}, small), "(no finite value to draw)\n");
  const std::vector<CurveSeries> none = {{"loss", {{1, nan}, {nan, 2}}}};
  EXPECT_EQ(curve_text(none, small), "(no finite value to draw)\n");
  const std::vector<CurveSeries> flat = {{"loss", {{1, 3}, {2, nan}, {3, 3}}}};
  EXPECT_NE(curve_text(flat, small).find('*'), std::string::npos);
  const std::vector<CurveSeries> point = {{"", {{5, 1e9}}}, {"v", {{5, 1e9}}}};
  for (const bool is_unicode : {false, true}) {
    for (const int height : {2, 3, 20}) {
      const CurveOptions options{.width = 30, .height = height, .is_unicode = is_unicode};
      EXPECT_EQ(lines_of(curve_text(point, options)).size(), static_cast<size_t>(height) + 3);
    }
  }
}

}  // namespace
}  // namespace trireme::obs
