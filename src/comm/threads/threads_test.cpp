// SPDX-License-Identifier: Apache-2.0
// How thread ranks fail: deadlines, aborts, calls that do not match, and the ranks that are blamed.
#include "comm/threads.h"

#include <chrono>
#include <thread>

#include "base/error.h"
#include "base/system/refused_threads_test.h"
#include "comm/threads/blame.h"
#include "comm/world/rank_test.h"

namespace trireme::comm {
namespace {

using base::CommAborted;
using std::chrono::milliseconds;

Wait wait(int rank, const std::string& group, const std::string& call, std::vector<int> missing) {
  return {.rank = rank, .group = group, .call = call, .expected = call, .missing = missing};
}

std::string nothing(int /*rank*/) { return {}; }

TEST(Blame, falls_on_the_rank_that_all_others_wait_for) {
  const Wait waits[] = {wait(0, "zero", "all_reduce #17", {2}),
                        wait(3, "zero", "all_reduce #17", {2}),
                        wait(1, "zero", "all_reduce #17", {2})};
  EXPECT_EQ(blame(waits, 0, 5, [](int) { return "all_gather #16 of 'zero'"; }),
            "rank 2 did not enter all_reduce #17 of group 'zero' within 5 s; ranks 0, 1, 3 are "
            "waiting; the last call that rank 2 finished was all_gather #16 of 'zero'");
}

TEST(Blame, passes_through_ranks_that_wait_themselves) {
  const Wait waits[] = {wait(4, "pp", "recv #3 from rank 1", {1}),
                        wait(1, "tp", "all_gather #8", {0})};
  EXPECT_EQ(blame(waits, 0, 2.5, nothing),
            "rank 0 did not enter all_gather #8 of group 'tp'; rank 1 is waiting; rank 0 has "
            "finished no communication yet; behind them rank 4 waited 2.5 s in recv #3 from rank 1 "
            "of group 'pp'");
}

TEST(Blame, names_a_cycle) {
  const Wait waits[] = {wait(2, "c", "barrier #0", {0}), wait(0, "a", "all_reduce #1", {1}),
                        wait(1, "b", "all_gather #2", {0})};
  EXPECT_EQ(blame(waits, 0, 1, nothing),
            "ranks wait for each other: rank 0 is in all_reduce #1 of group 'a' and waits for rank "
            "1; rank 1 is in all_gather #2 of group 'b' and waits for rank 0; rank 2 noticed after "
            "1 s");
}

// A rank whose streams wait for messages may still enter a collective.
TEST(Blame, looks_at_the_host_of_a_rank_first_and_finds_no_cycle_through_messages) {
  Wait message = wait(0, "pp", "recv #3 from rank 1", {1});
  message.is_collective = false;
  const Wait collective = wait(1, "dp", "barrier #4", {0}), own = wait(0, "tp", "barrier #5", {2});
  EXPECT_EQ(cycle_through(std::vector{collective, message}, 0), "");
  EXPECT_EQ(blame(std::vector{collective, message, own}, 0, 5, nothing),
            "rank 2 did not enter barrier #5 of group 'tp'; rank 0 is waiting; rank 2 has "
            "finished no communication yet; behind them rank 1 waited 5 s in barrier #4 of group "
            "'dp'");
}

class ThreadsTest : public testing::TestWithParam<StreamMode> {};

TEST_P(ThreadsTest, a_deadline_names_the_rank_that_did_not_enter) {
  for (int late = 0; late < 4; ++late) {
    ThreadWorld world(4, 0.3);
    const std::string found = failure_of(world, [&](int r) {
      Rank rank(world, r, GetParam());
      const Tensor x = rank.make(Values(16, 1));
      rank.group->all_reduce(*rank.stream, x, Reduce::sum);
      rank.stream->synchronize();
      rank.group->barrier();
      if (r == late) {
        while (world.verdict().empty()) std::this_thread::sleep_for(milliseconds(1));
      }
      rank.group->all_reduce(*rank.stream, x, Reduce::sum);
    });
    std::vector<int> others;
    for (int r = 0; r < 4; ++r) {
      if (r != late) others.push_back(r);
    }
    EXPECT_EQ(found, "rank " + std::to_string(late) +
                         " did not enter all_reduce #2 of group 'world' within 0.3 s; ranks " +
                         std::to_string(others[0]) + ", " + std::to_string(others[1]) + ", " +
                         std::to_string(others[2]) + " are waiting; the last call that rank " +
                         std::to_string(late) + " finished was barrier #1 of 'world'");
    EXPECT_EQ(world.verdict(), found);
  }
}

// Rank 3 waits for rank 2, which waits for rank 1, which waits for rank 0, which sleeps.
TEST_P(ThreadsTest, a_deadline_follows_ranks_that_wait_themselves) {
  ThreadWorld world(4);
  const std::string found = failure_of(world, [&](int r) {
    const auto all = world.communicator(r, {.name = "world"});
    // Only the pair of ranks 2 and 3 has a short deadline.
    const double deadline_s = r >= 2 ? 0.2 : 60;
    Rank upper(all->split(r / 2, r, {.name = "upper", .deadline_s = deadline_s}), GetParam());
    Rank middle(all->split(r == 1 || r == 2 ? 1 : 0, r, {.name = "middle", .deadline_s = 60}),
                GetParam());
    const auto hold = [&] {
      while (world.verdict().empty()) std::this_thread::sleep_for(milliseconds(1));
    };
    if (r == 0) hold();
    if (r == 1) upper.group->barrier();
    if (r == 2) middle.group->barrier();
    if (r == 3) upper.group->barrier();
  });
  EXPECT_EQ(
      found,
      "rank 0 did not enter barrier #0 of group 'upper'; rank 1 is waiting; the last call that "
      "rank 0 finished was split #1 of 'world'; behind them rank 3 waited 0.2 s in barrier "
      "#0 of group 'upper'");
}

TEST_P(ThreadsTest, messages_have_deadlines_too) {
  for (const bool is_sender : {true, false}) {
    ThreadWorld world(3, 0.2);
    const std::string found = failure_of(world, [&](int r) {
      Rank rank(world, r, GetParam());
      const Tensor x = rank.make(Values(4));
      if (r == 0 && is_sender) rank.group->send(*rank.stream, x, 2);
      if (r == 0 && !is_sender) rank.group->recv(*rank.stream, x, 2);
      rank.stream->synchronize();
    });
    EXPECT_EQ(found, std::string("rank 2 did not enter ") +
                         (is_sender ? "recv #0 from" : "send #0 to") +
                         " rank 0 of group 'world' within 0.2 s; rank 0 is waiting; rank 2 has "
                         "finished no communication yet");
  }
}

TEST_P(ThreadsTest, different_calls_are_named_at_once) {
  ThreadWorld world(3);
  const std::string found = failure_of(world, [&](int r) {
    Rank rank(world, r, GetParam());
    const Tensor x = rank.make(Values(8)), y = rank.make(Values(24));
    if (r == 1) {
      rank.group->broadcast(*rank.stream, x, 0);
    } else {
      rank.group->all_gather(*rank.stream, y, x);
    }
  });
  EXPECT_EQ(found,
            "rank 1 entered broadcast #0 (f32, 32 bytes) of group 'world', but rank 0 entered "
            "all_gather #0 (f32, 32 bytes)");
}

TEST_P(ThreadsTest, messages_of_different_sizes_are_named_at_once) {
  ThreadWorld world(2);
  const std::string found = failure_of(world, [&](int r) {
    Rank rank(world, r, GetParam());
    if (r == 0) rank.group->send(*rank.stream, rank.make(Values(8)), 1);
    if (r == 1) rank.group->recv(*rank.stream, rank.make(Values(7)), 0);
    rank.stream->synchronize();
  });
  EXPECT_EQ(found,
            "rank 1 expects 28 bytes from rank 0 as message #0 of group 'world', but 32 were sent");
}

TEST_P(ThreadsTest, abort_from_outside_wakes_all_groups_and_stays) {
  ThreadWorld world(4);
  std::thread outside([&] {
    std::this_thread::sleep_for(milliseconds(50));
    world.abort("the user pressed a key");
  });
  int woken = 0;
  std::mutex mutex;
  const std::string found = failure_of(world, [&](int r) {
    Rank all(world, r, GetParam());
    Rank half(all.group->split(r % 2, r, {.name = "half"}), GetParam());
    const Tensor x = half.make(Values(4));
    try {
      if (r == 0) half.group->recv(*half.stream, x, 1);
      if (r == 1) half.group->barrier();
      if (r == 2) all.group->barrier();
      if (r == 3) all.group->send(*all.stream, x, 0);
      half.stream->synchronize();
      all.stream->synchronize();
    } catch (const CommAborted&) {
      const std::scoped_lock lock(mutex);
      ++woken;
    }
    EXPECT_THROW(half.group->barrier(), CommAborted);
    EXPECT_THROW(all.group->all_reduce(*all.stream, x, Reduce::sum), CommAborted);
    EXPECT_THROW(all.group->split(0, 0, {}), CommAborted);
    all.group->barrier();
  });
  outside.join();
  EXPECT_EQ(found, "the user pressed a key");
  EXPECT_EQ(woken, 4);
}

TEST_P(ThreadsTest, abort_of_a_rank_names_it) {
  ThreadWorld world(2);
  const std::string found = failure_of(world, [&](int r) {
    Rank rank(world, r, GetParam());
    if (r == 1) rank.group->abort("no space left");
    rank.group->barrier();
  });
  EXPECT_EQ(found, "rank 1 aborted group 'world': no space left");
}

TEST_P(ThreadsTest, the_first_failure_is_thrown_not_what_follows_from_it) {
  ThreadWorld world(3);
  try {
    run_ranks(world, [&](int r) {
      Rank rank(world, r, GetParam());
      if (r == 2) throw base::IoError("the disk is full");
      rank.group->barrier();
    });
    FAIL() << "nothing was thrown";
  } catch (const base::IoError& error) {
    EXPECT_STREQ(error.what(), "the disk is full");
  }
  EXPECT_EQ(world.verdict(), "rank 2 failed: the disk is full");
}

// Data of another rank's failed stream is not delivered.
TEST(Threads, a_failed_stream_fails_those_that_read_from_it) {
  ThreadWorld world(2);
  const std::string found = failure_of(world, [&](int r) {
    Rank rank(world, r, StreamMode::worker_threads);
    const Tensor x = rank.make(Values(8));
    if (r == 1) {
      dynamic_cast<device::CpuStream&>(*rank.stream).enqueue([] {
        throw base::IoError("bad disk");
      });
    }
    rank.group->all_reduce(*rank.stream, x, Reduce::sum);
    rank.group->barrier();
    EXPECT_THROW(rank.stream->synchronize(), base::IoError);
  });
  EXPECT_EQ(found, "");
}

TEST_P(ThreadsTest, split_orders_by_key_and_keeps_colors_apart) {
  ThreadWorld world(6);
  run_ranks(world, [&](int r) {
    const auto all = world.communicator(r, {.name = "world"});
    for (int round = 0; round < 3; ++round) {
      Rank part(all->split(r % 2, -r, {.name = "part"}), GetParam());
      EXPECT_EQ(part.group->size(), 3);
      EXPECT_EQ(part.group->rank(), 2 - r / 2);
      const Tensor x = part.make({static_cast<float>(r)}), out = part.make(Values(3));
      part.group->all_gather(*part.stream, out, x);
      const auto odd = static_cast<float>(r % 2);
      EXPECT_EQ(part.read(out), (Values{4 + odd, 2 + odd, odd}));
      part.group->barrier();
    }
  });
}

INSTANTIATE_TEST_SUITE_P(modes, ThreadsTest,
                         testing::Values(StreamMode::inline_calls, StreamMode::worker_threads),
                         [](const testing::TestParamInfo<StreamMode>& mode) {
                           return mode.param == StreamMode::inline_calls ? "inline" : "worker";
                         });

TEST(ThreadRanks, report_the_reason_if_a_thread_cannot_be_started) {
  ThreadWorld world(2, 60);
  const base::RefusedThreads refused;
  try {
    run_ranks(world, [](int /*rank*/) {});
    FAIL() << "nothing was thrown";
  } catch (const base::Error& error) {
    EXPECT_EQ(std::string(error.what()).rfind("the thread of rank 0 of 2 cannot be started", 0), 0U)
        << error.what();
  }
}

}  // namespace
}  // namespace trireme::comm
