// SPDX-License-Identifier: Apache-2.0
#include "spec/context/token_slice.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "spec/facts/op_cost.h"

namespace trireme::spec {
namespace {

void add_run(Rows& rows, int64_t begin, int64_t count) {
  for (int64_t i = begin; i < begin + count; ++i) rows.push_back(static_cast<int32_t>(i));
}

// Returns the first row of the document of each row of an ascending list.
class DocumentBegins {
 public:
  explicit DocumentBegins(std::span<const int32_t> offsets) : offsets_(offsets) {
    TRIREME_CHECK(!offsets.empty() && offsets.front() == 0, "documents that do not begin at row 0");
  }
  int32_t of(int64_t row) {
    while (next_ < offsets_.size() && offsets_[next_] <= row) ++next_;
    TRIREME_CHECK(next_ < offsets_.size(), "row {} is in no document", row);
    return offsets_[next_ - 1];
  }

 private:
  std::span<const int32_t> offsets_;
  size_t next_ = 1;
};

// Returns the group of each block: the blocks with the most pairs first, each to the group with the
// fewest pairs among those that have room.
std::vector<int> assigned_blocks(const ContextSplit& split, std::span<const int32_t> offsets) {
  const int64_t size = block_tokens(split), blocks = split.tokens() / size;
  std::vector<int64_t> pairs(static_cast<size_t>(blocks), 0);
  DocumentBegins begins(offsets);
  for (int64_t row = 0; row < split.tokens(); ++row) {
    pairs[static_cast<size_t>(row / size)] += row + 1 - begins.of(row);
  }
  std::vector<int64_t> order(static_cast<size_t>(blocks));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater<>{},
                           [&](int64_t block) { return pairs[static_cast<size_t>(block)]; });
  const auto groups = static_cast<size_t>(split.groups);
  std::vector<int64_t> room(groups, blocks / split.groups), sums(groups, 0);
  std::vector<int> group_of(static_cast<size_t>(blocks));
  for (const int64_t block : order) {
    size_t best = groups;
    for (size_t g = 0; g < groups; ++g) {
      if (room[g] > 0 && (best == groups || sums[g] < sums[best])) best = g;
    }
    group_of[static_cast<size_t>(block)] = static_cast<int>(best);
    sums[best] += pairs[static_cast<size_t>(block)];
    --room[best];
  }
  return group_of;
}

}  // namespace

int64_t block_tokens(const ContextSplit& split) {
  constexpr int64_t wanted = 512;
  // 2 groups m blocks in a sequence, for the largest m that divides and leaves them long enough.
  const int64_t chunk = split.seq_len / (2 * split.groups);
  for (int64_t m = std::max<int64_t>(chunk / wanted, 1); m > 1; --m) {
    if (chunk % m == 0) return chunk / m;
  }
  return chunk;
}

Rows group_rows(const ContextSplit& split, int group, std::span<const int32_t> seq_offsets) {
  TRIREME_CHECK(group >= 0 && group < split.groups && split.tokens() % split.groups == 0,
                "group {} of {}, {} tokens", group, split.groups, split.tokens());
  Rows rows;
  rows.reserve(static_cast<size_t>(split.group_tokens()));
  if (split.groups == 1) {
    add_run(rows, 0, split.tokens());
    return rows;
  }
  if (split.slices == ContextSlices::blocks) {
    const std::vector<int> group_of = assigned_blocks(split, seq_offsets);
    const int64_t size = block_tokens(split);
    for (size_t block = 0; block < group_of.size(); ++block) {
      if (group_of[block] == group) add_run(rows, static_cast<int64_t>(block) * size, size);
    }
    return rows;
  }
  for (int64_t s = 0; s < split.sequences; ++s) {
    const int64_t first = s * split.seq_len, share = split.seq_len / split.groups;
    switch (split.slices) {
      case ContextSlices::zigzag:
        add_run(rows, first + group * share / 2, share / 2);
        add_run(rows, first + (2 * split.groups - 1 - group) * (share / 2), share / 2);
        break;
      case ContextSlices::contiguous:
        add_run(rows, first + group * share, share);
        break;
      case ContextSlices::striped:
        for (int64_t i = 0; i < share; ++i) add_run(rows, first + i * split.groups + group, 1);
        break;
      default:
        TRIREME_CHECK(false, "slices {}", static_cast<int>(split.slices));
    }
  }
  return rows;
}

Rows rank_rows(const ContextSplit& split, int cp_rank, std::span<const int32_t> seq_offsets) {
  const Rows all = group_rows(split, cp_rank / split.ulysses, seq_offsets);
  const int64_t count = split.rank_tokens();
  const auto begin = all.begin() + cp_rank % split.ulysses * count;
  return {begin, begin + count};
}

Rows gathered_rows(const ContextSplit& split, std::span<const int32_t> seq_offsets) {
  Rows all;
  for (int group = 0; group < split.groups; ++group) {
    const Rows rows = group_rows(split, group, seq_offsets);
    all.insert(all.end(), rows.begin(), rows.end());
  }
  return all;
}

int64_t KeyRanges::pairs() const {
  int64_t sum = 0;
  for (size_t t = 0; t < begin.size(); ++t) sum += std::max(end[t] - begin[t], 0);
  return sum;
}

KeyRanges keys_of_rows(const Rows& queries, std::span<const int32_t> seq_offsets) {
  KeyRanges keys;
  DocumentBegins begins(seq_offsets);
  for (const int32_t row : queries) {
    keys.begin.push_back(begins.of(row));
    keys.end.push_back(row + 1);
  }
  return keys;
}

KeyRanges keys_among(const Rows& queries, const Rows& keys, std::span<const int32_t> seq_offsets) {
  KeyRanges ranges = keys_of_rows(queries, seq_offsets);
  // Both bounds rise with the query, so one pass over the keys finds all places.
  for (std::vector<int32_t>* bounds : {&ranges.begin, &ranges.end}) {
    size_t place = 0;
    for (int32_t& bound : *bounds) {
      while (place < keys.size() && keys[place] < bound) ++place;
      bound = static_cast<int32_t>(place);
    }
  }
  return ranges;
}

KeyRanges keys_of_source(const ContextSplit& split, int group, int source,
                         std::span<const int32_t> seq_offsets) {
  const Rows queries = group_rows(split, group, seq_offsets);
  if (!split.is_ring) return keys_of_rows(queries, seq_offsets);
  return keys_among(queries, group_rows(split, source, seq_offsets), seq_offsets);
}

std::vector<int64_t> pairs_of_groups(const ContextSplit& split,
                                     std::span<const int32_t> seq_offsets) {
  std::vector<int64_t> pairs;
  for (int group = 0; group < split.groups; ++group) {
    pairs.push_back(keys_of_rows(group_rows(split, group, seq_offsets), seq_offsets).pairs());
  }
  return pairs;
}

double mean_pairs(const ContextSplit& split) {
  return causal_pairs(split.sequences, split.seq_len) / split.groups;
}

std::vector<int32_t> equal_offsets(const ContextSplit& split) {
  std::vector<int32_t> offsets;
  for (int64_t s = 0; s <= split.sequences; ++s) {
    offsets.push_back(static_cast<int32_t>(s * split.seq_len));
  }
  return offsets;
}

}  // namespace trireme::spec
