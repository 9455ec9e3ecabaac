// SPDX-License-Identifier: Apache-2.0
#include "schedule/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "schedule/edits_test.h"

namespace trireme::schedule {
namespace {

struct Case {
  std::string name;
  Schedule schedule;
  int rank_count, microbatches;
  bool is_gpipe, is_split;
};

// Returns all generated schedules of 1 to 8 ranks and 1 to 12 micro-batches, merged and split,
// before the other passes.
std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (int m = 1; m <= 12; ++m) {
      for (const bool is_gpipe : {false, true}) {
        const Schedule merged = is_gpipe ? gpipe(ranks, m) : one_f_one_b(ranks, m);
        const std::string name =
            fmt::format("{} ranks {} micro-batches {}", is_gpipe ? "gpipe" : "1f1b", ranks, m);
        cases.push_back({name, merged, ranks, m, is_gpipe, false});
        cases.push_back({name + " split", split_backward(merged), ranks, m, is_gpipe, true});
      }
    }
  }
  return cases;
}

void put_after(Schedule& schedule, size_t rank, std::string_view text, Action action) {
  schedule.program[rank].insert(find(schedule, rank, text) + 1, action);
}

// ---- golden text

TEST(ScheduleTextTest, one_f_one_b_runs_ahead_by_the_stages_after_it) {
  EXPECT_EQ(to_text(one_f_one_b(1, 3)), "0F0 0BW0 0F1 0BW1 0F2 0BW2\n");
  EXPECT_EQ(to_text(one_f_one_b(3, 4)),
            "0F0 0F1 0F2 0BW0 0F3 0BW1 0BW2 0BW3\n"
            "1F0 1F1 1BW0 1F2 1BW1 1F3 1BW2 1BW3\n"
            "2F0 2BW0 2F1 2BW1 2F2 2BW2 2F3 2BW3\n");
  EXPECT_EQ(to_text(one_f_one_b(3, 1)), "0F0 0BW0\n1F0 1BW0\n2F0 2BW0\n");
}

TEST(ScheduleTextTest, gpipe_runs_all_forwards_then_all_backwards) {
  EXPECT_EQ(to_text(gpipe(1, 3)), "0F0 0F1 0F2 0BW0 0BW1 0BW2\n");
  EXPECT_EQ(to_text(gpipe(2, 2)), "0F0 0F1 0BW0 0BW1\n1F0 1F1 1BW0 1BW1\n");
}

TEST(ScheduleTextTest, passes_place_receives_before_sends_after_and_reductions_last) {
  EXPECT_EQ(to_text(finished(one_f_one_b(1, 2))), "0F0 0BW0 0F1 0BW1 0ReduceGrads 0SyncTied\n");
  EXPECT_EQ(to_text(finished(one_f_one_b(2, 2))),
            "0F0 0SendY0>1 0F1 0SendY1>1 0RecvDy0<1 0BW0 0RecvDy1<1 0BW1 0ReduceGrads 0SyncTied\n"
            "1RecvX0<0 1F0 1BW0 1SendDx0>0 1RecvX1<0 1F1 1BW1 1SendDx1>0 1ReduceGrads 1SyncTied\n");
  EXPECT_EQ(to_text(finished(split_backward(gpipe(2, 1)))),
            "0F0 0SendY0>1 0RecvDy0<1 0B0 0W0 0ReduceGrads 0SyncTied\n"
            "1RecvX0<0 1F0 1B0 1SendDx0>0 1W0 1ReduceGrads 1SyncTied\n");
}

// ---- properties of all generated schedules

TEST(ScheduleTest, every_generated_schedule_is_legal_with_one_send_buffer) {
  for (const Case& c : all_cases()) {
    for (const int buffers : {1, 2, 100}) {
      EXPECT_EQ(reason(add_p2p(c.schedule), buffers), "") << c.name;
      EXPECT_EQ(reason(finished(c.schedule), buffers), "") << c.name;
    }
  }
}

// GPipe sends all activations before it receives a gradient, so rendezvous suffices. In 1F1B two
// neighbours send to each other at the same moment as soon as there are two micro-batches:
// rendezvous hangs.
TEST(ScheduleTest, rendezvous_suffices_for_gpipe_and_hangs_1f1b) {
  for (const Case& c : all_cases()) {
    const bool is_legal = c.is_gpipe || c.rank_count == 1 || c.microbatches == 1;
    const std::string answer = reason(finished(c.schedule), 0);
    EXPECT_EQ(answer.empty(), is_legal) << c.name << ": " << answer;
    EXPECT_EQ(answer.starts_with("deadlock"), !is_legal) << c.name << ": " << answer;
  }
}

TEST(ScheduleTest, text_round_trips) {
  for (const Case& c : all_cases()) {
    for (const Schedule& schedule : {c.schedule, add_p2p(c.schedule), finished(c.schedule)}) {
      const auto read = from_text(to_text(schedule));
      ASSERT_TRUE(read) << c.name << ": " << read.reason();
      EXPECT_EQ(read.value(), schedule) << c.name;
    }
  }
}

TEST(ScheduleTest, in_flight_counts_are_the_textbook_ones) {
  for (const Case& c : all_cases()) {
    for (const Schedule& schedule : {c.schedule, finished(c.schedule)}) {
      const std::vector<InFlight> counts = in_flight(schedule);
      ASSERT_EQ(std::ssize(counts), c.rank_count);
      for (int rank = 0; rank < c.rank_count; ++rank) {
        const int held =
            c.is_gpipe ? c.microbatches : std::min(c.rank_count - rank, c.microbatches);
        EXPECT_EQ(counts[static_cast<size_t>(rank)], (InFlight{held, held, 1}))
            << c.name << " rank " << rank;
      }
    }
  }
}

TEST(ScheduleTest, late_weight_gradients_keep_their_slots) {
  const auto late = from_text("0F0 0F1 0B0 0F2 0B1 0B2 0W0 0W1 0W2\n");
  ASSERT_TRUE(late) << late.reason();
  EXPECT_EQ(reason(late.value()), "");
  EXPECT_EQ(in_flight(late.value()), (std::vector<InFlight>{{2, 3, 3}}));
}

// ---- lanes other than the straight one

TEST(ScheduleTest, a_v_lane_needs_no_messages_inside_a_rank) {
  Schedule v{2, 1, {{0, 1, 1, 0}}, {}};
  v.program = {{{Op::F, 0, -1, 0}, {Op::F, 3, -1, 0}, {Op::BW, 3, -1, 0}, {Op::BW, 0, -1, 0}},
               {{Op::F, 1, -1, 0}, {Op::F, 2, -1, 0}, {Op::BW, 2, -1, 0}, {Op::BW, 1, -1, 0}}};
  const Schedule whole = finished(v);
  EXPECT_EQ(to_text(whole),
            "0F0 0SendY0>1 3RecvX0<1 3F0 3BW0 3SendDx0>1 3ReduceGrads 0RecvDy0<1 0BW0 "
            "0ReduceGrads 0SyncTied\n"
            "1RecvX0<0 1F0 2F0 2SendY0>0 2RecvDy0<0 2BW0 2ReduceGrads 1BW0 1SendDx0>0 "
            "1ReduceGrads 1SyncTied\n");
  EXPECT_EQ(reason(whole, 0), "");
  EXPECT_EQ(from_text(to_text(whole)).value(), whole);
  EXPECT_EQ(in_flight(whole), (std::vector<InFlight>{{2, 2, 1}, {2, 2, 1}}));

  Schedule early = whole;
  swap(early, 1, "1F0", "2F0");
  EXPECT_EQ(reason(early), "rank 1, action 1 (2F0): F of the stage before has not run");
  early = whole;
  swap(early, 1, "2BW0", "1BW0");
  EXPECT_EQ(reason(early), "rank 1, action 5 (1BW0): B of the stage after has not run");
}

TEST(ScheduleTest, two_opposite_lanes_are_found_from_the_text) {
  Schedule two{2, 2, {{0, 1}, {1, 0}}, {}};
  two.program = {{{Op::F, 0, -1, 0}, {Op::F, 1, -1, 1}, {Op::BW, 1, -1, 1}, {Op::BW, 0, -1, 0}},
                 {{Op::F, 0, -1, 1}, {Op::F, 1, -1, 0}, {Op::BW, 1, -1, 0}, {Op::BW, 0, -1, 1}}};
  const Schedule whole = finished(two);
  EXPECT_EQ(reason(whole), "");
  EXPECT_EQ(from_text(to_text(whole)).value(), whole);
  // Both ranks begin with a send to the other.
  EXPECT_EQ(reason(whole, 0),
            "deadlock with 0 send buffers: rank 0, action 1 (0SendY0>1) waits for rank 1; "
            "rank 1, action 1 (0SendY1>0) waits for rank 0");
}

// ---- planted faults: check() finds them

TEST(ScheduleCheckTest, planted_faults_are_found_where_they_are) {
  struct Fault {
    std::string name;
    std::function<void(Schedule&)> plant;
    std::string reason;
  };
  const std::vector<Fault> faults = {
      {"a dropped activation send", [](Schedule& s) { drop(s, 0, "0SendY1>1"); },
       "rank 1, action 5 (1RecvX1<0): not first-in first-out: the channel brings rank 0, action 7 "
       "(0SendY2>1) next"},
      {"the last activation send dropped", [](Schedule& s) { drop(s, 0, "0SendY2>1"); },
       "deadlock with 1 send buffers: rank 0, action 11 (0RecvDy2<1) waits for rank 1; "
       "rank 1, action 10 (1RecvX2<0) waits for rank 0"},
      {"a dropped gradient send", [](Schedule& s) { drop(s, 1, "1SendDx2>0"); },
       "deadlock with 1 send buffers: rank 0, action 12 (0RecvDy2<1) waits for rank 1, which has "
       "ended"},
      {"a dropped receive", [](Schedule& s) { drop(s, 1, "1RecvX0<0"); },
       "rank 1, action 0 (1F0): its input was not received"},
      {"swapped receives", [](Schedule& s) { swap(s, 1, "1RecvX0<0", "1RecvX1<0"); },
       "rank 1, action 0 (1RecvX1<0): not first-in first-out: the channel brings rank 0, action 1 "
       "(0SendY0>1) next"},
      {"swapped gradient receives", [](Schedule& s) { swap(s, 0, "0RecvDy0<1", "0RecvDy1<1"); },
       "rank 0, action 4 (0RecvDy1<1): not first-in first-out: the channel brings rank 1, action 3 "
       "(1SendDx0>0) next"},
      {"W before B", [](Schedule& s) { swap(s, 0, "0B1", "0W1"); },
       "rank 0, action 10 (0W1): its B has not run"},
      {"a missing F", [](Schedule& s) { drop(s, 0, "0F1"); },
       "rank 0, action 2 (0SendY1>1): what it sends is not computed yet"},
      {"a missing F on the last stage", [](Schedule& s) { drop(s, 1, "1F1"); },
       "rank 1, action 6 (1B1): its F has not run"},
      {"a missing W", [](Schedule& s) { drop(s, 1, "1W1"); },
       "rank 1, action 14 (1ReduceGrads): comes before the last weight gradient of its stage"},
      {"a doubled W",
       [](Schedule& s) {
         put_after(s, 0, "0W0", {Op::W, 0, -1, 0});
       },
       "rank 0, action 7 (0W0): runs a second time"},
      {"a doubled B",
       [](Schedule& s) {
         put_after(s, 0, "0B0", {Op::B, 0, -1, 0});
       },
       "rank 0, action 6 (0B0): runs a second time"},
      {"BW after B and W",
       [](Schedule& s) {
         put_after(s, 0, "0W0", {Op::BW, 0, -1, 0});
       },
       "rank 0, action 7 (0BW0): runs a second time"},
      {"a doubled F",
       [](Schedule& s) {
         put_after(s, 0, "0F0", {Op::F, 0, -1, 0});
       },
       "rank 0, action 1 (0F0): runs a second time"},
      {"a doubled send",
       [](Schedule& s) {
         put_after(s, 1, "1W2", {Op::SendDx, 1, 0, 2});
       },
       "rank 1, action 15 (1SendDx2>0): sends a second time"},
      {"a missing B", [](Schedule& s) { drop(s, 0, "0B2"); },
       "rank 0, action 13 (0W2): its B has not run"},
      {"the wrong rank",
       [](Schedule& s) {
         put_after(s, 1, "1F0", {Op::F, 0, -1, 0});
       },
       "rank 1, action 2 (0F0): the lane of micro-batch 0 puts stage 0 on rank 0"},
      {"the wrong peer", [](Schedule& s) { find(s, 0, "0SendY0>1")->peer = 0; },
       "rank 0, action 1 (0SendY0>0): the stage at the other end is on rank 1"},
      {"a send off the end",
       [](Schedule& s) {
         put_after(s, 1, "1F0", {Op::SendY, 1, 0, 0});
       },
       "rank 1, action 2 (1SendY0>0): there is no stage at the other end"},
      {"a peer of an F", [](Schedule& s) { find(s, 0, "0F0")->peer = 1; },
       "rank 0, action 0 (0F0): has a peer, 1"},
      {"a stage that is not there", [](Schedule& s) { find(s, 0, "0F0")->stage = 7; },
       "rank 0, action 0 (7F0): stage 7 of 2"},
      {"a micro-batch that is not there", [](Schedule& s) { find(s, 0, "0F0")->microbatch = 3; },
       "rank 0, action 0 (0F3): micro-batch 3 of 3"},
      {"ReduceGrads too early", [](Schedule& s) { swap(s, 0, "0ReduceGrads", "0W2"); },
       "rank 0, action 14 (0ReduceGrads): comes before the last weight gradient of its stage"},
      {"ReduceGrads twice",
       [](Schedule& s) {
         put_after(s, 0, "0ReduceGrads", {Op::ReduceGrads, 0, -1, -1});
       },
       "rank 0, action 16 (0ReduceGrads): reduces a second time"},
      {"ReduceGrads forgotten", [](Schedule& s) { drop(s, 1, "1ReduceGrads"); },
       "rank 1, end of its program: 1ReduceGrads is missing"},
      {"ReduceGrads of another rank's stage",
       [](Schedule& s) { find(s, 1, "1ReduceGrads")->stage = 0; },
       "rank 1, action 15 (0ReduceGrads): no lane puts stage 0 on rank 1"},
      {"SyncTied forgotten", [](Schedule& s) { drop(s, 1, "1SyncTied"); },
       "rank 1, end of its program: SyncTied is missing"},
      {"SyncTied too early", [](Schedule& s) { swap(s, 0, "0ReduceGrads", "0SyncTied"); },
       "rank 0, action 15 (0SyncTied): is not the last action of its rank"},
      {"recompute after B",
       [](Schedule& s) {
         put_after(s, 0, "0B0", {Op::R, 0, -1, 0});
       },
       "rank 0, action 6 (0R0): belongs once between F and B"},
      {"a lane to nowhere", [](Schedule& s) { s.lanes[0][1] = 5; }, "a lane names rank 5 of 2"},
      {"a missing program", [](Schedule& s) { s.program.pop_back(); }, "1 programs for 2 ranks"},
  };
  const Schedule sound = finished(split_backward(one_f_one_b(2, 3)));
  ASSERT_EQ(reason(sound), "");
  for (const Fault& fault : faults) {
    Schedule broken = sound;
    fault.plant(broken);
    EXPECT_EQ(reason(broken), fault.reason) << fault.name << "\n" << to_text(broken);
  }
}

TEST(ScheduleCheckTest, merged_backwards_run_once) {
  const Schedule sound = finished(one_f_one_b(2, 2));
  Schedule broken = sound;
  put_after(broken, 0, "0BW0", {Op::BW, 0, -1, 0});
  EXPECT_EQ(reason(broken), "rank 0, action 6 (0BW0): runs a second time");
  broken = sound;
  put_after(broken, 0, "0BW0", {Op::W, 0, -1, 0});
  EXPECT_EQ(reason(broken), "rank 0, action 6 (0W0): runs a second time");
  broken = one_f_one_b(1, 2);
  drop(broken, 0, "0BW1");
  EXPECT_EQ(reason(broken), "rank 0, end of its program: micro-batch 1 has no B on stage 0");
  drop(broken, 0, "0F1");
  EXPECT_EQ(reason(broken), "rank 0, end of its program: micro-batch 1 has no F on stage 0");
}

TEST(ScheduleCheckTest, a_message_that_no_rank_receives_is_left_over) {
  Schedule broken = finished(gpipe(2, 1));
  broken.program[0].erase(find(broken, 0, "0RecvDy0<1"), broken.program[0].end());
  EXPECT_EQ(reason(broken), "rank 1, action 3 (1SendDx0>0): left over, rank 0 never receives it");
  EXPECT_EQ(reason(broken, 0),
            "deadlock with 0 send buffers: rank 1, action 3 (1SendDx0>0) waits for rank 0, which "
            "has ended");
}

TEST(ScheduleCheckTest, rendezvous_finds_the_cycle) {
  EXPECT_EQ(reason(finished(one_f_one_b(2, 2)), 0),
            "deadlock with 0 send buffers: rank 0, action 3 (0SendY1>1) waits for rank 1; "
            "rank 1, action 3 (1SendDx0>0) waits for rank 0");
}

TEST(ScheduleCheckTest, the_number_of_send_buffers_counts) {
  // Opposite lanes; both ranks send two activations before they receive one.
  const std::string forwards = "0F0 0SendY0>1 0F2 0SendY2>1 1RecvX1<1 1F1 1RecvX3<1 1F3 ";
  const std::string backwards = "1BW1 1SendDx1>1 1BW3 1SendDx3>1 0RecvDy0<1 0BW0 0RecvDy2<1 0BW2\n";
  std::string other =
      "0F1 0SendY1>0 0F3 0SendY3>0 1RecvX0<0 1F0 1RecvX2<0 1F2 "
      "1BW0 1SendDx0>0 1BW2 1SendDx2>0 0RecvDy1<0 0BW1 0RecvDy3<0 0BW3\n";
  const Schedule two = from_text(forwards + backwards + other).value();
  EXPECT_EQ(two.lanes, (std::vector<Lane>{{0, 1}, {1, 0}}));
  EXPECT_EQ(reason(two, 1),
            "deadlock with 1 send buffers: rank 0, action 3 (0SendY2>1) waits for rank 1; "
            "rank 1, action 3 (0SendY3>0) waits for rank 0");
  EXPECT_EQ(reason(two, 2), "");
  EXPECT_EQ(find_fault(two, 1)->rank, 0);
  EXPECT_EQ(find_fault(two, 1)->position, 3);
}

TEST(ScheduleCheckTest, messages_of_two_stages_are_distinguished) {
  const Schedule sound =
      finished(from_text("0F0 2F0 2BW0 0BW0\n1F0 3F0 3BW0 1BW0\n").value());  // a looping lane
  ASSERT_EQ(reason(sound), "");
  Schedule broken = sound;
  swap(broken, 1, "1RecvX0<0", "3RecvX0<0");
  EXPECT_EQ(reason(broken),
            "rank 1, action 0 (3RecvX0<0): not first-in first-out: the channel brings rank 0, "
            "action 1 (0SendY0>1) next");
}

// Each action of a correct program is needed at its position: check() finds a fault if it is
// removed, doubled, or moved to another rank.
TEST(ScheduleCheckTest, no_action_is_superfluous) {
  for (const Schedule& sound :
       {finished(one_f_one_b(3, 4)), finished(split_backward(one_f_one_b(3, 4))),
        finished(gpipe(3, 2)), finished(split_backward(gpipe(3, 2)))}) {
    for (size_t rank = 0; rank < sound.program.size(); ++rank) {
      for (size_t at = 0; at < sound.program[rank].size(); ++at) {
        const Action action = sound.program[rank][at];
        const auto position = static_cast<std::ptrdiff_t>(at);
        Schedule broken = sound;
        broken.program[rank].erase(broken.program[rank].begin() + position);
        EXPECT_FALSE(check(broken, 1)) << "without " << to_text(action) << "\n" << to_text(broken);
        std::vector<Action>& elsewhere = broken.program[(rank + 1) % sound.program.size()];
        elsewhere.insert(elsewhere.begin(), action);
        EXPECT_FALSE(check(broken, 1)) << "moved " << to_text(action) << "\n" << to_text(broken);
        broken = sound;
        broken.program[rank].insert(broken.program[rank].begin() + position, action);
        EXPECT_FALSE(check(broken, 1)) << "doubled " << to_text(action) << "\n" << to_text(broken);
      }
    }
  }
}

// ---- malformed text

TEST(ScheduleTextTest, malformed_text_is_refused_by_line_and_column) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "line 1, column 1: expected an action of a micro-batch, found none"},
      {"0ReduceGrads\n", "line 1, column 1: expected an action of a micro-batch, found none"},
      {"0F0 F1\n", "line 1, column 5: expected a stage, found \"F1\""},
      {"0F0 -1F1\n", "line 1, column 5: expected a stage, found \"-1F1\""},
      {"99999F0\n", "line 1, column 1: expected a stage, found \"99999F0\""},
      {"0F0\n 0X3\n", "line 2, column 3: expected an operation, found \"X3\""},
      {"0F0 0\n", "line 1, column 6: expected an operation, found the end"},
      {"0F\n", "line 1, column 3: expected a micro-batch, found the end"},
      {"0F0x\n", "line 1, column 4: expected a blank, found \"x\""},
      {"0F0>1\n", "line 1, column 4: expected a blank, found \">1\""},
      {"0SendY0\n", "line 1, column 8: expected > and a peer, found the end"},
      {"0SendY0<1\n", "line 1, column 8: expected > and a peer, found \"<1\""},
      {"0SendY0>\n", "line 1, column 9: expected a peer, found the end"},
      {"0F0\n0BW0\n",
       "line 2, column 1: expected stage 0 of micro-batch 0 on rank 0 only, found \"0BW0\""},
      {"0F0 0BW2000000000\n",
       "line 1, column 5: expected stages and micro-batches below 2, the number of actions, found "
       "\"0BW2000000000\""},
      {"0F0 0BW0 0SendY0>1\n1RecvX0<0\n",
       "line 1, column 1: expected F, B or W of stage 1 for every lane, found none"},
  };
  for (const auto& [text, expected] : cases) EXPECT_EQ(from_text(text).reason(), expected) << text;
}

TEST(ScheduleTextTest, blanks_and_a_missing_last_newline_do_not_matter) {
  EXPECT_EQ(from_text("  0F0\t0BW0 \n1F0   1BW0").value(), gpipe(2, 1));
}

}  // namespace
}  // namespace trireme::schedule
