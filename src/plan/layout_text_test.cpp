// SPDX-License-Identifier: Apache-2.0
#include "plan/layout_text.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "plan/samples_test.h"
#include "schedule/catalogue.h"

namespace trireme::plan {
namespace {

std::string refused(const std::string& text, int64_t processors = 8) {
  try {
    (void)layout_from_text(text, processors);
  } catch (const base::ConfigError& error) {
    return error.what();
  }
  return "not refused";
}

TEST(LayoutText, any_layout_comes_back) {
  Dice dice(13);
  for (int i = 0; i < 2000; ++i) {
    Layout l = any_layout(dice);
    l.cp = dice.of<int>({1, 2, 4});
    l.ep = dice.of<int>({1, 8});
    l.precision = static_cast<Precision>(dice.below(static_cast<size_t>(Precision::count)));
    if (l.pp > 1) l.placement = static_cast<Placement>(dice.below(2));
    EXPECT_EQ(layout_from_text(to_text(l), l.processors()), l) << to_text(l);
  }
}

TEST(LayoutText, what_is_left_out_is_as_in_a_fresh_layout) {
  Layout l;
  l.dp = 8;
  EXPECT_EQ(layout_from_text("", 8), l);
  l = {};
  l.tp = 8;
  l.sequence_parallel = true;
  l.pp = 4;
  l.pipe = Pipe::interleaved;
  l.chunks = 3;
  l.dp = 2;
  l.zero = 1;
  l.micro_batch = 2;
  l.recompute = spec::Recompute::full;
  EXPECT_EQ(layout_from_text("tp=8 sp, pp=4 interleaved=3 zero=1\tmicro=2 full", 64), l);
  EXPECT_EQ(layout_from_text("pp=2 interleaved", 2).chunks, 2);
  EXPECT_EQ(layout_from_text("pp=2 zb-v", 2).chunks, 2);
  EXPECT_EQ(layout_from_text("pp=2 interleaved=4 zb-h1", 2).chunks, 1);
}

TEST(LayoutText, the_word_that_is_wrong_is_named) {
  EXPECT_EQ(refused("tp=x"), "layout: 'tp=x': expected a number from 1 to 1048576");
  EXPECT_EQ(refused("tp=0"), "layout: 'tp=0': expected a number from 1 to 1048576");
  EXPECT_EQ(refused("zero=4"), "layout: 'zero=4': expected a number from 0 to 3");
  EXPECT_TRUE(refused("tq=2").starts_with("layout: 'tq=2' is none of tp=N"));
  EXPECT_TRUE(refused("fast").starts_with("layout: 'fast' is none of tp=N"));
  EXPECT_EQ(refused("tp=3"), "layout 'tp=3': 8 GPUs do not divide by tp x cp x pp = 3");
  EXPECT_EQ(refused("tp=2 dp=2"),
            "layout 'tp=2 dp=2': tp x cp x pp x dp = 2 x 1 x 1 x 2 are not the 8 GPUs");
  EXPECT_NE(refused("tp=1048576 pp=1048576 cp=1048576 dp=1048576").find("are not the 8 GPUs"),
            std::string::npos);
}

TEST(LayoutText, words_say_what_matters) {
  Layout l = layout_from_text("tp=8 sp pp=4 interleaved=3 zero=1 micro=2 full", 1024);
  EXPECT_EQ(words(l),
            "tp 8 sp, pp 4 interleaved x 3, dp 32 ZeRO-1, micro-batch 2, full recompute, bf16");
  l.placement = Placement::pp_inside;
  EXPECT_TRUE(words(l).ends_with(", stages side by side"));
  EXPECT_EQ(words({}), "dp 1, micro-batch 1, bf16");
}

TEST(LayoutText, names_of_schedules_are_those_of_the_catalogue) {
  for (int i = 0; i < static_cast<int>(Pipe::count); ++i) {
    const auto pipe = static_cast<Pipe>(i);
    EXPECT_EQ(pipe_from(name_of(pipe)), pipe);
    const auto named = schedule::find_named(name_of(pipe));
    ASSERT_TRUE(named) << name_of(pipe);
    EXPECT_EQ(named.value().chunks, fixed_chunks(pipe)) << name_of(pipe);
  }
  EXPECT_FALSE(pipe_from("none"));
}

}  // namespace
}  // namespace trireme::plan
