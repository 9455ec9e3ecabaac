// SPDX-License-Identifier: Apache-2.0
// Injected faults change the selected calls and nothing else.
#include "comm/failure/faulty.h"

#include <chrono>
#include <map>
#include <utility>

#include "base/error.h"
#include "comm/world/rank_test.h"

namespace trireme::comm {
namespace {

using What = Fault::What;

// Returns the results of three calls in a row on each of two ranks, each on new memory filled
// with 99.
using Seen = std::vector<std::vector<Values>>;

Seen run(const std::string& op, std::vector<Fault> faults, StreamMode mode, int64_t count = 2) {
  Seen seen(2, std::vector<Values>(3));
  ThreadWorld world(2, 20);
  run_ranks(world, [&](int r) {
    auto all = std::make_unique<FaultyCommunicator>(world.communicator(r, {.name = "world"}),
                                                    std::vector<Fault>(faults));
    Rank rank(all->split(0, r, {.name = "zero"}), mode);
    for (int call = 0; call < 3; ++call) {
      const auto base = static_cast<float>(10 * call);
      const Tensor in =
          rank.make(Values(static_cast<size_t>(count), base + static_cast<float>(r + 1)));
      const Tensor twice = rank.make(Values(static_cast<size_t>(2 * count), 99));
      const Tensor half = rank.make(Values(static_cast<size_t>(count / 2), 99));
      Tensor out = in;
      if (op == "all_reduce") rank.group->all_reduce(*rank.stream, in, Reduce::sum);
      if (op == "broadcast") rank.group->broadcast(*rank.stream, in, 0);
      if (op == "all_gather") rank.group->all_gather(*rank.stream, out = twice, in);
      if (op == "reduce_scatter") {
        rank.stream->synchronize();
        rank.write(in, {base + static_cast<float>(r + 1), base + 5});
        rank.group->reduce_scatter(*rank.stream, out = half, in);
      }
      seen[static_cast<size_t>(r)][static_cast<size_t>(call)] = rank.read(out);
      rank.group->barrier();
    }
  });
  return seen;
}

class FaultyTest : public testing::TestWithParam<StreamMode> {
 protected:
  static Seen with(const std::string& op, What what, float factor = 1) {
    return run(op, {{.what = what, .op = op, .group = "zero", .call = 1, .factor = factor}},
               GetParam());
  }
};

TEST_P(FaultyTest, no_fault_changes_nothing) {
  const Seen healthy = run("all_gather", {}, GetParam());
  EXPECT_EQ(healthy[1][1], (Values{11, 11, 12, 12}));
  // Another group, another op, another call, another rank: none of them is injected.
  const std::vector<Fault> elsewhere = {{.op = "all_gather", .group = "tp"},
                                        {.op = "broadcast"},
                                        {.op = "all_gather", .call = 3},
                                        {.op = "all_gather", .world_rank = 2}};
  EXPECT_EQ(run("all_gather", elsewhere, GetParam()), healthy);
}

TEST_P(FaultyTest, all_gathers_go_wrong_once) {
  const Seen healthy = run("all_gather", {}, GetParam());
  const std::map<What, std::pair<Values, Values>> expected = {
      {What::drop, {{11, 11, 0, 0}, {0, 0, 12, 12}}},
      {What::doubled, {{22, 22, 24, 24}, {22, 22, 24, 24}}},
      {What::wrong_order, {{12, 12, 11, 11}, {12, 12, 11, 11}}},
      {What::stale, {{1, 1, 2, 2}, {1, 1, 2, 2}}},
      {What::skip_wait, {{99, 99, 99, 99}, {99, 99, 99, 99}}},
      {What::delay, {{11, 11, 12, 12}, {11, 11, 12, 12}}},
  };
  for (const auto& [what, values] : expected) {
    const Seen seen = with("all_gather", what);
    EXPECT_EQ(seen[0][1], values.first) << name_of(what);
    EXPECT_EQ(seen[1][1], values.second) << name_of(what);
    for (const size_t rank : {0, 1}) {
      EXPECT_EQ(seen[rank][0], healthy[rank][0]) << name_of(what);
      EXPECT_EQ(seen[rank][2], healthy[rank][2]) << name_of(what);
    }
  }
}

TEST_P(FaultyTest, sums_go_wrong_once) {
  const auto of_call_1 = [](const Seen& seen) { return std::pair(seen[0][1], seen[1][1]); };
  EXPECT_EQ(of_call_1(run("all_reduce", {}, GetParam())),
            (std::pair<Values, Values>{{23, 23}, {23, 23}}));
  EXPECT_EQ(of_call_1(with("all_reduce", What::drop)),
            (std::pair<Values, Values>{{11, 11}, {12, 12}}));
  EXPECT_EQ(of_call_1(with("all_reduce", What::doubled)),
            (std::pair<Values, Values>{{46, 46}, {46, 46}}));
  EXPECT_EQ(of_call_1(with("all_reduce", What::scale, 0.5F)),
            (std::pair<Values, Values>{{11.5, 11.5}, {11.5, 11.5}}));
  EXPECT_EQ(of_call_1(with("all_reduce", What::stale)),
            (std::pair<Values, Values>{{3, 3}, {3, 3}}));
  EXPECT_EQ(of_call_1(run("reduce_scatter", {}, GetParam())),
            (std::pair<Values, Values>{{23}, {30}}));
  EXPECT_EQ(of_call_1(with("reduce_scatter", What::wrong_order)),
            (std::pair<Values, Values>{{30}, {23}}));
}

// A large all_reduce gathers parts: those can be swapped (and only those: two swaps would cancel).
TEST_P(FaultyTest, parts_of_a_large_all_reduce_are_exchanged) {
  const Fault swapped = {.what = What::wrong_order, .op = "all_reduce"};
  Values halves(4096, 1), sum(4096, 4);
  halves.resize(8192, 2);
  sum.resize(8192, 2);
  ThreadWorld world(2, 20);
  run_ranks(world, [&](int r) {
    auto faulty = std::make_unique<FaultyCommunicator>(world.communicator(r, {.name = "world"}),
                                                       std::vector<Fault>{swapped});
    FaultyCommunicator& group = *faulty;
    Rank rank(std::move(faulty), GetParam());
    const Tensor x = rank.make(halves);
    group.all_reduce(*rank.stream, x, Reduce::sum);
    EXPECT_EQ(rank.read(x), sum);
    EXPECT_GT(group.happened(), 0);
    group.barrier();
  });
}

TEST_P(FaultyTest, broadcasts_and_single_ranks) {
  const Fault fault = {.what = What::drop, .op = "broadcast", .world_rank = 1};
  const Seen seen = run("broadcast", {fault}, GetParam());
  EXPECT_EQ(seen[0][2], (Values{21, 21}));
  EXPECT_EQ(seen[1][2], (Values{0, 0}));
}

TEST_P(FaultyTest, data_sent_twice_is_counted_twice) {
  const auto bytes_with = [](std::vector<Fault> faults) {
    ThreadWorld world(2, 20);
    std::vector<int64_t> bytes(2);
    run_ranks(world, [&](int r) {
      Rank rank(std::make_unique<FaultyCommunicator>(world.communicator(r, {.name = "world"}),
                                                     std::vector<Fault>(faults)),
                GetParam());
      const Tensor in = rank.make({1, 2}), out = rank.make({9, 9, 9, 9});
      rank.group->all_gather(*rank.stream, out, in);
      EXPECT_EQ(rank.read(out), (Values{1, 2, 1, 2}));
      bytes[static_cast<size_t>(r)] = rank.group->traffic().bytes;
      rank.group->barrier();
    });
    return bytes;
  };
  const Fault resent = {.what = What::resent, .op = "all_gather"};
  EXPECT_EQ(bytes_with({}), (std::vector<int64_t>{8, 8}));
  EXPECT_EQ(bytes_with({resent}), (std::vector<int64_t>{16, 16}));
}

// The next call of the absent rank is matched with the one that it skipped.
TEST_P(FaultyTest, an_absent_rank_is_noticed) {
  const Fault absent = {.what = What::absent, .op = "all_gather", .call = 0, .world_rank = 1};
  EXPECT_THROW(run("all_gather", {absent}, GetParam()), base::CommAborted);
}

TEST_P(FaultyTest, delays_take_their_time) {
  const auto begin = std::chrono::steady_clock::now();
  run("all_gather", {{.what = What::delay, .op = "all_gather", .seconds = 0.05}}, GetParam());
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(150));
}

INSTANTIATE_TEST_SUITE_P(modes, FaultyTest,
                         testing::Values(StreamMode::inline_calls, StreamMode::worker_threads),
                         [](const testing::TestParamInfo<StreamMode>& mode) {
                           return mode.param == StreamMode::inline_calls ? "inline" : "worker";
                         });

}  // namespace
}  // namespace trireme::comm
