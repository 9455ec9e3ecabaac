// SPDX-License-Identifier: Apache-2.0
// A rank without its peers beside the same rank among threads: the same calls and bytes, and finite
// numbers wherever data of peers would arrive.
#include "comm/alone.h"

#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "base/error.h"
#include "comm/mesh.h"
#include "comm/world/rank_test.h"

namespace trireme::comm {
namespace {

constexpr int alone_ranks = 3;

using Outputs = std::map<std::string, Values>;

// What a rank counts and receives.
struct Heard {
  std::map<std::string, Traffic> traffic;  // by name of the group
  std::map<std::string, std::vector<int>> members;
  Outputs outputs;
};

// Makes every kind of call once. Outputs are NaN before.
Heard hear(Rank& rank, DType dtype) {
  Heard heard;
  Communicator& all = *rank.group;
  Stream& stream = *rank.stream;
  const int n = all.size(), own = all.rank();
  const auto seed = static_cast<uint64_t>(own + 1);
  const auto empty = [&](int64_t count) {
    return rank.make(Values(static_cast<size_t>(count), std::nanf("")), dtype);
  };
  const auto full = [&](int64_t count) {
    return rank.make(random_values(count, seed, dtype), dtype);
  };
  const auto keep = [&](const std::string& what, const Tensor& tensor) {
    heard.outputs[what] = rank.read(tensor);
  };
  const Tensor in = full(n * 40), part = empty(40), gathered = empty(n * n * 40),
               moved = empty(n * 40);
  all.all_gather(stream, gathered, in);
  keep("all_gather", gathered);
  all.all_to_all(stream, moved, in);
  keep("all_to_all", moved);
  all.shift(stream, moved, in);
  keep("shift", moved);
  all.reduce_scatter(stream, part, in);
  keep("reduce_scatter", part);
  // The first rank has two parts of the sum, the others one.
  const SumOrder order{.leaves = 4, .parts = {{{1, 2}, {2, 3}}, {{0, 1}}, {{3, 4}}}};
  std::vector<ConstTensor> parts = {in};
  if (own == 0) parts.emplace_back(full(n * 40));
  all.reduce_scatter(stream, part, parts, order);
  keep("reduce_scatter of parts", part);
  const Tensor small = full(100), large = full(small_elements + 5);
  all.all_reduce(stream, small, Reduce::sum);
  keep("small all_reduce", small);
  all.all_reduce(stream, large, Reduce::sum);
  keep("large all_reduce", large);
  if (!rank.is_cuda) {
    const Tensor largest = rank.make(random_values(50, seed));
    all.all_reduce(stream, largest, Reduce::max);
    keep("max", largest);
  }
  const Tensor shared = own == 1 ? full(70) : empty(70);
  all.broadcast(stream, shared, 1);
  keep("broadcast", shared);
  const Tensor message = full(90), received = empty(90);
  const auto sent = all.start_send(stream, message, (own + 1) % n);
  all.recv(stream, received, (own + n - 1) % n);
  sent->wait(stream);
  keep("recv", received);
  const auto pair = all.subgroup(own == 1 ? std::vector{1} : std::vector{2, 0}, {.name = "pair"});
  const Tensor both = empty(pair->size() * 100);
  pair->all_gather(stream, both, small);
  keep("all_gather of a pair", both);
  all.barrier();
  for (const Communicator* group : std::initializer_list<Communicator*>{&all, pair.get()}) {
    heard.traffic[group->name()] = group->traffic();
    heard.members[group->name()] = group->world_ranks();
  }
  stream.synchronize();
  return heard;
}

class AloneTest : public testing::TestWithParam<std::pair<DType, StreamMode>> {
 protected:
  static std::vector<Heard> among_threads() {
    std::vector<Heard> heard(alone_ranks);
    ThreadWorld world(alone_ranks, 60);
    run_ranks(world, [&](int r) {
      Rank rank(world, r, StreamMode::inline_calls);
      heard[static_cast<size_t>(r)] = hear(rank, GetParam().first);
    });
    return heard;
  }
};

TEST_P(AloneTest, a_rank_counts_what_it_counts_among_threads_and_receives_finite_numbers) {
  const auto [dtype, mode] = GetParam();
  const std::vector<Heard> threads = among_threads();
  for (int r = 0; r < alone_ranks; ++r) {
    const auto device = make_device(mode);
    AloneWorld world(*device, r, alone_ranks, 0);
    Rank rank(world.communicator({.name = "world", .deadline_s = 60}), mode);
    const Heard alone = hear(rank, dtype);
    const Heard& expected = threads[static_cast<size_t>(r)];
    EXPECT_EQ(alone.members, expected.members);
    ASSERT_EQ(alone.traffic.size(), 2U);
    for (const auto& [group, traffic] : alone.traffic) {
      EXPECT_EQ(traffic.bytes, expected.traffic.at(group).bytes) << group;
      EXPECT_EQ(traffic.calls, expected.traffic.at(group).calls) << group;
    }
    ASSERT_EQ(alone.outputs.size(), expected.outputs.size());
    for (const auto& [what, values] : alone.outputs) {
      ASSERT_EQ(values.size(), expected.outputs.at(what).size()) << what;
      double magnitude = 0;
      for (const float value : values) {
        ASSERT_TRUE(std::isfinite(value)) << what << " on rank " << r;
        magnitude += std::abs(value);
      }
      EXPECT_GT(magnitude, 0) << what;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(types, AloneTest,
                         testing::Values(std::pair(DType::f32, StreamMode::inline_calls),
                                         std::pair(DType::bf16, StreamMode::worker_threads),
                                         std::pair(DType::f16, StreamMode::inline_calls)));

TEST(Alone, peers_send_what_this_rank_sends_to_them) {
  const auto device = make_device(StreamMode::inline_calls);
  AloneWorld world(*device, 1, alone_ranks, 0);
  Rank rank(world.communicator({.name = "world"}), StreamMode::inline_calls);
  const Values values = random_values(12, 5);
  const Tensor in = rank.make(values), moved = rank.make(Values(12)), all = rank.make(Values(36));
  rank.group->all_to_all(*rank.stream, moved, in);
  EXPECT_EQ(rank.read(moved), values);
  rank.group->all_gather(*rank.stream, all, in);
  for (int r = 0; r < alone_ranks; ++r) EXPECT_EQ(part_of(rank.read(all), r, alone_ranks), values);
  // The tree over three leaves.
  const Tensor sum = rank.make(Values(4));
  rank.group->reduce_scatter(*rank.stream, sum, in);
  EXPECT_EQ(
      rank.read(sum),
      tree_sum({part_of(values, 0, 3), part_of(values, 1, 3), part_of(values, 2, 3)}, DType::f32));
}

TEST(Alone, sums_of_a_library_stay_finite_and_count_as_such) {
  const auto device = make_device(StreamMode::inline_calls);
  AloneWorld world(*device, 2, alone_ranks, 0);
  // No buffer: nothing is summed in the tree.
  Rank rank(world.communicator({.name = "world", .fixed_order = false}), StreamMode::inline_calls,
            0);
  const Values values = random_values(30, 5);
  const Tensor in = rank.make(values), out = rank.make(Values(10, std::nanf("")));
  rank.group->reduce_scatter(*rank.stream, out, in);
  EXPECT_EQ(rank.read(out), part_of(values, 1, 3));
  EXPECT_EQ(rank.group->traffic().bytes, 2 * 40);
  rank.group->reduce_scatter(*rank.stream, in.slice_rows(20, 10), in);
  EXPECT_EQ(rank.read(in.slice_rows(20, 10)), part_of(values, 1, 3));
  rank.group->all_reduce(*rank.stream, in, Reduce::sum);
  for (const float value : rank.read(in)) EXPECT_TRUE(std::isfinite(value));
  EXPECT_EQ(rank.group->traffic().bytes, 4 * 40 + 2 * 2 * 40);
}

TEST(Alone, longer_messages_than_its_memory_arrive_in_pieces) {
  const auto device = make_device(StreamMode::inline_calls);
  const int64_t bytes = AloneWorld::memory_bytes(0);
  AloneWorld world(*device, 0, 2, 0);
  EXPECT_EQ(device->ledger().live(), bytes);
  Rank rank(world.communicator({.name = "world"}), StreamMode::inline_calls);
  const int64_t count = bytes / 4 * 2 + 7;
  const Tensor out = rank.make(Values(static_cast<size_t>(count), std::nanf("")));
  rank.group->recv(*rank.stream, out, 1);
  for (const float value : rank.read(out)) {
    ASSERT_GE(std::abs(value), 0.5F);
    ASSERT_LT(std::abs(value), 2.0F);
  }
}

TEST(Alone, a_mesh_of_many_ranks_has_the_groups_of_one_rank) {
  spec::Sizes sizes;
  sizes[spec::Axis::pp] = 16;
  sizes[spec::Axis::dp] = 128;
  sizes[spec::Axis::tp] = 8;
  const auto device = make_device(StreamMode::inline_calls);
  AloneWorld world(*device, 5 + 8 * 3, 16 * 128 * 8, 0);
  const auto all = world.communicator({.name = "world"});
  Mesh mesh(*all, sizes);
  EXPECT_EQ(mesh.along(spec::Axis::tp).rank(), 5);
  EXPECT_EQ(mesh.along(spec::Axis::tp).world_ranks().front(), 24);
  EXPECT_EQ(mesh.along(spec::Axis::dp).rank(), 3);
  EXPECT_EQ(mesh.along(spec::Axis::dp).size(), 128);
  EXPECT_EQ(mesh.along(spec::Axis::pp).world_ranks()[2], 2 * 128 * 8 + 29);
}

TEST(Alone, calls_after_an_abort_throw) {
  const auto device = make_device(StreamMode::inline_calls);
  AloneWorld world(*device, 0, 2, 0);
  Rank rank(world.communicator({.name = "world"}), StreamMode::inline_calls);
  const auto pair = rank.group->subgroup(std::vector{1, 0}, {.name = "pair"});
  EXPECT_EQ(pair->rank(), 1);
  pair->abort("it is enough");
  const Tensor in = rank.make(Values(4)), out = rank.make(Values(8));
  EXPECT_THROW(rank.group->all_gather(*rank.stream, out, in), base::CommAborted);
}

}  // namespace
}  // namespace trireme::comm
