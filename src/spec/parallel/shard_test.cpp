// SPDX-License-Identifier: Apache-2.0
// Everything is compared with naive_copy(), which finds the owner of every global index without
// boxes.
#include "spec/parallel/shard.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <numeric>
#include <random>

#include "base/error.h"

namespace trireme::spec {
namespace {

constexpr uint64_t shard_seed = 20'011;

// ---- random layouts

enum class Kind : uint8_t { whole, column, row, fused, fused_inner, expert, count };

// A parameter, the mesh it lies on, and how ZeRO cuts a compute copy: `flat_axis` ranges of equal
// padded size.
struct Layout {
  Kind kind = Kind::whole;
  ShardSpec spec;
  Sizes sizes;
  Axis flat_axis = Axis::zero;
  int64_t range_elements = 0;
};

struct Rank {
  Coord coord;
  Range flat;
};

class Dice {
 public:
  explicit Dice(uint64_t start) : bits_(start) {}
  int64_t roll(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(bits_() % static_cast<uint64_t>(high - low + 1));
  }

 private:
  std::mt19937_64 bits_;
};

// Kind, mesh and cuts without segments; the shape is chosen later.
Layout random_mesh(Dice& dice, int ndim) {
  Layout layout;
  do {
    layout.kind = static_cast<Kind>(dice.roll(0, static_cast<int64_t>(Kind::count) - 1));
  } while ((layout.kind == Kind::expert && ndim < 3) ||
           (layout.kind == Kind::fused_inner && ndim < 2));
  layout.spec.name = "w";
  const bool expert = layout.kind == Kind::expert;
  layout.flat_axis = expert ? Axis::ezero : Axis::zero;
  int ranks = 0;
  do {
    layout.sizes = Sizes{};
    layout.sizes[Axis::dp] = static_cast<int>(std::max<int64_t>(1, dice.roll(-1, 2)));
    layout.sizes[layout.flat_axis] = static_cast<int>(dice.roll(1, 7));
    layout.sizes[expert ? Axis::ep : Axis::tp] = static_cast<int>(dice.roll(1, 8));
    if (expert) layout.sizes[Axis::etp] = static_cast<int>(dice.roll(1, 4));
    ranks = 1;
    for (const int size : layout.sizes.of) ranks *= size;
  } while (ranks > 16);
  std::vector<Cut>& cuts = layout.spec.cuts;
  const int last = ndim - 1;
  if (layout.kind == Kind::column || layout.kind == Kind::fused) cuts = {{Axis::tp, 0, {}}};
  if (layout.kind == Kind::row) cuts = {{Axis::tp, last, {}}};
  if (layout.kind == Kind::fused_inner) cuts = {{Axis::tp, 1, {}}};
  if (expert) cuts = {{Axis::ep, 0, {}}, {Axis::etp, static_cast<int>(dice.roll(1, last)), {}}};
  return layout;
}

// Cuts `units` into one to three unequal parts, each a multiple of `unit`.
std::vector<int64_t> random_segments(Dice& dice, int64_t units, int64_t unit) {
  std::vector<int64_t> segments;
  while (units > 0 && segments.size() < 2) {
    segments.push_back(dice.roll(1, units) * unit);
    units -= segments.back() / unit;
  }
  if (units > 0) segments.push_back(units * unit);
  return segments;
}

// Two layouts of one small parameter, which divides in both.
std::array<Layout, 2> random_pair(Dice& dice) {
  for (;;) {
    const int ndim = static_cast<int>(dice.roll(1, 3));
    std::array<Layout, 2> pair = {random_mesh(dice, ndim), random_mesh(dice, ndim)};
    std::vector<int64_t> unit(static_cast<size_t>(ndim), 1), units(unit);
    for (const Layout& layout : pair) {
      for (const Cut& cut : layout.spec.cuts) {
        auto& divisor = unit[static_cast<size_t>(cut.dim)];
        divisor = std::lcm(divisor, layout.sizes[cut.axis]);
      }
    }
    std::vector<int64_t> shape(static_cast<size_t>(ndim));
    int64_t elements = 1;
    for (size_t dim = 0; dim < shape.size(); ++dim) {
      units[dim] = dice.roll(1, dice.roll(1, 5));
      shape[dim] = unit[dim] * units[dim];
      elements *= shape[dim];
    }
    if (elements > 256) continue;
    for (Layout& layout : pair) {
      layout.spec.shape = shape;
      for (Cut& cut : layout.spec.cuts) {
        const auto dim = static_cast<size_t>(cut.dim);
        const bool plain = layout.kind == Kind::column || layout.kind == Kind::row ||
                           (layout.kind == Kind::expert && cut.axis == Axis::ep);
        if (!plain) cut.segments = random_segments(dice, units[dim], unit[dim]);
      }
      const int64_t local = local_elements(layout.spec, layout.sizes);
      const int64_t degree = layout.sizes[layout.flat_axis];
      const int64_t grain = dice.roll(0, 2) == 0 ? dice.roll(1, 16) : 1;
      layout.range_elements = ((local + degree - 1) / degree + grain - 1) / grain * grain;
    }
    return pair;
  }
}

std::vector<Rank> ranks_of(const Layout& layout) {
  const int64_t local = local_elements(layout.spec, layout.sizes);
  std::vector<Rank> ranks(1);
  for (size_t axis = 0; axis < layout.sizes.of.size(); ++axis) {
    const size_t before = ranks.size();
    for (int coord = 1; coord < layout.sizes.of[axis]; ++coord) {
      for (size_t i = 0; i < before; ++i) {
        ranks.push_back(ranks[i]);
        ranks.back().coord.of[axis] = coord;
      }
    }
  }
  for (Rank& rank : ranks) {
    const int64_t begin = rank.coord[layout.flat_axis] * layout.range_elements;
    rank.flat = {std::min(begin, local), std::min(begin + layout.range_elements, local)};
  }
  return ranks;
}

std::string describe(const Layout& layout) {
  std::string text = fmt::format("{}", layout.spec.shape);
  for (const Cut& cut : layout.spec.cuts) {
    text += fmt::format(" dim {} over {} = {} in {}", cut.dim, name_of(cut.axis),
                        layout.sizes[cut.axis], cut.segments);
  }
  return text + fmt::format(" {} = {} of {}", name_of(layout.flat_axis),
                            layout.sizes[layout.flat_axis], layout.range_elements);
}

// ---- the naive side

// The global row-major index of every element of the compute copy at `coord`.
std::vector<int64_t> naive_copy(const ShardSpec& spec, const Sizes& sizes, const Coord& coord) {
  std::vector<int64_t> copy = {0};
  for (size_t dim = 0; dim < spec.shape.size(); ++dim) {
    std::vector<int64_t> held;
    const auto cut = std::ranges::find(spec.cuts, static_cast<int>(dim), &Cut::dim);
    for (int64_t index = 0; index < spec.shape[dim]; ++index) {
      bool mine = true;
      if (cut != spec.cuts.end()) {
        int64_t offset = index, length = spec.shape[dim];
        for (const int64_t segment : cut->segments) {
          length = segment;
          if (offset < segment) break;
          offset -= segment;
        }
        mine = offset * sizes[cut->axis] / length == coord[cut->axis];
      }
      if (mine) held.push_back(index);
    }
    std::vector<int64_t> longer;
    longer.reserve(copy.size() * held.size());
    for (const int64_t outer : copy) {
      for (const int64_t index : held) longer.push_back(outer * spec.shape[dim] + index);
    }
    copy = std::move(longer);
  }
  return copy;
}

// Returns the elements that each of `ranks` holds, as global indices.
std::vector<std::vector<int64_t>> naive_ranges(const Layout& layout,
                                               const std::vector<Rank>& ranks) {
  std::vector<std::vector<int64_t>> ranges;
  std::vector<int64_t> copy;
  Coord copy_at;
  for (const Rank& rank : ranks) {
    Coord at = rank.coord;
    at[Axis::dp] = at[layout.flat_axis] = 0;  // the compute copy does not depend on these
    if (copy.empty() || at != copy_at) copy = naive_copy(layout.spec, layout.sizes, at);
    copy_at = at;
    ranges.emplace_back(copy.begin() + rank.flat.begin, copy.begin() + rank.flat.end);
  }
  return ranges;
}

void apply(const Copy& copy, const std::vector<int64_t>& source, std::vector<int64_t>& target,
           std::vector<int>& writes) {
  std::vector<int64_t> index(copy.count.size(), 0);
  for (bool more = true; more;) {
    int64_t from = copy.source_offset, to = copy.target_offset;
    for (size_t dim = 0; dim < index.size(); ++dim) {
      from += index[dim] * copy.source_stride[dim];
      to += index[dim] * copy.target_stride[dim];
    }
    for (int64_t i = 0; i < copy.count.back(); ++i, ++from, ++to) {
      target.at(static_cast<size_t>(to)) = source.at(static_cast<size_t>(from));
      ++writes[static_cast<size_t>(to)];
    }
    more = false;
    for (size_t dim = index.size() - 1; dim-- > 0 && !more;) {
      more = ++index[dim] < copy.count[dim];
      if (!more) index[dim] = 0;
    }
  }
}

int64_t elements_of(const Piece& piece) {
  int64_t elements = 1;
  for (size_t dim = 0; dim < piece.lo.size(); ++dim) elements *= piece.hi[dim] - piece.lo[dim];
  return elements;
}

// Would `next`, stored right after `piece`, form one row-major box with it?
bool could_be_one_box(const Piece& piece, const Piece& next) {
  size_t differing = 0, dim = 0;
  for (size_t d = 0; d < piece.lo.size(); ++d) {
    if (piece.lo[d] == next.lo[d] && piece.hi[d] == next.hi[d]) continue;
    ++differing;
    dim = d;
  }
  if (differing != 1 || piece.hi[dim] != next.lo[dim]) return false;
  for (size_t d = 0; d < dim; ++d) {
    if (piece.hi[d] - piece.lo[d] != 1) return false;
  }
  return true;
}

// ---- tests

ShardSpec spec_of(const char* name, std::vector<int64_t> shape, std::vector<Cut> cuts = {}) {
  ShardSpec spec;
  spec.name = name;
  spec.shape = std::move(shape);
  spec.cuts = std::move(cuts);
  return spec;
}

TEST(ShardTest, reshard_round_trips_any_two_layouts) {
  std::printf("seed %llu\n", static_cast<unsigned long long>(shard_seed));
  Dice dice(shard_seed);
  std::array<int, static_cast<size_t>(Kind::count)> kinds{};
  std::array<int, 9> tp{}, ep{}, zero{};
  int empty_ranges = 0;
  for (int trial = 0; trial < 20'000; ++trial) {
    const auto [a, b] = random_pair(dice);
    ++kinds[static_cast<size_t>(a.kind)];
    ++tp[static_cast<size_t>(a.sizes[Axis::tp])];
    ++ep[static_cast<size_t>(a.sizes[Axis::ep])];
    ++zero[static_cast<size_t>(a.sizes[a.flat_axis])];

    const std::vector<Rank> savers = ranks_of(a), loaders = ranks_of(b);
    const auto values = naive_ranges(a, savers), wanted = naive_ranges(b, loaders);
    std::vector<std::vector<Piece>> saved;
    for (const Rank& rank : savers) {
      saved.push_back(pieces(a.spec, a.sizes, rank.coord, rank.flat));
      empty_ranges += rank.flat.begin == rank.flat.end ? 1 : 0;
    }
    for (size_t loader = 0; loader < loaders.size(); ++loader) {
      const Rank& rank = loaders[loader];
      const std::vector<int64_t>& expected = wanted[loader];
      std::vector<int64_t> loaded(expected.size(), -1);
      std::vector<int> writes(expected.size(), 0);
      for (const Copy& copy : reshard(saved, pieces(b.spec, b.sizes, rank.coord, rank.flat))) {
        ASSERT_EQ(copy.source_stride.back(), 1);
        ASSERT_EQ(copy.target_stride.back(), 1);
        apply(copy, values.at(static_cast<size_t>(copy.source)), loaded, writes);
      }
      ASSERT_EQ(loaded, expected) << "seed " << shard_seed << " trial " << trial << ": "
                                  << describe(a) << " -> " << describe(b);
      ASSERT_TRUE(std::ranges::all_of(writes, [](int count) { return count == 1; }))
          << "seed " << shard_seed << " trial " << trial << ": " << describe(a) << " -> "
          << describe(b);
    }
  }
  // The random layouts covered every case.
  for (const int count : kinds) EXPECT_GT(count, 500);
  for (size_t size = 1; size <= 8; ++size) {
    EXPECT_GT(tp[size], 100) << size;
    EXPECT_GT(ep[size], 20) << size;
  }
  for (size_t size = 1; size <= 7; ++size) EXPECT_GT(zero[size], 100) << size;
  EXPECT_GT(empty_ranges, 100);
}

TEST(ShardTest, pieces_tile_the_parameter_once_when_there_are_no_replicas) {
  std::printf("seed %llu\n", static_cast<unsigned long long>(shard_seed + 1));
  Dice dice(shard_seed + 1);
  for (int trial = 0; trial < 500; ++trial) {
    Layout layout = random_pair(dice)[0];
    layout.sizes[Axis::dp] = 1;
    if (layout.kind == Kind::whole) layout.sizes[Axis::tp] = 1;
    int64_t elements = 1;
    for (const int64_t extent : layout.spec.shape) elements *= extent;
    std::vector<int> holders(static_cast<size_t>(elements), 0);
    const std::vector<Rank> ranks = ranks_of(layout);
    const auto ranges = naive_ranges(layout, ranks);
    for (size_t holder = 0; holder < ranks.size(); ++holder) {
      // Reads the boxes element by element, which also proves that Piece::local is right.
      const Rank& rank = ranks[holder];
      const std::vector<int64_t>& expected = ranges[holder];
      const auto held = pieces(layout.spec, layout.sizes, rank.coord, rank.flat);
      int64_t local = 0;
      for (const Piece& piece : held) {
        ASSERT_EQ(piece.local, local);
        for (int64_t i = 0; i < elements_of(piece); ++i, ++local) {
          int64_t rest = i, global = 0, stride = 1;
          for (size_t dim = piece.lo.size(); dim-- > 0;) {
            const int64_t extent = piece.hi[dim] - piece.lo[dim];
            global += (piece.lo[dim] + rest % extent) * stride;
            rest /= extent;
            stride *= layout.spec.shape[dim];
          }
          ASSERT_EQ(global, expected.at(static_cast<size_t>(local))) << describe(layout);
          ++holders.at(static_cast<size_t>(global));
        }
      }
      ASSERT_EQ(local, rank.flat.end - rank.flat.begin);
    }
    ASSERT_TRUE(std::ranges::all_of(holders, [](int count) { return count == 1; }))
        << describe(layout);
  }
}

TEST(ShardTest, a_flat_range_is_few_boxes_and_none_could_be_joined) {
  std::printf("seed %llu\n", static_cast<unsigned long long>(shard_seed + 2));
  Dice dice(shard_seed + 2);
  for (int trial = 0; trial < 3'000; ++trial) {
    const Layout layout = random_pair(dice)[0];
    const int64_t ndim = std::ssize(layout.spec.shape);
    const int64_t local = local_elements(layout.spec, layout.sizes);
    Range flat{dice.roll(0, local), dice.roll(0, local)};
    if (flat.begin > flat.end) std::swap(flat.begin, flat.end);
    const auto held = pieces(layout.spec, layout.sizes, Coord{}, flat);
    // Blocks of the compute copy that are one box: strips, for every index of the dimensions
    // before.
    int64_t blocks = 1;
    for (const Cut& cut : layout.spec.cuts) {
      if (cut.segments.size() < 2 || layout.sizes[cut.axis] == 1) continue;
      blocks = std::ssize(cut.segments);
      for (int dim = 0; dim < cut.dim; ++dim) {
        blocks *= local_shape(layout.spec, layout.sizes)[static_cast<size_t>(dim)];
      }
    }
    // The first and the last block that a range intersects may be incomplete: ndim boxes each.
    ASSERT_LE(std::ssize(held), blocks + 2 * ndim - 2) << describe(layout);
    for (size_t i = 1; i < held.size(); ++i) {
      ASSERT_FALSE(could_be_one_box(held[i - 1], held[i])) << describe(layout);
    }
  }
}

TEST(ShardTest, fused_segments_give_each_rank_its_share_of_every_segment) {
  const ShardSpec spec = spec_of("wqkv", {16, 3}, {{Axis::tp, 0, {8, 4, 4}}});
  Sizes sizes;
  sizes[Axis::tp] = 2;
  Coord coord;
  coord[Axis::tp] = 1;
  EXPECT_EQ(local_shape(spec, sizes), (std::vector<int64_t>{8, 3}));
  EXPECT_EQ(local_elements(spec, sizes), 24);
  EXPECT_EQ(
      pieces(spec, sizes, coord, {0, 24}),
      (std::vector<Piece>{{{4, 0}, {8, 3}, 0}, {{10, 0}, {12, 3}, 12}, {{14, 0}, {16, 3}, 18}}));
  EXPECT_EQ(pieces(spec, sizes, coord, {5, 13}),
            (std::vector<Piece>{{{5, 2}, {6, 3}, 0}, {{6, 0}, {8, 3}, 1}, {{10, 0}, {11, 1}, 7}}));
  EXPECT_TRUE(pieces(spec, sizes, coord, {7, 7}).empty());
}

TEST(ShardTest, contiguous_boxes_are_one_run) {
  const std::vector<Piece> saved = {{{0, 0, 0}, {4, 5, 6}, 10}};
  const auto rows = reshard({saved}, {{{1, 0, 0}, {3, 5, 6}, 0}});
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].count, (std::vector<int64_t>{60}));
  EXPECT_EQ(rows[0].source_offset, 40);
  const auto column = reshard({saved}, {{{0, 0, 2}, {4, 5, 3}, 0}});
  ASSERT_EQ(column.size(), 1U);
  EXPECT_EQ(column[0].count, (std::vector<int64_t>{20, 1}));
  EXPECT_EQ(column[0].source_stride, (std::vector<int64_t>{6, 1}));
}

TEST(ShardTest, elements_are_read_from_the_first_replica) {
  const std::vector<std::vector<Piece>> saved = {{{{2, 0}, {4, 4}, 0}}, {{{0, 0}, {4, 4}, 0}}};
  const auto copies = reshard(saved, {{{1, 0}, {4, 4}, 0}});
  ASSERT_EQ(copies.size(), 2U);
  EXPECT_EQ(copies[0].source, 0);
  EXPECT_EQ(copies[0].count, (std::vector<int64_t>{8}));
  EXPECT_EQ(copies[1].source, 1);
  EXPECT_EQ(copies[1].count, (std::vector<int64_t>{4}));
}

std::string refusal(const auto& call) {
  try {
    call();
  } catch (const base::ConfigError& error) {
    return error.what();
  }
  return "no error";
}

TEST(ShardTest, a_segment_that_does_not_divide_is_refused_with_its_numbers) {
  Sizes sizes;
  sizes[Axis::tp] = 5;
  sizes[Axis::ep] = 3;
  const ShardSpec fused = spec_of("wqkv", {9'618, 64}, {{Axis::tp, 0, {5'000, 4'608, 10}}});
  EXPECT_EQ(refusal([&] { local_shape(fused, sizes); }),
            "wqkv: segment 1 of dimension 0 has 4,608 rows, which do not divide by tp = 5");
  EXPECT_EQ(refusal([&] {
              pieces(fused, sizes, {}, {0, 1});
            }),
            "wqkv: segment 1 of dimension 0 has 4,608 rows, which do not divide by tp = 5");
  const ShardSpec row = spec_of("w2", {10, 1'234'567}, {{Axis::tp, 1, {}}});
  EXPECT_EQ(refusal([&] { local_elements(row, sizes); }),
            "w2: dimension 1 has 1,234,567 columns, which do not divide by tp = 5");
  const ShardSpec expert = spec_of("up", {128, 4, 5}, {{Axis::ep, 0, {}}});
  EXPECT_EQ(refusal([&] { local_shape(expert, sizes); }),
            "up: dimension 0 has 128 rows, which do not divide by ep = 3");
}

TEST(ShardTest, missing_data_is_refused_by_its_box) {
  const std::vector<std::vector<Piece>> saved = {{{{0, 0}, {2, 6}, 0}}, {{{2, 0}, {4, 3}, 0}}};
  EXPECT_EQ(refusal([&] {
              reshard(saved, {{{0, 1}, {4, 5}, 0}});
            }),
            "the box [2:4, 3:5], a part of the wanted [0:4, 1:5], is in none of the 2 saved lists");
  EXPECT_EQ(refusal([&] {
              reshard({}, {{{0}, {4}, 0}});
            }),
            "the box [0:4], a part of the wanted [0:4], is in none of the 0 saved lists");
  EXPECT_EQ(refusal([&] { reshard(saved, {}); }), "no error");

  // One rank of a real layout is lost.
  const ShardSpec spec = spec_of("w", {6, 4}, {{Axis::tp, 0, {}}});
  Sizes sizes;
  sizes[Axis::tp] = 3;
  std::vector<std::vector<Piece>> all;
  for (int tp = 0; tp < 3; ++tp) {
    Coord coord;
    coord[Axis::tp] = tp;
    all.push_back(pieces(spec, sizes, coord, {0, 8}));
  }
  all.erase(all.begin() + 1);
  EXPECT_NE(refusal([&] {
              reshard(all, pieces(spec, {}, {}, {0, 24}));
            }).find("[2:4, 0:4]"),
            std::string::npos);
}

TEST(ShardDeathTest, a_malformed_spec_or_range_is_a_bug) {
  const ShardSpec short_segments = spec_of("w", {8}, {{Axis::tp, 0, {4, 2}}});
  EXPECT_DEATH(local_shape(short_segments, {}), "segments of dimension 0 add up to 6");
  const ShardSpec twice = spec_of("w", {8, 8}, {{Axis::tp, 0, {}}, {Axis::tp, 1, {}}});
  EXPECT_DEATH(local_shape(twice, {}), "two dimensions are cut over tp");
  const ShardSpec plain = spec_of("w", {8});
  EXPECT_DEATH(pieces(plain, {}, {}, {0, 9}), "flat range \\[0, 9\\) of 8 elements");
}

TEST(AxesTest, every_axis_has_its_name) {
  EXPECT_EQ(name_of(Axis::pp), "pp");
  EXPECT_EQ(name_of(Axis::etp), "etp");
  EXPECT_EQ(Sizes{}[Axis::tp], 1);
  EXPECT_EQ(Coord{}[Axis::tp], 0);
}

}  // namespace
}  // namespace trireme::spec
