// SPDX-License-Identifier: Apache-2.0
#include "train/trace/clock_alignment.h"

#include <gtest/gtest.h>

namespace trireme::train {
namespace {

// A rank of `machine` whose clock shows `ahead_ns` more than the first machine's.
struct Made {
  std::string machine;
  int64_t ahead_ns = 0;
};

// Every group has 9 collectives, which end at the multiples of a millisecond, up to 20 us late.
std::vector<RankTrace> traces_of(const std::vector<Made>& ranks,
                                 const std::vector<std::vector<size_t>>& groups) {
  std::vector<RankTrace> traces;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    RankTrace& trace = traces.emplace_back();
    trace.rank = static_cast<int>(rank);
    trace.machine = ranks[rank].machine;
    trace.strings = {"", "all_gather"};
    trace.steps = {{1, ranks[rank].ahead_ns, 0}};
    for (size_t group = 0; group < groups.size(); ++group) {
      trace.strings.push_back("group " + std::to_string(group));
      for (const size_t member : groups[group]) {
        for (int64_t i = 0; member == rank && i < 9; ++i) {
          TraceSpan span;
          span.kind = TraceSpan::Kind::communication;
          span.name = 1;
          span.group = static_cast<int32_t>(2 + group);
          span.sequence = i;
          const int64_t late = 2500 * ((i * 5 + static_cast<int64_t>(rank) * 3) % 9);
          span.end_ns = 1'000'000 * (i + 1) + ranks[rank].ahead_ns + late;
          trace.spans.push_back(span);
        }
      }
    }
  }
  return traces;
}

TEST(ClockAlignmentTest, ranks_of_one_machine_have_one_clock) {
  std::vector<RankTrace> traces = traces_of({{"a"}, {"a"}, {"a"}}, {{0, 1, 2}});
  traces[0].clock_error_seconds = 1e-6;
  traces[2].clock_error_seconds = 2e-6;
  const std::vector<ClockOffset> offsets = align_clocks(traces);
  for (const ClockOffset& offset : offsets) {
    EXPECT_EQ(offset.offset_ns, 0);
    EXPECT_EQ(offset.method, "host clock");
  }
  EXPECT_EQ(offsets[0].error_ns, 0);
  EXPECT_EQ(offsets[1].error_ns, 1000);
  EXPECT_EQ(offsets[2].error_ns, 3000);
}

TEST(ClockAlignmentTest, other_machines_are_aligned_on_the_ends_of_shared_collectives) {
  // The third machine shares no group with the first one.
  const int64_t hour = 3'600'000'000'000;
  const std::vector<ClockOffset> offsets =
      align_clocks(traces_of({{"a"}, {"b", hour}, {"b", hour}, {"c", -hour}}, {{0, 1}, {2, 3}}));
  EXPECT_EQ(offsets[1].method, "ends of collectives");
  EXPECT_EQ(offsets[1].offset_ns, offsets[2].offset_ns);
  ASSERT_TRUE(offsets[1].error_ns && offsets[3].error_ns);
  EXPECT_NEAR(static_cast<double>(offsets[1].offset_ns), static_cast<double>(-hour), 20e3);
  EXPECT_NEAR(static_cast<double>(offsets[3].offset_ns), static_cast<double>(hour), 40e3);
  for (const size_t rank : {1, 3}) {
    EXPECT_GT(*offsets[rank].error_ns, 0);
    EXPECT_LE(*offsets[rank].error_ns, 20'000);
  }
}

TEST(ClockAlignmentTest, without_shared_collectives_steps_begin_at_the_same_time) {
  const std::vector<ClockOffset> offsets =
      align_clocks(traces_of({{"a"}, {"b", 5000}}, {{0}, {1}}));
  EXPECT_EQ(offsets[1].method, "barrier");
  EXPECT_EQ(offsets[1].offset_ns, -5000);
  EXPECT_FALSE(offsets[1].error_ns);
}

}  // namespace
}  // namespace trireme::train
