// SPDX-License-Identifier: Apache-2.0
// Sums and gathers in two levels against plain computations: declared nodes of thread ranks, in any
// order of the ranks, with more leaves than ranks, small buffers and random shapes; and the bytes
// that they count.
#include <algorithm>
#include <numeric>

#include "comm/world/rank_test.h"
#include "spec/sums/sum_levels.h"

namespace trireme::comm {
namespace {

struct Shape {
  int nodes = 2, places = 2;
  int64_t leaves_a_rank = 1;
  int64_t share = 5;  // elements of a rank's result
  DType dtype = DType::f32;
  StreamMode mode = StreamMode::inline_calls;
  int64_t buffer_parts = 1;  // the buffer has this many times its least size
  std::vector<int> node_of;  // by rank; empty: blocks of neighbours

  int ranks() const { return nodes * places; }
  std::vector<int> nodes_of_ranks() const {
    if (!node_of.empty()) return node_of;
    std::vector<int> all;
    for (int rank = 0; rank < ranks(); ++rank) all.push_back(rank / places);
    return all;
  }
};

class Sums {
 public:
  // Rank r has the leaves of rank `leaves_of[r]`; empty: its own.
  explicit Sums(Shape shape, std::vector<int> leaves_of = {}) : shape_(std::move(shape)) {
    const int ranks = shape_.ranks();
    if (leaves_of.empty()) {
      leaves_of.resize(static_cast<size_t>(ranks));
      std::iota(leaves_of.begin(), leaves_of.end(), 0);
    }
    const SumOrder by_leaf = SumOrder::hosted(shape_.leaves_a_rank * ranks, ranks);
    order_.leaves = by_leaf.leaves;
    for (const int own : leaves_of) order_.parts.push_back(by_leaf.parts[static_cast<size_t>(own)]);
    for (int64_t leaf = 0; leaf < order_.leaves; ++leaf) {
      leaves_.push_back(
          random_values(shape_.share * ranks, 7 + static_cast<uint64_t>(leaf), shape_.dtype));
    }
    sum_ = tree_sum(leaves_, shape_.dtype);
  }

  int64_t buffer_bytes() const {
    int64_t parts = 0;
    for (const auto& own : order_.parts) parts += std::ssize(own);
    return 256 * parts * shape_.buffer_parts;
  }

  void expect_the_bits_of_one_rank() const {
    ThreadWorld world(shape_.ranks(), 60);
    run_ranks(world, [&](int r) {
      Rank rank(world.communicator(r, {.name = "world", .nodes = shape_.nodes_of_ranks()}),
                shape_.mode, buffer_bytes());
      reduce_scatter(rank);
      all_reduce(rank);
      all_gather(rank);
      rank.stream->synchronize();
      rank.group->barrier();
    });
    EXPECT_EQ(world.verdict(), "");
  }

 private:
  std::vector<ConstTensor> parts_of(Rank& rank) const {
    std::vector<ConstTensor> parts;
    for (const spec::Range node : order_.parts[static_cast<size_t>(rank.group->rank())]) {
      parts.emplace_back(rank.make(tree_sum(leaves_, node, shape_.dtype), shape_.dtype));
    }
    return parts;
  }

  void reduce_scatter(Rank& rank) const {
    const int own = rank.group->rank(), ranks = shape_.ranks();
    const auto parts = parts_of(rank);
    const Tensor out = rank.make(Values(static_cast<size_t>(shape_.share)), shape_.dtype);
    const Traffic before = rank.group->traffic();
    rank.group->reduce_scatter(*rank.stream, out, parts, order_);
    EXPECT_EQ(rank.read(out), part_of(sum_, own, ranks));
    const spec::SharesSent predicted =
        spec::shares_sent(order_.leaves, order_.parts, shape_.nodes_of_ranks(), own);
    EXPECT_EQ(rank.group->traffic().bytes - before.bytes, predicted.all * out.bytes());
    EXPECT_EQ(rank.group->traffic().network_bytes - before.network_bytes,
              predicted.far * out.bytes());
    // In place: the result replaces this rank's share of a part.
    const Tensor place{parts.back().data == nullptr
                           ? nullptr
                           : const_cast<std::byte*>(parts.back().data) + own * out.bytes(),
                       {shape_.share},
                       1,
                       shape_.dtype};
    rank.group->reduce_scatter(*rank.stream, place, parts, order_);
    EXPECT_EQ(rank.read(place), part_of(sum_, own, ranks));
    rank.group->barrier();  // the parts are read by other ranks until here
  }

  void all_reduce(Rank& rank) const {
    const auto parts = parts_of(rank);
    const Tensor out = rank.make(Values(sum_.size()), shape_.dtype);
    rank.group->all_reduce(*rank.stream, out, parts, order_);
    EXPECT_EQ(rank.read(out), sum_);
  }

  void all_gather(Rank& rank) const {
    const int own = rank.group->rank(), ranks = shape_.ranks();
    const Tensor out = rank.make(Values(sum_.size()), shape_.dtype);
    const Traffic before = rank.group->traffic();
    rank.group->all_gather(*rank.stream, out, rank.make(part_of(sum_, own, ranks), shape_.dtype));
    EXPECT_EQ(rank.read(out), sum_);
    const int64_t share_bytes = out.bytes() / ranks;
    EXPECT_EQ(rank.group->traffic().bytes - before.bytes, (ranks - 1) * share_bytes);
    if (spec::node_grid(shape_.nodes_of_ranks())) {
      EXPECT_EQ(rank.group->traffic().network_bytes - before.network_bytes,
                (shape_.nodes - 1) * share_bytes);
    }
    // In place.
    const Tensor again = rank.make(Values(sum_.size()), shape_.dtype);
    const Tensor place = again.slice_rows(own * shape_.share, shape_.share);
    rank.write(place, part_of(sum_, own, ranks));
    rank.group->all_gather(*rank.stream, again, place);
    EXPECT_EQ(rank.read(again), sum_);
  }

  Shape shape_;
  SumOrder order_;
  std::vector<Values> leaves_;
  Values sum_;
};

TEST(TwoLevels, give_the_bits_of_one_rank_on_2_to_4_nodes_of_1_to_4_ranks) {
  for (const int nodes : {2, 3, 4}) {
    for (const int places : {1, 2, 3, 4}) {
      for (const int64_t leaves : {1, 3}) {
        SCOPED_TRACE(fmt::format("{} nodes x {} ranks x {} leaves", nodes, places, leaves));
        Sums({.nodes = nodes, .places = places, .leaves_a_rank = leaves, .share = 700})
            .expect_the_bits_of_one_rank();
      }
    }
  }
}

TEST(TwoLevels, give_the_bits_of_one_rank_on_streams_that_run_later) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    Sums({.nodes = 3,
          .places = 2,
          .leaves_a_rank = 5,
          .share = 501,
          .dtype = dtype,
          .mode = StreamMode::worker_threads})
        .expect_the_bits_of_one_rank();
  }
}

// As in HSDP: the neighbours in a node are not neighbours in the group.
TEST(TwoLevels, do_not_need_the_ranks_of_a_node_to_be_neighbours) {
  const Shape shape{.nodes = 2, .places = 4, .share = 300, .node_of = {0, 1, 0, 1, 0, 1, 0, 1}};
  Sums(shape, {0, 4, 1, 5, 2, 6, 3, 7}).expect_the_bits_of_one_rank();
  Sums(shape).expect_the_bits_of_one_rank();  // nothing folds in a node: one level
}

TEST(TwoLevels, nodes_with_different_numbers_of_ranks_sum_in_one_level) {
  Sums({.nodes = 2, .places = 3, .share = 40, .node_of = {0, 0, 0, 0, 1, 1}})
      .expect_the_bits_of_one_rank();
}

TEST(TwoLevels, random_shapes_give_the_bits_of_one_rank) {
  const base::RngKey key = base::rng_key(47, "levels");
  uint64_t next = 0;
  const auto roll = [&](int64_t first, int64_t last) {
    return first + static_cast<int64_t>(
                       base::rng_below(key, next++, static_cast<uint64_t>(last - first + 1)));
  };
  for (int i = 0; i < 60 && !testing::Test::HasFailure(); ++i) {
    Shape shape{.nodes = static_cast<int>(roll(2, 4)),
                .places = static_cast<int>(roll(1, 4)),
                .leaves_a_rank = roll(1, 6),
                .share = roll(0, 3) == 0 ? roll(500, 900) : roll(1, 60),
                .dtype = roll(0, 1) == 0 ? DType::f32 : DType::bf16,
                .mode = roll(0, 1) == 0 ? StreamMode::inline_calls : StreamMode::worker_threads,
                .buffer_parts = roll(1, 4)};
    std::vector<int> nodes = shape.nodes_of_ranks(), leaves(nodes.size());
    std::iota(leaves.begin(), leaves.end(), 0);
    const auto shuffle = [&](std::vector<int>& all) {
      for (size_t at = all.size() - 1; at > 0; --at) {
        std::swap(all[at], all[static_cast<size_t>(roll(0, static_cast<int64_t>(at)))]);
      }
    };
    if (roll(0, 1) == 0) shuffle(nodes);
    if (roll(0, 1) == 0) shuffle(leaves);
    shape.node_of = nodes;
    SCOPED_TRACE(
        fmt::format("shape {}: {} nodes x {} ranks x {} leaves, share {}, nodes {}, leaves "
                    "of {}",
                    i, shape.nodes, shape.places, shape.leaves_a_rank, shape.share,
                    fmt::join(nodes, " "), fmt::join(leaves, " ")));
    Sums(shape, leaves).expect_the_bits_of_one_rank();
  }
}

TEST(TwoLevels, are_those_of_a_group_and_not_of_the_world) {
  const std::vector<int> nodes = {0, 0, 0, 0, 1, 1, 1, 1};
  ThreadWorld world(8, 60);
  run_ranks(world, [&](int r) {
    Rank rank(world.communicator(r, {.name = "world", .nodes = nodes}), StreamMode::inline_calls);
    // Two ranks of each node: 0, 1, 4, 5 and 2, 3, 6, 7.
    Communicator::Options options = rank.group->options();
    options.name = "half";
    const auto half = rank.group->split(r / 2 % 2, r, options);
    half->set_buffer(rank.arena.take({{1 << 14}, DType::u8}));
    const Tensor in = rank.make(Values(4 * 10, 1)), out = rank.make(Values(10));
    half->reduce_scatter(*rank.stream, out, in);
    EXPECT_EQ(rank.read(out), Values(10, 4));
    EXPECT_EQ(half->traffic().bytes, 3 * out.bytes());
    EXPECT_EQ(half->traffic().network_bytes, out.bytes());
    EXPECT_FALSE(half->has_library_sums());
    rank.group->barrier();
  });
}

TEST(TwoLevels, whose_sums_they_are) {
  ThreadWorld world(2, 60);
  run_ranks(world, [&](int r) {
    // Threads have no library.
    EXPECT_FALSE(
        world.communicator(r, {.name = "world", .fixed_order = false})->has_library_sums());
  });
}

}  // namespace
}  // namespace trireme::comm
