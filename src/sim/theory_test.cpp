// SPDX-License-Identifier: Apache-2.0
// Simulated bubbles and peaks against the closed forms of the papers. Costs are small whole numbers
// or fractions of powers of two, so that most sums are exact.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "schedule/catalogue.h"
#include "sim/sim.h"

namespace trireme::sim {
namespace {

using schedule::add_p2p;
using schedule::Schedule;
using schedule::SendDxWhen;

struct Times {
  double f = 1, b = 1, w = 1, fb = 3;
};

Result play(const Schedule& with_messages, const Times& times) {
  return simulate(
      with_messages,
      uniform_costs(
          with_messages.stages(),
          {.f = times.f, .b = times.b, .w = times.w, .bw = times.b + times.w, .fb = times.fb},
          {.f_to_w = 1}, 0),
      {}, {});
}

Schedule compute_only(std::string_view name, int ranks, int microbatches, int chunks = 0) {
  return schedule::generate(name, {ranks, microbatches, chunks}).value();
}

double peak(const Result& result) {
  return std::ranges::max(result.ranks, {}, &RankResult::peak_bytes).peak_bytes;
}

double largest_bubble(const Result& result) {
  double largest = 0;
  for (size_t rank = 0; rank < result.ranks.size(); ++rank) {
    largest = std::max(largest, result.bubble_of(rank));
  }
  return largest;
}

const std::vector<Times> some_times = {{1, 1, 1, 3}, {1, 2, 1, 4},  {2, 3, 1, 6},
                                       {3, 4, 2, 9}, {4, 5, 3, 12}, {2, 2, 1, 5}};

TEST(TheoryTest, gpipe_and_1f1b_have_the_textbook_bubble) {
  for (const int p : {1, 2, 3, 4, 8, 16, 32}) {
    for (const int m : {1, 2, 5, 8, 32, 100}) {
      for (const Times& times : some_times) {
        for (const char* name : {"gpipe", "1f1b"}) {
          const Result result = play(add_p2p(compute_only(name, p, m)), times);
          EXPECT_DOUBLE_EQ(result.bubble_fraction(), (p - 1.0) / (m + p - 1.0)) << name << p << m;
          EXPECT_DOUBLE_EQ(result.step_time, (m + p - 1) * (times.f + times.b + times.w));
          EXPECT_DOUBLE_EQ(result.makespan, result.step_time);
          EXPECT_DOUBLE_EQ(peak(result), name[0] == 'g' ? m : std::min(p, m));
        }
      }
    }
  }
}

// A split backward that sends the input gradient after the weight gradient is the merged backward;
// sending it before is never worse.
TEST(TheoryTest, sending_dx_before_w_is_never_worse) {
  for (const int p : {1, 2, 4, 7, 16}) {
    for (const int m : {1, 3, 8, 24}) {
      for (const Times& times : some_times) {
        for (const Schedule& merged : {compute_only("gpipe", p, m), compute_only("1f1b", p, m),
                                       compute_only("interleaved", p, m, 3)}) {
          const Schedule split = split_backward(merged);
          const double whole = play(add_p2p(merged), times).step_time;
          const double after = play(add_p2p(split, SendDxWhen::after_w), times).step_time;
          const double before = play(add_p2p(split, SendDxWhen::before_w), times).step_time;
          EXPECT_DOUBLE_EQ(after, whole);
          EXPECT_LE(before, whole);
        }
      }
    }
  }
}

// The paper has multiples of the ranks; here any number that is at least the ranks.
TEST(TheoryTest, interleaved_has_the_textbook_bubble) {
  for (const int p : {1, 2, 3, 4, 8, 16}) {
    for (const int v : {1, 2, 3, 5, 8}) {
      for (const int m : {p, 2 * p, 5 * p, p + 1, 2 * p + 1, 4 * p - 1}) {
        for (const Times& times : some_times) {
          const Result result = play(add_p2p(compute_only("interleaved", p, m, v)), times);
          EXPECT_DOUBLE_EQ(result.bubble_fraction(), (p - 1.0) / (v * m + p - 1.0))
              << p << " ranks " << m << " micro-batches " << v << " chunks";
        }
      }
    }
  }
}

// Qi et al. 2024: bubble (p - 1)(F + B - W) with p micro-batches in flight, (p - 1)(F + B - 2W)
// with 2p - 1. REQUIRES: W no longer than F and B; m at least the number in flight.
TEST(TheoryTest, zb_h1_and_zb_h2_match_their_table) {
  for (const int p : {2, 3, 4, 8, 16, 32}) {
    for (const int m : {2 * p - 1, 2 * p, 3 * p + 1, 100}) {
      for (const auto& [f, b, w, fb] : some_times) {
        const double work = m * (f + b + w);
        const Result h1 = play(add_p2p(compute_only("zb-h1", p, m)), {f, b, w, fb});
        EXPECT_DOUBLE_EQ(h1.step_time - work, (p - 1) * (f + b - w)) << p << " " << m;
        EXPECT_DOUBLE_EQ(peak(h1), p);
        const Result h2 = play(add_p2p(compute_only("zb-h2", p, m)), {f, b, w, fb});
        EXPECT_DOUBLE_EQ(h2.step_time - work, (p - 1) * (f + b - 2 * w)) << p << " " << m;
        EXPECT_DOUBLE_EQ(peak(h2), 2 * p - 1);
      }
    }
  }
}

// Qi et al. 2024: no bubble if F, B and W take equally long, with the memory of 1F1B, here in
// chunks of half its stages.
TEST(TheoryTest, zb_v_has_no_bubble_with_the_memory_of_1f1b) {
  for (const int p : {1, 2, 3, 4, 8, 16, 32}) {
    for (const int m : {2 * p - 1, 2 * p, 3 * p + 1, 100}) {
      const Result result = play(add_p2p(compute_only("zb-v", p, m)), {});
      EXPECT_DOUBLE_EQ(result.bubble_fraction(), 0) << p << " " << m;
      EXPECT_DOUBLE_EQ(peak(result), 2 * p);
    }
  }
}

// DeepSeek-AI 2024, 2025, for PP stages, a whole backward of B + W and F as long as B (the costs of
// their figures): bubble (PP / 2 - 1)(F&B + (B + W) - 3W), memory PP + 1. The bubble is that of the
// ranks in the middle, which overlap most; if B takes longer than F it is smaller.
TEST(TheoryTest, dualpipe_and_dualpipe_v_match_their_table) {
  for (const char* name : {"dualpipe", "dualpipe-v"}) {
    for (const int p : {2, 4, 6, 8, 16}) {
      for (const int m : {2 * p, 2 * p + 2, 3 * p + 2, 100}) {
        for (const double w : {0.25, 0.5, 0.75, 1.0}) {
          for (const double overlap : {0.75, 0.875, 1.0}) {
            const double fb = overlap * (2 + w);
            const Result result = play(add_p2p(compute_only(name, p, m)), {1, 1, w, fb});
            const int stages = compute_only(name, p, m).stages();
            const double bubble = (stages / 2.0 - 1) * (fb + 1 + w - 3 * w);
            EXPECT_NEAR(largest_bubble(result), bubble, 1e-9) << name << " " << p << " " << m;
            EXPECT_DOUBLE_EQ(peak(result), stages + 1);
            const Result longer_b = play(add_p2p(compute_only(name, p, m)), {1, 1.5, w, fb + 0.5});
            EXPECT_LE(largest_bubble(longer_b),
                      (stages / 2.0 - 1) * (fb + 0.5 + 1.5 + w - 3 * w) + 1e-9);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace trireme::sim
