// SPDX-License-Identifier: Apache-2.0
// Debug mode: the first collective on which ranks disagree is reported on every rank, for threads
// and for processes (here: threads of one process, each with its own ProcessWorld).
#include <mutex>
#include <thread>

#include "base/error.h"
#include "comm/gloo.h"
#include "comm/store/store_server.h"
#include "comm/world/rank_test.h"

namespace trireme::comm {
namespace {

constexpr int rank_count = 3;
using Texts = std::vector<std::string>;

enum class BackEnd : uint8_t { threads, gloo };

class DebugTest : public testing::TestWithParam<BackEnd> {
 protected:
  void SetUp() override {
    if (GetParam() == BackEnd::gloo && !gloo_status().empty()) GTEST_SKIP() << gloo_status();
  }

  // The message that each rank's body threw; empty if it did not throw.
  Texts failures(const std::function<void(Rank&)>& body) {
    return GetParam() == BackEnd::threads ? on_threads(body) : on_gloo(body);
  }
  void expect_on_every_rank(const std::function<void(Rank&)>& body, const std::string& text) {
    EXPECT_EQ(failures(body), Texts(rank_count, text));
  }

 private:
  static constexpr double deadline_s = 60;

  static std::string failure_of_rank(std::unique_ptr<Communicator> group,
                                     const std::function<void(Rank&)>& body) {
    Rank rank(std::move(group), StreamMode::inline_calls);
    try {
      body(rank);
    } catch (const base::CommAborted& error) {
      return error.what();
    }
    return {};
  }
  static Texts on_threads(const std::function<void(Rank&)>& body) {
    ThreadWorld world(rank_count, deadline_s);
    Texts texts(rank_count);
    run_ranks(world, [&](int r) {
      texts[static_cast<size_t>(r)] =
          failure_of_rank(world.communicator(r, {.name = "world", .debug = true}), body);
    });
    return texts;
  }
  static Texts on_gloo(const std::function<void(Rank&)>& body) {
    // A program that has run tests for seconds would be taken for one of an earlier attempt.
    const StoreServer server({.host = "127.0.0.1", .grace_s = 0});
    Texts texts(rank_count);
    std::vector<std::thread> threads;
    for (int r = 0; r < rank_count; ++r) {
      threads.emplace_back([&, r] {
        ProcessWorld world({.rank = r,
                            .world = rank_count,
                            .local_rank = r,
                            .local_world = rank_count,
                            .store = "127.0.0.1:" + std::to_string(server.port()),
                            .debug = true});
        texts[static_cast<size_t>(r)] =
            failure_of_rank(make_gloo(world, {.name = "world", .deadline_s = deadline_s}), body);
      });
    }
    for (std::thread& thread : threads) thread.join();
    return texts;
  }
};

TEST_P(DebugTest, calls_that_agree_pass) {
  expect_on_every_rank(
      [](Rank& rank) {
        Communicator& group = *rank.group;
        const Tensor x = rank.make(Values(5000, 1)), one = rank.make({2});
        const Tensor all = rank.make(Values(3));
        for (int round = 0; round < 3; ++round) {
          group.all_reduce(*rank.stream, x, Reduce::max);
          group.all_gather(*rank.stream, all, one);
          group.broadcast(*rank.stream, one, round);
          group.barrier();
          const auto pair = group.split(group.rank() / 2, 0, {.name = "pair"});
          EXPECT_TRUE(pair->options().debug);
          pair->barrier();
        }
        EXPECT_EQ(rank.read(all), Values(3, 2));
        group.all_reduce(*rank.stream, x, Reduce::sum);
        EXPECT_EQ(rank.read(x), Values(5000, 3));
        group.barrier();
      },
      "");
}

TEST_P(DebugTest, another_operation) {
  expect_on_every_rank(
      [](Rank& rank) {
        const Tensor x = rank.make(Values(8)), y = rank.make(Values(24));
        rank.group->barrier();
        if (rank.group->rank() == 1) {
          rank.group->all_reduce(*rank.stream, x, Reduce::sum);
        } else {
          rank.group->all_gather(*rank.stream, y, x);
        }
      },
      "group 'world': rank 1 calls all_reduce #1 (sum, f32 [8]), but ranks 0, 2 call all_gather "
      "#1 (f32 [24])");
}

TEST_P(DebugTest, another_size) {
  expect_on_every_rank(
      [](Rank& rank) {
        const Tensor x = rank.make(Values(rank.group->rank() == 0 ? 5000 : 5001));
        rank.group->all_reduce(*rank.stream, x, Reduce::sum);
      },
      "group 'world': rank 0 calls all_reduce #0 (sum, f32 [5000]), but ranks 1, 2 call "
      "all_reduce #0 (sum, f32 [5001])");
}

TEST_P(DebugTest, an_empty_tensor_is_another_size) {
  expect_on_every_rank(
      [](Rank& rank) {
        const Tensor x = rank.make(Values(4));
        rank.group->broadcast(*rank.stream, x.slice_rows(0, rank.group->rank() == 2 ? 0 : 4), 0);
      },
      "group 'world': rank 2 calls broadcast #0 (f32 [0], from rank 0), but ranks 0, 1 call "
      "broadcast #0 (f32 [4], from rank 0)");
}

TEST_P(DebugTest, another_type) {
  expect_on_every_rank(
      [](Rank& rank) {
        const bool is_odd = rank.group->rank() == 2;
        const Tensor x = rank.make(Values(is_odd ? 8 : 4), is_odd ? DType::bf16 : DType::f32);
        rank.group->broadcast(*rank.stream, x, 1);
      },
      "group 'world': rank 2 calls broadcast #0 (bf16 [8], from rank 1), but ranks 0, 1 call "
      "broadcast #0 (f32 [4], from rank 1)");
}

TEST_P(DebugTest, another_root_or_reduction) {
  expect_on_every_rank(
      [](Rank& rank) {
        rank.group->broadcast(*rank.stream, rank.make(Values(4)), rank.group->rank());
      },
      "group 'world': rank 1 calls broadcast #0 (f32 [4], from rank 1), but rank 0 calls "
      "broadcast #0 (f32 [4], from rank 0)");
  expect_on_every_rank(
      [](Rank& rank) {
        const Reduce reduce = rank.group->rank() == 2 ? Reduce::max : Reduce::sum;
        rank.group->all_reduce(*rank.stream, rank.make(Values(4)), reduce);
      },
      "group 'world': rank 2 calls all_reduce #0 (max, f32 [4]), but ranks 0, 1 call all_reduce "
      "#0 (sum, f32 [4])");
}

// The hosts wait for each other, which is reported long before the deadline.
TEST_P(DebugTest, another_order_of_two_groups) {
  const Texts found = failures([](Rank& rank) {
    const auto a = rank.group->split(0, 0, {.name = "a", .deadline_s = 60});
    const auto b = rank.group->split(0, 0, {.name = "b", .deadline_s = 60});
    a->barrier();
    if (rank.group->rank() == 1) {
      b->barrier();
      a->barrier();
    } else {
      a->barrier();
      b->barrier();
    }
  });
  EXPECT_EQ(found, Texts(rank_count, found[0]));
  EXPECT_EQ(found[0].find("ranks wait for each other:"), 0U) << found[0];
  EXPECT_NE(found[0].find("rank 1 is in barrier #0 of group 'b'"), std::string::npos) << found[0];
  EXPECT_NE(found[0].find("is in barrier #1 of group 'a' and waits for rank"), std::string::npos)
      << found[0];
}

INSTANTIATE_TEST_SUITE_P(back_ends, DebugTest, testing::Values(BackEnd::threads, BackEnd::gloo),
                         [](const testing::TestParamInfo<BackEnd>& kind) {
                           return kind.param == BackEnd::threads ? "threads" : "gloo";
                         });

}  // namespace
}  // namespace trireme::comm
