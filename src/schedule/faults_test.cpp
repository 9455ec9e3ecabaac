// SPDX-License-Identifier: Apache-2.0
// Faults planted in schedules with several chunks, two lanes and pairs: each is reported with rank
// and position. schedule_test.cpp has those of one straight lane.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "schedule/catalogue.h"
#include "schedule/edits_test.h"

namespace trireme::schedule {
namespace {

struct Planted {
  std::string what;
  std::string schedule;
  std::function<void(Schedule&)> plant;
  int rank;
  std::string action;  // where it is found
  std::string reason;  // without the place
};

// Moves the action directly before the other.
void move_before(Schedule& schedule, size_t rank, std::string_view text, std::string_view other) {
  const Action action = *find(schedule, rank, text);
  drop(schedule, rank, text);
  schedule.program[rank].insert(find(schedule, rank, other), action);
}

const std::vector<Planted>& planted() {
  static const std::vector<Planted> all = {
      {"the wrong chunk", "interleaved", [](Schedule& s) { find(s, 0, "2F0")->stage = 3; }, 0,
       "3F0", "the lane of micro-batch 0 puts stage 3 on rank 1"},
      {"chunks swapped", "interleaved", [](Schedule& s) { swap(s, 1, "1F0", "3F0"); }, 1, "3F0",
       "its input was not received"},
      {"chunks of a backward swapped", "interleaved",
       [](Schedule& s) { swap(s, 1, "3BW0", "1BW0"); }, 1, "1BW0",
       "its output gradient was not received"},
      {"a message to the wrong chunk", "interleaved",
       [](Schedule& s) { swap(s, 0, "2RecvX0<1", "2RecvX1<1"); }, 0, "2RecvX1<1",
       "not first-in first-out: the channel brings rank 1, action 2 (1SendY0>0) next"},
      {"F before the turn of the V", "zb-v", [](Schedule& s) { swap(s, 1, "1F0", "2F0"); }, 1,
       "2F0", "F of the stage before has not run"},
      {"B before the turn of the V", "zb-v", [](Schedule& s) { swap(s, 1, "2B0", "1B0"); }, 1,
       "1B0", "B of the stage after has not run"},
      {"W before its B", "zb-v", [](Schedule& s) { swap(s, 1, "2B3", "2W3"); }, 1, "2W3",
       "its B has not run"},
      {"two W", "zb-v", [](Schedule& s) { find(s, 1, "2W3")->microbatch = 2; }, 1, "2W2",
       "runs a second time"},
      {"ReduceGrads before the last W", "zb-v",
       [](Schedule& s) { move_before(s, 0, "0ReduceGrads", "0W3"); }, 0, "0ReduceGrads",
       "comes before the last weight gradient of its stage"},
      {"a message inside a rank", "zb-v",
       [](Schedule& s) {
         s.program[1].insert(find(s, 1, "2F0"), {Op::RecvX, 2, 1, 0});
       },
       1, "2RecvX0<1", "the stage at the other end is on the same rank"},
      {"the lane of another micro-batch", "dualpipe",
       [](Schedule& s) { find(s, 0, "0F2")->microbatch = 3; }, 0, "0F3",
       "the lane of micro-batch 3 puts stage 0 on rank 1"},
      {"the peer of the other lane", "dualpipe",
       [](Schedule& s) { find(s, 0, "0SendY0>1")->peer = 0; }, 0, "0SendY0>0",
       "the stage at the other end is on rank 1"},
      {"a pair torn apart", "dualpipe",
       [](Schedule& s) { move_before(s, 0, "0RecvDy0<1", "0BW0"); }, 0, "1F3&",
       "is paired with 0RecvDy0<1, which is neither B nor BW"},
      {"a pair of one micro-batch", "dualpipe",
       [](Schedule& s) { find(s, 0, "0BW0")->microbatch = 3; }, 0, "1F3&",
       "is paired with 0BW3 of the same micro-batch"},
      {"a pair that begins with a backward", "dualpipe",
       [](Schedule& s) { find(s, 0, "1BW1")->with_next = true; }, 0, "1BW1&",
       "only an F begins a pair"},
      {"a pair without end", "dualpipe",
       [](Schedule& s) {
         s.program[0].resize(static_cast<size_t>(find(s, 0, "0BW0") - s.program[0].begin()));
       },
       0, "1F3&", "the other action of the pair is missing"},
      {"a pair's message sent before it", "dualpipe",
       [](Schedule& s) { move_before(s, 1, "0SendY3>0", "0F3"); }, 1, "0SendY3>0",
       "what it sends is not computed yet"},
      {"a lost gradient of the second lane", "dualpipe",
       [](Schedule& s) { drop(s, 1, "0RecvDy1<0"); }, 1, "0BW1",
       "its output gradient was not received"},
      {"R after B", "recompute", [](Schedule& s) { swap(s, 1, "1R1", "1BW1"); }, 1, "1R1",
       "belongs once between F and B"},
      {"two R", "recompute", [](Schedule& s) { find(s, 0, "0R1")->microbatch = 0; }, 0, "0R0",
       "belongs once between F and B"},
  };
  return all;
}

Schedule sound(const std::string& name) {
  if (name == "recompute") return add_p2p(add_recompute(one_f_one_b(2, 2)));
  return add_tied(add_reduce(add_p2p(generate(name, {2, 4, 0}).value())));
}

TEST(FaultsTest, planted_faults_are_named_with_rank_and_position) {
  for (const Planted& fault : planted()) {
    Schedule schedule = sound(fault.schedule);
    ASSERT_FALSE(find_fault(schedule, 1)) << fault.what;
    fault.plant(schedule);
    const std::optional<Fault> found = find_fault(schedule, 1);
    ASSERT_TRUE(found) << fault.what << "\n" << to_text(schedule);
    EXPECT_EQ(found->rank, fault.rank) << fault.what << ": " << found->reason;
    const auto rank = static_cast<size_t>(found->rank);
    const auto at = static_cast<size_t>(found->position);
    ASSERT_LT(at, schedule.program[rank].size()) << fault.what;
    EXPECT_EQ(to_text(schedule.program[rank][at]), fault.action) << fault.what;
    EXPECT_EQ(found->reason, fmt::format("rank {}, action {} ({}): {}", rank, at,
                                         to_text(schedule.program[rank][at]), fault.reason))
        << fault.what << "\n"
        << to_text(schedule);
  }
}

// Every action of every kind of schedule is needed at its position.
TEST(FaultsTest, no_action_is_superfluous) {
  for (const Named& named : catalogue()) {
    const Schedule whole = sound(std::string(named.name));
    for (size_t rank = 0; rank < whole.program.size(); ++rank) {
      for (size_t at = 0; at < whole.program[rank].size(); ++at) {
        const auto place = static_cast<std::ptrdiff_t>(at);
        Schedule broken = whole;
        broken.program[rank].erase(broken.program[rank].begin() + place);
        EXPECT_TRUE(find_fault(broken, 1)) << named.name << " without " << rank << ", " << at;
        broken = whole;
        broken.program[rank].insert(broken.program[rank].begin() + place, whole.program[rank][at]);
        EXPECT_TRUE(find_fault(broken, 1)) << named.name << " doubled " << rank << ", " << at;
      }
    }
  }
}

TEST(FaultsTest, a_stage_on_the_wrong_rank_is_found_in_the_text) {
  std::string text = to_text(one_f_one_b(2, 4));
  // All actions of micro-batch 2 on stage 1 are on rank 0.
  for (const char* word : {" 1F2", " 1BW2"}) text.erase(text.find(word), std::string(word).size());
  text.insert(0, "1F2 1BW2 ");
  EXPECT_EQ(from_text(text).reason(),
            "line 1, column 1: expected stage 1 on rank 1 as for other micro-batches, found "
            "\"1F2\"");
}

TEST(FaultsTest, malformed_pairs_are_refused_by_line_and_column) {
  EXPECT_EQ(from_text("0F0 0F1& 0BW0\n").reason(),
            "line 1, column 9: expected the other action of a pair, found the end");
  EXPECT_EQ(from_text("0F0 0F1&x\n").reason(), "line 1, column 9: expected a stage, found \"x\"");
}

}  // namespace
}  // namespace trireme::schedule
