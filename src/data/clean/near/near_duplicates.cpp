// SPDX-License-Identifier: Apache-2.0
#include "data/clean/near/near_duplicates.h"

#include <algorithm>
#include <compare>
#include <utility>

#include "base/check.h"
#include "data/clean/hash_sort.h"
#include "data/clean/near/decider.h"
#include "data/clean/near/kept_groups.h"

namespace trireme::data {
namespace {

// 12 bytes, as there is one for every document.
struct BandItem {
  uint32_t key_high = 0, key_low = 0, document = 0;
  auto operator<=>(const BandItem&) const = default;
  bool has_key_of(const BandItem& other) const {
    return key_high == other.key_high && key_low == other.key_low;
  }
};

// Fills `groups`: for every document the number of its group in this band, from 1, or 0 if no other
// document has its key. Returns the number of groups.
uint32_t group_band(base::ThreadPool& pool, const ColumnFile<uint64_t>& keys, size_t band,
                    const std::function<bool(uint32_t)>& takes_part,
                    std::vector<uint32_t>& groups) {
  const auto sorted = sort_by_hash<BandItem>(pool, [&](const auto& emit) {
    keys.read_column(band, [&](int64_t first, std::span<const uint64_t> values) {
      for (size_t i = 0; i < values.size(); ++i) {
        const auto document = static_cast<uint32_t>(first + static_cast<int64_t>(i));
        if (!takes_part(document)) continue;
        emit(values[i], BandItem{static_cast<uint32_t>(values[i] >> 32),
                                 static_cast<uint32_t>(values[i]), document});
      }
    });
  });
  std::fill(groups.begin(), groups.end(), 0U);
  uint32_t count = 0;
  const auto& items = sorted.items;
  for (size_t i = 0; i + 1 < items.size(); ++i) {
    if (!items[i].has_key_of(items[i + 1])) continue;
    ++count;
    groups[items[i].document] = count;
    while (i + 1 < items.size() && items[i].has_key_of(items[i + 1])) {
      groups[items[++i].document] = count;
    }
  }
  return count;
}

// Decides the documents of one chunk after the other.
class GreedyPass {
 public:
  GreedyPass(const ScratchFile& signatures, int permutations, const NearSearch& search,
             KeptGroups& kept)
      : signatures_(signatures),
        permutations_(permutations),
        search_(search),
        kept_(kept),
        decider_(signatures, permutations, search) {}

  // `groups` is a chunk of the matrix of groups, with the document `first` in its first row. First,
  // all documents are compared with those kept before the chunk, in parallel; then, in order, the
  // others with those kept in the chunk. Both together are all kept documents before it. Of the
  // second comparisons the most probable one is made in parallel, too: that with the first document
  // of the chunk that shares the groups.
  void decide(base::ThreadPool& pool, std::span<const uint32_t> groups, uint32_t first,
              size_t count) {
    std::vector<std::optional<NearDuplicate>> matches(count);
    std::vector<std::optional<Decider::Known>> known(count);
    const std::vector<uint32_t> first_rows = first_rows_of_groups(pool, groups, count);
    constexpr size_t slice = 256;
    std::vector<NearCounts> counts((count + slice - 1) / slice);
    parallel_for(pool, static_cast<int64_t>(counts.size()), [&](int64_t task) {
      Decider decider(signatures_, permutations_, search_);
      std::vector<uint32_t> found;
      const size_t begin = static_cast<size_t>(task) * slice, end = std::min(count, begin + slice);
      for (size_t row = begin; row < end; ++row) {
        found.clear();
        kept_.append_members(groups, row, 0, found);
        const uint32_t document = first + static_cast<uint32_t>(row);
        matches[row] = decider.decide(document, found);
        if (matches[row]) continue;
        found.clear();
        for (size_t at = row; at < first_rows.size(); at += chunk_rows) {
          if (first_rows[at] < row) found.push_back(first + first_rows[at]);
        }
        known[row] = decider.compare_ahead(document, found);
      }
      counts[static_cast<size_t>(task)] = decider.counts();
    });
    for (const NearCounts& one : counts) add(one);
    std::vector<uint32_t> found;
    for (size_t row = 0; row < count; ++row) {
      const uint32_t document = first + static_cast<uint32_t>(row);
      if (!matches[row]) {
        found.clear();
        kept_.append_members(groups, row, first, found);
        matches[row] = decider_.decide(document, found, known[row]);
      }
      if (matches[row]) {
        search_.removed(document, *matches[row]);
      } else {
        kept_.add(groups, row, document);
      }
    }
  }

  NearCounts counts() const {
    NearCounts all = counts_;
    all.candidates += decider_.counts().candidates;
    all.compared += decider_.counts().compared;
    return all;
  }

 private:
  // Returns, in the order of the chunk, the first row that is in the same group, or the row itself.
  static std::vector<uint32_t> first_rows_of_groups(base::ThreadPool& pool,
                                                    std::span<const uint32_t> groups,
                                                    size_t count) {
    std::vector<uint32_t> first_rows(groups.size());
    parallel_for(pool, static_cast<int64_t>(groups.size() / chunk_rows), [&](int64_t band) {
      const auto column = static_cast<size_t>(band) * chunk_rows;
      std::vector<std::pair<uint32_t, uint32_t>> members;  // group, row
      for (uint32_t row = 0; row < count; ++row) {
        first_rows[column + row] = row;
        if (groups[column + row] > 0) members.emplace_back(groups[column + row], row);
      }
      std::sort(members.begin(), members.end());
      for (size_t i = 1, begin = 0; i < members.size(); ++i) {
        if (members[i].first != members[begin].first) begin = i;
        first_rows[column + members[i].second] = members[begin].second;
      }
    });
    return first_rows;
  }

  void add(const NearCounts& counts) {
    counts_.candidates += counts.candidates;
    counts_.compared += counts.compared;
  }

  const ScratchFile& signatures_;
  int permutations_;
  const NearSearch& search_;
  KeptGroups& kept_;
  Decider decider_;
  NearCounts counts_;
};

}  // namespace

NearDuplicateIndex::NearDuplicateIndex(const std::filesystem::path& folder, int permutations,
                                       const Bands& bands)
    : folder_(folder),
      permutations_(permutations),
      bands_(bands),
      signatures_(folder, "signatures"),
      keys_(folder, "band keys", static_cast<size_t>(bands.bands)),
      no_signature_(static_cast<size_t>(permutations)),
      no_keys_(static_cast<size_t>(bands.bands)) {}

void NearDuplicateIndex::add(std::span<const uint32_t> signature, std::span<const uint64_t> keys) {
  TRIREME_CHECK(signature.size() == static_cast<size_t>(permutations_), "{} values of {}",
                signature.size(), permutations_);
  signatures_.append(std::as_bytes(signature));
  keys_.append_row(keys);
}

void NearDuplicateIndex::add_none() { add(no_signature_, no_keys_); }

NearCounts NearDuplicateIndex::search(base::ThreadPool& pool, const NearSearch& search) {
  signatures_.flush();
  keys_.finish();
  const auto documents = static_cast<size_t>(keys_.rows());
  const auto bands = static_cast<size_t>(bands_.bands);
  const int64_t steps = bands_.bands + keys_.chunks();
  ColumnFile<uint32_t> groups(folder_, "groups", bands);
  std::vector<uint32_t> group_counts(bands);
  NearCounts counts;
  {
    std::vector<uint32_t> column(documents);
    for (size_t band = 0; band < bands; ++band) {
      group_counts[band] = group_band(pool, keys_, band, search.takes_part, column);
      counts.groups += group_counts[band];
      groups.write_column(band, column);
      if (search.progress) search.progress(static_cast<int64_t>(band) + 1, steps);
    }
  }
  KeptGroups kept(group_counts);
  GreedyPass pass(signatures_, permutations_, search, kept);
  std::vector<uint32_t> chunk;
  for (int64_t i = 0; i < keys_.chunks(); ++i) {
    groups.read_chunk(i, chunk);
    const size_t first = static_cast<size_t>(i) * chunk_rows;
    pass.decide(pool, chunk, static_cast<uint32_t>(first), std::min(chunk_rows, documents - first));
    if (search.progress) search.progress(bands_.bands + i + 1, steps);
  }
  counts.candidates = pass.counts().candidates;
  counts.compared = pass.counts().compared;
  return counts;
}

}  // namespace trireme::data
