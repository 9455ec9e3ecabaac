// SPDX-License-Identifier: Apache-2.0
// Every collective against a plain computation: all group sizes, both stream modes, ranks that
// share a GPU, both types, odd sizes, small buffers, hosted orders; and the traffic that they
// count.
#include "comm/communicator.h"

#include <cmath>
#include <limits>
#include <utility>

#include "comm/world/rank_test.h"

namespace trireme::comm {
namespace {

struct Case {
  int ranks;
  Place place;
  DType dtype;
};

class CommunicatorTest : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!GetParam().place.is_cuda) return;
    static const std::string problem = device::gpu_status().problem;
    if (!problem.empty()) GTEST_SKIP() << problem;
  }
  void run(const std::function<void(Rank&)>& body, int64_t buffer_bytes = 1 << 16) {
    ThreadWorld world(GetParam().ranks, 60);
    run_ranks(world, [&](int rank) {
      Rank own(world, rank, GetParam().place, buffer_bytes);
      body(own);
      own.stream->synchronize();
      own.group->barrier();
    });
    EXPECT_EQ(world.verdict(), "");
  }
  // The contributions of all ranks, computed on every rank.
  std::vector<Values> inputs(int64_t count, uint64_t seed = 1) const {
    std::vector<Values> all;
    for (int rank = 0; rank < GetParam().ranks; ++rank) {
      all.push_back(random_values(count, seed * 100 + static_cast<uint64_t>(rank), dtype()));
    }
    return all;
  }
  DType dtype() const { return GetParam().dtype; }
};

const Values& of_rank(const std::vector<Values>& all, const Rank& rank) {
  return all[static_cast<size_t>(rank.group->rank())];
}

TEST_P(CommunicatorTest, all_reduce_sums_in_the_tree_on_every_rank) {
  // The last two with a buffer that needs many rounds.
  for (const int64_t count : {1, 3, 17, 4095, 4096, 5003, 24 * 400}) {
    for (const int64_t buffer_bytes : {1 << 16, 8 * 256}) {
      const auto all = inputs(count);
      const Values expected = tree_sum(all, dtype());
      run(
          [&](Rank& rank) {
            const Tensor x = rank.make(of_rank(all, rank), dtype());
            rank.group->all_reduce(*rank.stream, x, Reduce::sum);
            EXPECT_EQ(rank.read(x), expected) << count;
          },
          buffer_bytes);
    }
  }
}

TEST_P(CommunicatorTest, maxima_are_exact_and_keep_a_nan) {
  auto all = inputs(700);
  all.back()[5] = std::numeric_limits<float>::quiet_NaN();
  Values expected = all[0];
  for (const Values& values : all) {
    for (size_t i = 0; i < values.size(); ++i) {
      if (values[i] > expected[i] || std::isnan(values[i])) expected[i] = values[i];
    }
  }
  run(
      [&](Rank& rank) {
        const Tensor x = rank.make(of_rank(all, rank));
        rank.group->all_reduce(*rank.stream, x, Reduce::max);
        const Values found = rank.read(x);
        for (size_t i = 0; i < found.size(); ++i) {
          if (i == 5) {
            EXPECT_TRUE(std::isnan(found[i]));
          } else {
            EXPECT_EQ(found[i], expected[i]);
          }
        }
      },
      8 * 256);
}

TEST_P(CommunicatorTest, reduce_scatter_writes_the_part_of_each_rank_also_in_place) {
  for (const int64_t shard : {1, 7, 1000}) {
    const auto all = inputs(shard * GetParam().ranks);
    const Values sum = tree_sum(all, dtype());
    run(
        [&](Rank& rank) {
          const int own = rank.group->rank(), ranks = rank.group->size();
          const Tensor in = rank.make(of_rank(all, rank), dtype());
          const Tensor out = rank.make(Values(static_cast<size_t>(shard)), dtype());
          rank.group->reduce_scatter(*rank.stream, out, in);
          EXPECT_EQ(rank.read(out), part_of(sum, own, ranks));
          const Tensor place = in.slice_rows(own * shard, shard);
          rank.group->reduce_scatter(*rank.stream, place, in);
          EXPECT_EQ(rank.read(place), part_of(sum, own, ranks));
        },
        8 * 256);
  }
}

TEST_P(CommunicatorTest, all_gather_keeps_the_order_of_ranks_also_in_place) {
  for (const int64_t count : {1, 33, 5000}) {
    const auto all = inputs(count);
    Values expected;
    for (const Values& values : all) expected.insert(expected.end(), values.begin(), values.end());
    run([&](Rank& rank) {
      const Tensor in = rank.make(of_rank(all, rank), dtype());
      const Tensor out = rank.make(Values(expected.size()), dtype());
      rank.group->all_gather(*rank.stream, out, in);
      EXPECT_EQ(rank.read(out), expected);
      const Tensor again = rank.make(Values(expected.size()), dtype());
      const Tensor place = again.slice_rows(rank.group->rank() * count, count);
      rank.write(place, of_rank(all, rank));
      rank.group->all_gather(*rank.stream, again, place);
      EXPECT_EQ(rank.read(again), expected);
    });
  }
}

TEST_P(CommunicatorTest, broadcast_from_every_root) {
  const auto all = inputs(129);
  run([&](Rank& rank) {
    for (int root = 0; root < rank.group->size(); ++root) {
      const Tensor x = rank.make(of_rank(all, rank), dtype());
      rank.group->broadcast(*rank.stream, x, root);
      EXPECT_EQ(rank.read(x), all[static_cast<size_t>(root)]);
    }
  });
}

TEST_P(CommunicatorTest, all_to_all_moves_blocks_and_counts) {
  const int64_t capacity = 3, width = 5;
  const auto all = inputs(GetParam().ranks * capacity * width);
  run([&](Rank& rank) {
    const int ranks = rank.group->size(), own = rank.group->rank();
    const Tensor in = rank.make(of_rank(all, rank), dtype()).reshape({ranks * capacity, width});
    const Tensor out =
        rank.make(Values(of_rank(all, rank).size()), dtype()).reshape({ranks * capacity, width});
    const Tensor counts_in = rank.arena.take({{ranks}, DType::i32});
    const Tensor counts_out = rank.arena.take({{ranks}, DType::i32});
    std::vector<int32_t> counts;
    for (int r = 0; r < ranks; ++r) counts.push_back(10 * own + r);
    rank.put(counts_out, counts);
    rank.group->all_to_all(*rank.stream, out, counts_in, in, counts_out, capacity);
    const Values found = rank.read(out.reshape({out.elements()}));
    const auto counts_found = rank.get<int32_t>(counts_in);
    for (int r = 0; r < ranks; ++r) {
      EXPECT_EQ(part_of(found, r, ranks), part_of(all[static_cast<size_t>(r)], own, ranks));
      EXPECT_EQ(counts_found[static_cast<size_t>(r)], 10 * r + own);
    }
  });
}

TEST_P(CommunicatorTest, all_to_all_without_counts_moves_blocks) {
  const int64_t block = 15;
  const auto all = inputs(GetParam().ranks * block);
  run([&](Rank& rank) {
    const int ranks = rank.group->size(), own = rank.group->rank();
    const Tensor in = rank.make(of_rank(all, rank), dtype());
    const Tensor out = rank.make(Values(of_rank(all, rank).size()), dtype());
    rank.group->all_to_all(*rank.stream, out, in);
    const Values found = rank.read(out);
    for (int r = 0; r < ranks; ++r) {
      EXPECT_EQ(part_of(found, r, ranks), part_of(all[static_cast<size_t>(r)], own, ranks));
    }
    EXPECT_EQ(rank.group->traffic().bytes, in.bytes() / ranks * (ranks - 1));
  });
}

TEST_P(CommunicatorTest, shift_receives_from_the_rank_before) {
  const auto all = inputs(50);
  run([&](Rank& rank) {
    const int own = rank.group->rank(), ranks = rank.group->size();
    Tensor here = rank.make(of_rank(all, rank), dtype()), next = rank.make(Values(50), dtype());
    for (int round = 1; round <= ranks; ++round) {
      rank.group->shift(*rank.stream, next, here);
      std::swap(here, next);
      const int from = (own - round + 2 * ranks) % ranks;
      EXPECT_EQ(rank.read(here), all[static_cast<size_t>(from)]);
    }
    EXPECT_EQ(rank.group->traffic().bytes, ranks == 1 ? 0 : ranks * here.bytes());
  });
}

TEST_P(CommunicatorTest, messages_arrive_in_order) {
  if (GetParam().ranks == 1) return;
  const auto all = inputs(50);
  run([&](Rank& rank) {
    const int own = rank.group->rank(), ranks = rank.group->size();
    const int left = (own + ranks - 1) % ranks, right = (own + 1) % ranks;
    const Tensor out = rank.make(of_rank(all, rank), dtype());
    for (int round = 0; round < 3; ++round) {
      const Tensor in = rank.make(Values(50), dtype());
      // A send waits for its receiver, so rank 0 of the ring receives first.
      if (own == 0) rank.group->recv(*rank.stream, in, left);
      rank.group->send(*rank.stream, out, right);
      if (own != 0) rank.group->recv(*rank.stream, in, left);
      EXPECT_EQ(rank.read(in), all[static_cast<size_t>((left - round + ranks * 3) % ranks)]);
      rank.stream->copy_bytes(out, in);
    }
    EXPECT_EQ(rank.group->traffic().bytes, 3 * out.bytes());
  });
}

// 24 workers on any number of ranks: the same bits with every call that sums.
TEST_P(CommunicatorTest, hosted_workers_give_the_same_bits_on_any_number_of_ranks) {
  const int64_t leaves = GetParam().ranks * 5, count = 4800 * GetParam().ranks;
  const int64_t small = 31;
  std::vector<Values> all, all_small;
  for (int64_t leaf = 0; leaf < leaves; ++leaf) {
    all.push_back(random_values(count, static_cast<uint64_t>(leaf), dtype()));
    all_small.push_back(part_of(all.back(), 0, count / small));
  }
  const Values sum = tree_sum(all, dtype()), small_sum = tree_sum(all_small, dtype());
  const SumOrder order = SumOrder::hosted(leaves, GetParam().ranks);
  run([&](Rank& rank) {
    const int own = rank.group->rank(), ranks = rank.group->size();
    std::vector<ConstTensor> parts, small_parts;
    for (const spec::Range node : order.parts[static_cast<size_t>(own)]) {
      const Values value = tree_sum(all, node, dtype());
      parts.emplace_back(rank.make(value, dtype()));
      small_parts.emplace_back(rank.make(part_of(value, 0, count / small), dtype()));
    }
    const Tensor shard = rank.make(Values(static_cast<size_t>(count / ranks)), dtype());
    rank.group->reduce_scatter(*rank.stream, shard, parts, order);
    EXPECT_EQ(rank.read(shard), part_of(sum, own, ranks));
    const int64_t own_parts = static_cast<int64_t>(parts.size());
    EXPECT_EQ(rank.group->traffic().bytes, own_parts * (ranks - 1) * shard.bytes());

    const Tensor few = rank.make(Values(static_cast<size_t>(small)), dtype());
    rank.group->all_reduce(*rank.stream, few, small_parts, order);
    EXPECT_EQ(rank.read(few), small_sum);

    const Tensor whole = rank.make(Values(static_cast<size_t>(count)), dtype());
    rank.group->all_reduce(*rank.stream, whole, parts, order);
    EXPECT_EQ(rank.read(whole), sum);
  });
}

TEST_P(CommunicatorTest, the_order_of_ranks_need_not_be_that_of_the_leaves) {
  const int ranks = GetParam().ranks;
  const auto all = inputs(ranks * 4);
  SumOrder order{.leaves = ranks};
  std::vector<Values> by_leaf(all.size());
  for (int rank = 0; rank < ranks; ++rank) {
    const int leaf = ranks - 1 - rank;
    order.parts.push_back({{leaf, leaf + 1}});
    by_leaf[static_cast<size_t>(leaf)] = all[static_cast<size_t>(rank)];
  }
  const Values sum = tree_sum(by_leaf, dtype());
  run([&](Rank& rank) {
    const ConstTensor in = rank.make(of_rank(all, rank), dtype());
    const Tensor out = rank.make(Values(4), dtype());
    rank.group->reduce_scatter(*rank.stream, out, std::span(&in, 1), order);
    EXPECT_EQ(rank.read(out), part_of(sum, rank.group->rank(), ranks));
  });
}

TEST_P(CommunicatorTest, bytes_are_counted_by_the_formulas) {
  run([&](Rank& rank) {
    Communicator& group = *rank.group;
    const int64_t ranks = group.size(), others = ranks - 1;
    const int64_t size = base::size_of(dtype());
    int64_t before = 0;
    const auto sent = [&] {
      return group.traffic().bytes - std::exchange(before, group.traffic().bytes);
    };
    const Tensor x = rank.make(Values(static_cast<size_t>(840 * 10)), dtype());
    group.all_reduce(*rank.stream, x, Reduce::sum);
    EXPECT_EQ(sent(), 2 * others * (8400 / ranks) * size);  // 840 divides by 1 to 8
    group.all_reduce(*rank.stream, x.slice_rows(0, 100), Reduce::sum);
    EXPECT_EQ(sent(), others * 100 * size);
    const int64_t odd = 8399, head = odd / ranks * ranks;
    group.all_reduce(*rank.stream, x.slice_rows(0, odd), Reduce::sum);
    EXPECT_EQ(sent(), 2 * others * head / ranks * size + others * (odd - head) * size);
    const int64_t shard = 8400 / ranks;
    group.reduce_scatter(*rank.stream, x.slice_rows(group.rank() * shard, shard), x);
    EXPECT_EQ(sent(), others * shard * size);
    group.broadcast(*rank.stream, x, 0);
    EXPECT_EQ(sent(), group.rank() == 0 ? others * x.bytes() : 0);
    EXPECT_EQ(group.traffic().calls, ranks == 1 ? 0 : 5);
  });
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const int ranks : {2, 3, 4}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      cases.push_back({ranks, Place::cuda(), dtype});
    }
  }
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (const StreamMode mode : {StreamMode::inline_calls, StreamMode::worker_threads}) {
      for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
        cases.push_back({ranks, mode, dtype});
      }
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(all, CommunicatorTest, testing::ValuesIn(all_cases()),
                         [](const testing::TestParamInfo<Case>& found) {
                           const Case& c = found.param;
                           const bool is_inline = c.place.mode == StreamMode::inline_calls;
                           return std::to_string(c.ranks) +
                                  (c.place.is_cuda ? "_cuda_"
                                   : is_inline     ? "_inline_"
                                                   : "_worker_") +
                                  std::string(base::name_of(c.dtype));
                         });

}  // namespace
}  // namespace trireme::comm
