// SPDX-License-Identifier: Apache-2.0
#include "train/generate/stop_text.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace trireme::train {
namespace {

struct Out {
  std::string text;
  bool is_stopped = false;
  bool operator==(const Out&) const = default;
};

// Pushes a text in pieces of these sizes; the last size repeats.
Out run(const std::vector<std::string>& stops, std::string_view text,
        const std::vector<size_t>& sizes = {1}) {
  StopText stop(stops);
  Out out;
  for (size_t i = 0; !text.empty() && !stop.is_stopped(); ++i) {
    const size_t size = std::min(text.size(), sizes[std::min(i, sizes.size() - 1)]);
    out.text += stop.push(text.substr(0, size));
    text.remove_prefix(size);
  }
  out.is_stopped = stop.is_stopped();
  if (!out.is_stopped) out.text += stop.finish();
  return out;
}

TEST(StopTextTest, text_ends_before_the_stop_string) {
  EXPECT_EQ(run({"END"}, "some text END more"), (Out{"some text ", true}));
  EXPECT_EQ(run({"END"}, "some text"), (Out{"some text", false}));
  EXPECT_EQ(run({}, "some text"), (Out{"some text", false}));
  EXPECT_EQ(run({"a"}, "a"), (Out{"", true}));
}

TEST(StopTextTest, a_stop_string_is_found_across_pieces) {
  EXPECT_EQ(run({"\n\n"}, "one\n\ntwo", {4, 1}), (Out{"one", true}));
  EXPECT_EQ(run({"abab"}, "xabaabab", {3, 2}), (Out{"xaba", true}));
}

TEST(StopTextTest, a_beginning_that_is_not_continued_is_returned) {
  StopText stop({"stop"});
  EXPECT_EQ(stop.push("a sto"), "a ");
  EXPECT_EQ(stop.push("ne, st"), "stone, ");
  EXPECT_EQ(stop.finish(), "st");
  EXPECT_FALSE(stop.is_stopped());
}

TEST(StopTextTest, the_stop_string_that_is_complete_first_counts) {
  EXPECT_EQ(run({"bcde", "cd"}, "abcdef"), (Out{"ab", true}));
  EXPECT_EQ(run({"cd", "bcd"}, "abcdef"), (Out{"a", true}));
}

// Whatever the pieces are, the text is the one that a single piece gives.
TEST(StopTextTest, pieces_do_not_matter) {
  constexpr uint64_t seed = 11;
  for (uint64_t i = 0; i < 2000; ++i) {
    uint64_t draw = i << 20;
    const auto below = [&](uint64_t bound) { return base::rng_below(seed, draw++, bound); };
    const auto word = [&](uint64_t length) {
      std::string text;
      for (uint64_t c = 0; c < length; ++c) text += static_cast<char>('a' + below(2));
      return text;
    };
    const std::vector<std::string> stops = {word(1 + below(5)), word(2 + below(4))};
    const std::string text = word(below(20));
    std::vector<size_t> sizes;
    for (int n = 0; n < 20; ++n) sizes.push_back(1 + below(4));
    EXPECT_EQ(run(stops, text, sizes), run(stops, text, {1}))
        << stops[0] << " " << stops[1] << " " << text;
  }
}

}  // namespace
}  // namespace trireme::train
