// SPDX-License-Identifier: Apache-2.0
// Which pair has which row: route_rows and arrange_rows against a sort of the pairs, and the ops
// that move rows.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "kernels/ops.h"
#include "kernels/tests/experts/groups_rig_test.h"
#include "kernels/tests/op_test.h"

namespace trireme::kernels::experts_rows_test {
namespace {

using spec::RouterStats;

struct Routing {
  int64_t T, K, E;
  int64_t blocks = 1, tile = 1, capacity = 0;
  int64_t block_rows = 0;
  enum class Load : uint8_t { even, skewed, one } load = Load::even;

  std::string name() const {
    return fmt::format("T {} K {} E {} blocks {} tile {} capacity {} rows {} load {}", T, K, E,
                       blocks, tile, capacity, block_rows, static_cast<int>(load));
  }
};

// K different experts for every token. A skewed load prefers low indices, and leaves out the last
// expert where it can.
std::vector<int32_t> choices_of(const Routing& r) {
  const base::RngKey key = base::rng_key(5, "choices");
  std::vector<int32_t> list;
  uint64_t next = 0;
  for (int64_t t = 0; t < r.T; ++t) {
    std::vector<int32_t> of_token;
    while (static_cast<int64_t>(of_token.size()) < r.K) {
      const auto bound = static_cast<uint64_t>(r.E);
      auto e = static_cast<int32_t>(base::rng_below(key, next++, bound));
      if (r.load == Routing::Load::skewed) {
        e = std::min(e, static_cast<int32_t>(base::rng_below(key, next++, bound)));
        if (e == r.E - 1 && r.K < r.E) continue;
      }
      if (r.load == Routing::Load::one) e = static_cast<int32_t>(of_token.size());
      if (std::ranges::count(of_token, e) == 0) of_token.push_back(e);
    }
    list.insert(list.end(), of_token.begin(), of_token.end());
  }
  return list;
}

struct RouteResult {
  std::vector<int32_t> place, pair, counts, starts;
  int64_t dropped = 0, lost = 0, overflow = 0;
};

// The contract by a stable sort of the pairs.
RouteResult expected_of(const Routing& r, const std::vector<int32_t>& choice) {
  RouteResult x;
  std::vector<int32_t> order(choice.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](int32_t a, int32_t b) {
    return choice[static_cast<size_t>(a)] < choice[static_cast<size_t>(b)];
  });
  x.place.assign(choice.size(), -1);
  x.pair.assign(static_cast<size_t>(r.blocks * r.block_rows), -1);
  x.counts.assign(static_cast<size_t>(r.E), 0);
  const int64_t block_experts = r.E / r.blocks;
  size_t at = 0;
  int64_t next = 0;
  for (int32_t e = 0; e < r.E; ++e) {
    const int64_t block = e / block_experts;
    if (e % block_experts == 0) next = block * r.block_rows;
    x.starts.push_back(static_cast<int32_t>(next));
    int64_t kept = 0, within_capacity = 0;
    for (; at < order.size() && choice[static_cast<size_t>(order[at])] == e; ++at) {
      if (r.capacity > 0 && within_capacity == r.capacity) {
        ++x.dropped;
        continue;
      }
      ++within_capacity;
      if (next + kept >= (block + 1) * r.block_rows) {
        ++x.dropped;
        ++x.overflow;
      } else {
        const auto row = static_cast<int32_t>(next + kept++);
        x.place[static_cast<size_t>(order[at])] = row;
        x.pair[static_cast<size_t>(row)] = order[at];
      }
    }
    x.counts[static_cast<size_t>(e)] = static_cast<int32_t>(kept);
    next += (kept + r.tile - 1) / r.tile * r.tile;
  }
  x.starts.push_back(static_cast<int32_t>(next));
  for (size_t t = 0; t < choice.size(); t += static_cast<size_t>(r.K)) {
    const auto first = x.place.begin() + static_cast<ptrdiff_t>(t);
    if (std::count(first, first + r.K, -1) == r.K) ++x.lost;
  }
  return x;
}

std::vector<Routing> routings() {
  using enum Routing::Load;
  return {
      {1, 1, 1, 1, 1, 0, 1},           {7, 2, 4, 1, 1, 0, 14},
      {7, 2, 4, 1, 128, 0, 512},       {300, 3, 8, 1, 1, 0, 900, skewed},
      {300, 3, 8, 1, 128, 0, 2048},    {300, 3, 8, 1, 128, 0, 640, skewed},
      {300, 3, 8, 4, 1, 0, 300},       {300, 3, 8, 4, 1, 0, 200, skewed},
      {300, 3, 8, 4, 16, 20, 48},      {300, 3, 8, 2, 1, 70, 600, skewed},
      {257, 2, 8, 8, 1, 0, 64, one},   {64, 4, 4, 4, 1, 0, 64, one},
      {64, 2, 6, 1, 1, 5, 128, one},   {64, 2, 6, 1, 128, 0, 128, one},
      {2000, 8, 64, 8, 1, 0, 2100},    {2000, 8, 64, 1, 128, 300, 24192, skewed},
      {500, 1, 3, 1, 1, 0, 500, even}, {3000, 6, 160, 1, 128, 0, 38400},
  };
}

TEST(RouteRowsTest, rows_are_those_of_a_stable_sort) {
  for_each_machine([](Machine& machine) {
    for (const Routing& r : routings()) {
      SCOPED_TRACE(r.name());
      const std::vector<int32_t> choice = choices_of(r);
      const RouteResult expected = expected_of(r, choice);
      Operands o(3, machine);
      const RouterStats at = {r.E};
      const Tensor stats = o.result({at.size()});
      for (int64_t i = 0; i < at.size(); ++i) {
        reinterpret_cast<float*>(stats.data)[i] = static_cast<float>(i);
      }
      const RouteRowsArgs args = {.choice = o.integers(choice).reshape({r.T, r.K}),
                                  .experts = r.E,
                                  .blocks = r.blocks,
                                  .tile = r.tile,
                                  .capacity = r.capacity,
                                  .place = index_result(o, {r.T, r.K}),
                                  .pair = index_result(o, {r.blocks * r.block_rows}),
                                  .counts = index_result(o, {r.E}),
                                  .starts = index_result(o, {r.E + 1}),
                                  .stats = stats};
      ops::route_rows(*machine.stream, args);
      machine.stream->synchronize();
      o.expect_intact();
      EXPECT_EQ(integers_of(args.place), expected.place);
      EXPECT_EQ(integers_of(args.pair), expected.pair);
      EXPECT_EQ(integers_of(args.counts), expected.counts);
      EXPECT_EQ(integers_of(args.starts), expected.starts);
      const std::vector<double> counted = values_of(stats);
      for (int64_t i = 0; i < at.size(); ++i) {
        int64_t added = 0;
        if (i == at.dropped()) added = expected.dropped;
        if (i == at.lost()) added = expected.lost;
        if (i == at.overflow()) added = expected.overflow;
        EXPECT_EQ(counted[static_cast<size_t>(i)], static_cast<double>(i + added)) << "stat " << i;
      }
    }
  });
}

TEST(RouteRowsTest, place_and_pair_are_inverse) {
  for_each_machine([](Machine& machine) {
    for (const Routing& r : routings()) {
      SCOPED_TRACE(r.name());
      Operands o(4, machine);
      const RouteRowsArgs args = {.choice = o.integers(choices_of(r)).reshape({r.T, r.K}),
                                  .experts = r.E,
                                  .blocks = r.blocks,
                                  .tile = r.tile,
                                  .capacity = r.capacity,
                                  .place = index_result(o, {r.T, r.K}),
                                  .pair = index_result(o, {r.blocks * r.block_rows}),
                                  .counts = index_result(o, {r.E}),
                                  .starts = index_result(o, {r.E + 1})};
      ops::route_rows(*machine.stream, args);
      machine.stream->synchronize();
      const std::vector<int32_t> place = integers_of(args.place), pair = integers_of(args.pair);
      int64_t rows = 0;
      for (size_t i = 0; i < place.size(); ++i) {
        if (place[i] < 0) continue;
        ++rows;
        ASSERT_EQ(pair[static_cast<size_t>(place[i])], static_cast<int32_t>(i));
      }
      EXPECT_EQ(static_cast<int64_t>(pair.size()) - std::ranges::count(pair, -1), rows);
      const std::vector<int32_t> counts = integers_of(args.counts);
      EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), int64_t{0}), rows);
    }
  });
}

// ---- arrange_rows

struct Arrangement {
  int64_t blocks, groups, block_rows, tile;
  bool is_skewed = false;
};

std::vector<int32_t> counts_of(const Arrangement& a, uint64_t seed) {
  const base::RngKey key = base::rng_key(seed, "counts");
  std::vector<int32_t> counts;
  for (int64_t b = 0; b < a.blocks; ++b) {
    int64_t left = a.block_rows;
    for (int64_t g = 0; g < a.groups; ++g) {
      const int64_t mean = a.block_rows / a.groups;
      auto count = static_cast<int64_t>(base::rng_below(
          key, counts.size(), static_cast<uint64_t>(a.is_skewed ? left + 1 : 2 * mean + 1)));
      count = std::min(count, left);
      counts.push_back(static_cast<int32_t>(count));
      left -= count;
    }
  }
  return counts;
}

TEST(ArrangeRowsTest, rows_are_in_order_of_expert_then_rank) {
  const std::vector<Arrangement> arrangements = {
      {1, 1, 1, 1},     {2, 3, 20, 1}, {2, 3, 20, 128},      {4, 2, 100, 1, true},
      {8, 8, 300, 128}, {4, 1, 50, 1}, {3, 5, 64, 16, true}, {8, 16, 1000, 128, true}};
  for_each_machine([&](Machine& machine) {
    uint64_t seed = 1;
    for (const Arrangement& a : arrangements) {
      SCOPED_TRACE(fmt::format("blocks {} groups {} rows {} tile {}", a.blocks, a.groups,
                               a.block_rows, a.tile));
      const std::vector<int32_t> counts = counts_of(a, seed++);
      const int64_t sent = a.blocks * a.block_rows, rows = sent + a.groups * (a.tile - 1);
      std::vector<int32_t> place(static_cast<size_t>(sent), -1);
      std::vector<int32_t> source(static_cast<size_t>(rows), -1), starts;
      int64_t next = 0;
      for (int64_t g = 0; g < a.groups; ++g) {
        starts.push_back(static_cast<int32_t>(next));
        for (int64_t b = 0; b < a.blocks; ++b) {
          const auto in_block = counts.begin() + b * a.groups;
          const int64_t first =
              b * a.block_rows + std::accumulate(in_block, in_block + g, int64_t{0});
          for (int64_t row = first; row < first + in_block[g]; ++row, ++next) {
            place[static_cast<size_t>(row)] = static_cast<int32_t>(next);
            source[static_cast<size_t>(next)] = static_cast<int32_t>(row);
          }
        }
        next = (next + a.tile - 1) / a.tile * a.tile;
      }
      starts.push_back(static_cast<int32_t>(next));

      Operands o(6, machine);
      const ArrangeRowsArgs args = {.counts = o.integers(counts).reshape({a.blocks, a.groups}),
                                    .tile = a.tile,
                                    .place = index_result(o, {sent}),
                                    .source = index_result(o, {rows}),
                                    .starts = index_result(o, {a.groups + 1})};
      ops::arrange_rows(*machine.stream, args);
      machine.stream->synchronize();
      o.expect_intact();
      EXPECT_EQ(integers_of(args.place), place);
      EXPECT_EQ(integers_of(args.source), source);
      EXPECT_EQ(integers_of(args.starts), starts);
    }
  });
}

// ---- gather_pairs

struct GatherCase {
  int64_t rows, end, divisor, width;
  bool has_end = true;
};

void gather(const GatherCase& p, DType dtype, Operands& o, Stream& stream) {
  const int64_t tokens = 9;
  std::vector<int32_t> source;
  for (int64_t r = 0; r < p.rows; ++r) {
    source.push_back(static_cast<int32_t>(r % 4 == 3 ? -1 : (r * 7) % (tokens * p.divisor)));
  }
  const Tensor x = o.input({tokens, p.width}, {.dtype = dtype, .gap = 8});
  const Tensor d = rows_result(o, {p.rows, p.width}, {.dtype = dtype, .gap = 16, .exact = true});
  GatherPairsArgs args = {.x = x, .source = o.integers(source), .divisor = p.divisor, .d = d};
  if (p.has_end) args.end = o.integers({static_cast<int32_t>(p.end)});
  ops::gather_pairs(stream, args);
}

std::vector<Case> gathers() {
  std::vector<Case> list;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const int64_t width : {1, 7, 24, 64, 2048}) {
      for (const GatherCase& p : {GatherCase{20, 20, 1, width, false},
                                  {20, 13, 2, width},
                                  {300, 256, 3, width},
                                  {5, 0, 1, width}}) {
        list.push_back({fmt::format("{} of {} rows of {} {}, divisor {}", p.end, p.rows, width,
                                    base::name_of(dtype), p.divisor),
                        [=](Operands& o, Stream& s) { gather(p, dtype, o, s); }});
      }
    }
  }
  return list;
}

TEST(GatherPairsTest, cpu_agrees_with_the_reference) { expect_cpu_agrees(gathers()); }
TEST(GatherPairsTest, cuda_agrees_with_the_reference) { expect_cuda_agrees(gathers()); }

// Weights [T, K] become the weights [R] of rows.
TEST(GatherPairsTest, vectors_are_gathered) {
  for_each_machine([](Machine& machine) {
    Operands o(8, machine);
    const Tensor weights = o.input({3, 2});
    const Tensor d = o.result({5});
    ops::gather_pairs(*machine.stream,
                      {.x = weights.reshape({6}), .source = o.integers({5, -1, 0, 3, 2}), .d = d});
    machine.stream->synchronize();
    const std::vector<double> w = values_of(weights);
    EXPECT_EQ(values_of(d), (std::vector<double>{w[5], 0, w[0], w[3], w[2]}));
  });
}

// ---- sum_pairs

struct SumCase {
  int64_t T, K, rows, width;
  bool has_residual, has_other;
};

void sum(const SumCase& p, DType dtype, Operands& o, Stream& stream) {
  std::vector<int32_t> place;
  for (int64_t i = 0; i < p.T * p.K; ++i) {
    place.push_back(static_cast<int32_t>(i % 5 == 4 ? -1 : (i * 11) % p.rows));
  }
  const Make make = {.dtype = dtype, .gap = 8, .terms = p.K + 2};
  SumPairsArgs args = {.rows = o.input({p.rows, p.width}, make),
                       .place = o.integers(place).reshape({p.T, p.K}),
                       .y = o.result({p.T, p.width}, make)};
  if (p.has_residual) args.residual = o.input({p.T, p.width}, make);
  if (p.has_other) args.other = o.input({p.T, p.width}, {.dtype = dtype, .gap = 16});
  ops::sum_pairs(stream, args);
}

std::vector<Case> sums() {
  std::vector<Case> list;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const int64_t width : {1, 7, 64, 1032}) {
      for (const SumCase& p : {SumCase{1, 1, 1, width, false, false},
                               {33, 2, 50, width, true, false},
                               {33, 8, 50, width, false, true},
                               {33, 3, 90, width, true, true}}) {
        list.push_back(
            {fmt::format("{} tokens, {} choices, {} {}{}{}", p.T, p.K, width, base::name_of(dtype),
                         p.has_residual ? ", residual" : "", p.has_other ? ", other" : ""),
             [=](Operands& o, Stream& s) { sum(p, dtype, o, s); }});
      }
    }
  }
  return list;
}

TEST(SumPairsTest, cpu_agrees_with_the_reference) { expect_cpu_agrees(sums()); }
TEST(SumPairsTest, cuda_agrees_with_the_reference) { expect_cuda_agrees(sums()); }
TEST(SumPairsTest, bits_do_not_depend_on_threads) { expect_bits_do_not_depend_on_threads(sums()); }

// fp32 sums have these bits only in the order of the contract. The reference sums in fp64.
TEST(SumPairsTest, terms_are_added_in_order) {
  for_each_machine([](Machine& machine) {
    if (&machine.device.kernels() == &reference_kernels()) return;
    constexpr int64_t T = 40, K = 6, rows = 97, width = 72;
    Operands o(9, machine);
    std::vector<int32_t> place;
    for (int64_t i = 0; i < T * K; ++i) {
      place.push_back(static_cast<int32_t>(i % 7 == 3 ? -1 : (i * 31) % rows));
    }
    const Tensor x = o.input({rows, width}), residual = o.input({T, width});
    const Tensor other = o.input({T, width}), y = o.result({T, width});
    ops::sum_pairs(*machine.stream, {.rows = x,
                                     .place = o.integers(place).reshape({T, K}),
                                     .residual = residual,
                                     .other = other,
                                     .y = y});
    machine.stream->synchronize();
    const std::vector<double> found = values_of(y), from = values_of(x);
    const std::vector<double> first = values_of(residual), second = values_of(other);
    for (int64_t i = 0; i < T * width; ++i) {
      float total = static_cast<float>(first[static_cast<size_t>(i)]) +
                    static_cast<float>(second[static_cast<size_t>(i)]);
      for (int64_t k = 0; k < K; ++k) {
        const int64_t row = place[static_cast<size_t>(i / width * K + k)];
        if (row < 0) continue;
        total += static_cast<float>(from[static_cast<size_t>(row * width + i % width)]);
      }
      ASSERT_EQ(found[static_cast<size_t>(i)], static_cast<double>(total)) << "element " << i;
    }
  });
}

TEST(SumPairsTest, the_result_may_be_a_term) {
  for_each_machine([](Machine& machine) {
    for (const bool is_residual : {false, true}) {
      Operands o(10, machine);
      const Tensor x = o.input({6, 24}), y = o.updated({3, 24}), expected = o.result({3, 24});
      const Tensor place = o.integers({0, 5, 3, -1, 1, 2}).reshape({3, 2});
      SumPairsArgs args = {.rows = x, .place = place, .y = expected};
      (is_residual ? args.residual : args.other) = y;
      ops::sum_pairs(*machine.stream, args);
      args.y = y;
      ops::sum_pairs(*machine.stream, args);
      machine.stream->synchronize();
      EXPECT_EQ(values_of(y), values_of(expected));
    }
  });
}

}  // namespace
}  // namespace trireme::kernels::experts_rows_test
