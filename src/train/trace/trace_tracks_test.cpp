// SPDX-License-Identifier: Apache-2.0
#include "train/trace/trace_tracks.h"

#include <gtest/gtest.h>

#include <random>

#include "train/trace/collective_times.h"

namespace trireme::train {
namespace {

// Expects that slices of the list nest as their depths say, or are apart.
void expect_nested(const std::vector<Slice>& slices) {
  std::vector<Slice> open;
  for (const Slice& slice : slices) {
    EXPECT_LE(slice.begin_ns, slice.end_ns);
    while (open.size() > static_cast<size_t>(slice.depth)) {
      const Slice before = open.back();
      open.pop_back();
      // Slices without a duration may share their time.
      const bool is_tiny = slice.begin_ns == slice.end_ns || before.begin_ns == before.end_ns;
      EXPECT_TRUE(before.end_ns < slice.begin_ns || (is_tiny && before.end_ns <= slice.begin_ns));
    }
    ASSERT_EQ(open.size(), static_cast<size_t>(slice.depth));
    if (!open.empty()) {
      EXPECT_GE(slice.begin_ns, open.back().begin_ns);
      EXPECT_LE(slice.end_ns, open.back().end_ns);
    }
    open.push_back(slice);
  }
}

TEST(TraceTracksTest, slices_end_before_the_next_begins_and_inside_of_the_one_around) {
  std::vector<Slice> slices = {{.name = "step", .depth = 0, .begin_ns = 0, .end_ns = 100},
                               {.name = "a", .depth = 1, .begin_ns = 0, .end_ns = 40},
                               {.name = "in a", .depth = 2, .begin_ns = 10, .end_ns = 40},
                               {.name = "b", .depth = 1, .begin_ns = 40, .end_ns = 100},
                               {.name = "next", .depth = 0, .begin_ns = 100, .end_ns = 110}};
  nest(slices);
  const auto at = [&](size_t i) { return std::pair(slices[i].begin_ns, slices[i].end_ns); };
  EXPECT_EQ(at(0), (std::pair<int64_t, int64_t>(0, 99)));
  EXPECT_EQ(at(1), (std::pair<int64_t, int64_t>(0, 39)));
  EXPECT_EQ(at(2), (std::pair<int64_t, int64_t>(10, 38)));
  EXPECT_EQ(at(3), (std::pair<int64_t, int64_t>(40, 98)));
  EXPECT_EQ(at(4), (std::pair<int64_t, int64_t>(100, 109)));
}

TEST(TraceTracksTest, times_in_any_disorder_nest) {
  std::mt19937_64 random(7);
  const auto number = [&](int64_t below) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(below));
  };
  for (int round = 0; round < 2000; ++round) {
    std::vector<Slice> slices;
    int depth = 0;
    for (int i = 0; i < 12; ++i) {
      const int64_t begin = number(40);
      slices.push_back({.depth = depth, .begin_ns = begin, .end_ns = begin + number(30) - 3});
      depth = static_cast<int>(number(depth + 2));
    }
    nest(slices);
    expect_nested(slices);
  }
}

TraceSpan span(TraceSpan::Kind kind, int32_t stream, int64_t begin_ns, int64_t end_ns) {
  TraceSpan made;
  made.kind = kind;
  made.stream = stream;
  made.step = 1;
  made.begin_ns = begin_ns;
  made.end_ns = end_ns;
  made.bytes = 8;
  return made;
}

TEST(CollectiveTimesTest, what_compute_does_not_hide_is_exposed) {
  using Kind = TraceSpan::Kind;
  // Compute is busy from 0 to 100 and from 200 to 300; calls on stream 1 take 50 to 250.
  RankTrace trace{.rank = 3, .streams = {"compute", "dp"}, .strings = {"", "dp", "all_gather"}};
  trace.steps = {{1, 0, 400}};
  trace.spans = {span(Kind::op, 0, 0, 100), span(Kind::wait, 0, 100, 200),
                 span(Kind::op, 0, 200, 300), span(Kind::communication, 0, 300, 310),
                 span(Kind::communication, 1, 50, 250)};
  for (TraceSpan& each : trace.spans) {
    each.name = 2;
    each.group = each.stream == 1 ? 1 : 0;
  }
  const std::vector<CollectiveTime> rows = collective_times({trace});
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].group, "");  // on compute
  EXPECT_NEAR(rows[0].seconds, 10e-9, 1e-15);
  EXPECT_NEAR(rows[0].exposed_seconds, 10e-9, 1e-15);
  EXPECT_EQ(rows[1].group, "dp");
  EXPECT_EQ(rows[1].rank, 3);
  EXPECT_EQ(rows[1].calls, 1);
  EXPECT_EQ(rows[1].bytes, 8);
  EXPECT_NEAR(rows[1].seconds, 200e-9, 1e-15);
  EXPECT_NEAR(rows[1].exposed_seconds, 100e-9, 1e-15);
}

}  // namespace
}  // namespace trireme::train
