// SPDX-License-Identifier: Apache-2.0
#include "schedule/lives.h"

#include <gtest/gtest.h>

#include "schedule/catalogue.h"

namespace trireme::schedule {
namespace {

Schedule read(const char* text) {
  const auto schedule = from_text(text);
  EXPECT_TRUE(schedule) << schedule.reason();
  const auto checked = check(schedule.value(), 2);
  EXPECT_TRUE(checked) << checked.reason();
  return schedule.value();
}

TEST(LivesTest, an_input_lives_from_its_receive_on) {
  const Schedule schedule = read(
      "0F0 0SendY0>1 0F1 0SendY1>1 0RecvDy0<1 0BW0 0RecvDy1<1 0BW1\n"
      "1RecvX0<0 1RecvX1<0 1F0 1BW0 1SendDx0>0 1F1 1BW1 1SendDx1>0\n");
  EXPECT_EQ(passages(schedule, 0),
            (std::vector<Passage>{{0, 0, 0, 0, 4, 5, 5}, {0, 1, 2, 2, 6, 7, 7}}));
  EXPECT_EQ(passages(schedule, 1),
            (std::vector<Passage>{{1, 0, 0, 2, 3, 3, 3}, {1, 1, 1, 5, 6, 6, 6}}));
  EXPECT_EQ(in_flight(schedule)[1], (InFlight{1, 1, 1}));
}

TEST(LivesTest, inside_a_rank_an_input_lives_from_the_forward_before_it) {
  const Schedule v = read(
      "0F0 0SendY0>1 3RecvX0<1 3F0 3B0 3SendDx0>1 0RecvDy0<1 0B0 3W0 0W0\n"
      "1RecvX0<0 1F0 2F0 2SendY0>0 2RecvDy0<0 2B0 2W0 1B0 1SendDx0>0 1W0\n");
  EXPECT_EQ(passages(v, 0), (std::vector<Passage>{{0, 0, 0, 0, 6, 7, 9}, {3, 0, 2, 3, 4, 4, 8}}));
  EXPECT_EQ(passages(v, 1), (std::vector<Passage>{{1, 0, 0, 1, 5, 7, 9}, {2, 0, 1, 2, 4, 5, 6}}));
  EXPECT_EQ(stages_of(v, 0), (std::vector<int>{0, 3}));
  EXPECT_TRUE(splits_backward(v.program[0]));
  EXPECT_FALSE(has_pairs(v.program[0]));
}

// The engine relies on it: in every schedule of the catalogue each stage sums gradients in the
// order of the micro-batches.
TEST(LivesTest, stages_run_micro_batches_in_order) {
  for (const Named& named : catalogue()) {
    for (const int ranks : {2, 4}) {
      const auto schedule = generate(named.name, {ranks, 4 * ranks, 0});
      if (!schedule || schedule.value().lanes.size() > 1) continue;
      for (int rank = 0; rank < ranks; ++rank) {
        std::vector<Passage> all = passages(schedule.value(), rank);
        for (size_t i = 0; i < all.size(); ++i) {
          for (size_t j = 0; j < all.size(); ++j) {
            if (all[i].stage != all[j].stage || all[i].microbatch >= all[j].microbatch) continue;
            EXPECT_LT(all[i].f, all[j].f) << named.name;
            EXPECT_LT(all[i].b, all[j].b) << named.name;
            EXPECT_LT(all[i].w, all[j].w) << named.name;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace trireme::schedule
