// SPDX-License-Identifier: Apache-2.0
#include "plan/memory/in_flight.h"

#include <gtest/gtest.h>

#include "plan/memory/stage_share.h"
#include "plan/samples_test.h"
#include "schedule/catalogue.h"
#include "schedule/lives.h"
#include "spec/layout/layout_text.h"

namespace trireme::plan {
namespace {

// Counts position by position in the full schedule.
double max_alive(const schedule::Schedule& schedule, int rank, size_t stages, bool until_w) {
  const std::vector<int> own = schedule::stages_of(schedule, rank);
  const auto passages = schedule::passages(schedule, rank);
  const auto length = static_cast<int>(schedule.program[static_cast<size_t>(rank)].size());
  double peak = 0;
  for (int at = 0; at < length; ++at) {
    double alive = 0;
    for (const schedule::Passage& p : passages) {
      const bool counts = p.stage <= own[stages - 1];
      if (counts && p.f <= at && at <= (until_w ? p.w : p.b)) alive += 1;
    }
    peak = std::max(peak, alive);
  }
  return peak;
}

void expect_counted(const Layout& l, int micro_batches) {
  const auto made = schedule::generate(name_of(l.schedule), {l.pp, micro_batches, l.chunks});
  ASSERT_TRUE(made) << to_text(l);
  InFlightTable table;
  const InFlight& found = table.find(l, micro_batches);
  const EndRanks ends = end_ranks(l);
  ASSERT_EQ(found.ranks.size(), static_cast<size_t>(ends.count));
  for (size_t i = 0; i < found.ranks.size(); ++i) {
    for (size_t k = 0; k < static_cast<size_t>(l.chunks); ++k) {
      EXPECT_EQ(found.ranks[i].f_to_b[k], max_alive(made.value(), ends.ranks[i], k + 1, false))
          << to_text(l) << " rank " << ends.ranks[i] << " stage " << k << " m " << micro_batches;
      EXPECT_EQ(found.ranks[i].f_to_w[k], max_alive(made.value(), ends.ranks[i], k + 1, true))
          << to_text(l) << " rank " << ends.ranks[i] << " stage " << k << " m " << micro_batches;
    }
  }
}

TEST(InFlight, peaks_are_those_of_the_schedules) {
  for (const Kind pipe :
       {Kind::gpipe, Kind::one_f_one_b, Kind::zb_h1, Kind::zb_h2, Kind::zb_v, Kind::dualpipe_v}) {
    for (const int pp : {2, 3, 4, 6}) {
      Layout l;
      l.pp = pp;
      l.schedule = pipe;
      l.chunks = schedule::named(pipe).chunks;
      for (const int m : {2 * pp, 3 * pp, 5 * pp}) expect_counted(l, m);
    }
  }
}

TEST(InFlight, interleaved_peaks_are_those_of_the_schedule) {
  for (const int pp : {2, 3, 4}) {
    for (const int chunks : {2, 3, 5}) {
      Layout l;
      l.pp = pp;
      l.schedule = Kind::interleaved;
      l.chunks = chunks;
      for (const int m : {pp, 2 * pp, 5 * pp}) expect_counted(l, m);
    }
  }
}

TEST(InFlight, one_stage_has_one_micro_batch) {
  InFlightTable table;
  Layout l;
  l.chunks = 1;
  EXPECT_EQ(table.find(l, 100).ranks.front().f_to_w.front(), 1);
}

// Exact if earlier stages are the larger ones, otherwise an upper bound.
TEST(InFlight, peaks_of_stages_of_different_sizes_add_up) {
  const InFlight::Peaks peaks = {3, 5};
  const auto bytes = [&](double first, double second) {
    return peak_bytes(peaks, [&](size_t stage) { return stage == 0 ? first : second; });
  };
  EXPECT_EQ(bytes(10, 10), 50);
  EXPECT_EQ(bytes(10, 4), 3 * 10 + 2 * 4);
  EXPECT_EQ(bytes(4, 10), 50);
}

TEST(InFlightTest, a_table_distinguishes_many_chunks) {
  InFlightTable table;
  Layout many;
  many.pp = 2;
  many.schedule = Kind::interleaved;
  many.chunks = 514;
  Layout few = many;
  few.pp = 3;
  few.chunks = 2;
  EXPECT_EQ(table.find(many, 6).ranks.front().f_to_b.size(), 514U);
  EXPECT_EQ(table.find(few, 6).ranks.front().f_to_b.size(), 2U);
}

}  // namespace
}  // namespace trireme::plan
