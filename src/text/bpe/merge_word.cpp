// SPDX-License-Identifier: Apache-2.0
#include "text/bpe/merge_word.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace trireme::text {

namespace {

constexpr size_t max_short_word = 96;
constexpr uint32_t no_rank = std::numeric_limits<uint32_t>::max();

size_t merge_short(const PairTable& merges, std::span<int32_t> symbols, MergeScratch& scratch) {
  size_t size = symbols.size();
  if (scratch.ranks.size() < max_short_word) {
    scratch.ranks.resize(max_short_word);
    scratch.products.resize(max_short_word);
  }
  uint32_t* ranks = scratch.ranks.data();  // of the pair that begins at i
  int32_t* products = scratch.products.data();
  const auto look_up = [&](size_t i) {
    const Merge* merge = merges.find(symbols[i], symbols[i + 1]);
    ranks[i] = merge != nullptr ? merge->rank : no_rank;
    if (merge != nullptr) products[i] = merge->id;
  };
  for (size_t i = 0; i + 1 < size; ++i) look_up(i);
  while (size > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < size; ++i) {
      if (ranks[i] < ranks[best]) best = i;
    }
    if (ranks[best] == no_rank) break;
    symbols[best] = products[best];
    const size_t rest = size - best - 2;  // symbols behind the pair
    std::memmove(&symbols[best] + 1, &symbols[best] + 2, rest * sizeof(int32_t));
    std::memmove(ranks + best, ranks + best + 1, rest * sizeof(uint32_t));
    std::memmove(products + best, products + best + 1, rest * sizeof(int32_t));
    --size;
    if (best > 0) look_up(best - 1);
    if (best + 1 < size) look_up(best);
  }
  return size;
}

// A linked list of symbols, and a heap of candidates. A candidate whose pair has changed since is
// dropped when it comes out of the heap.
size_t merge_long(const PairTable& merges, std::span<int32_t> symbols, MergeScratch& scratch) {
  auto& links = scratch.links;
  auto& heap = scratch.heap;
  const auto size = static_cast<int32_t>(symbols.size());
  links.resize(symbols.size());
  heap.clear();
  for (int32_t i = 0; i < size; ++i) {
    links[static_cast<size_t>(i)] = {symbols[static_cast<size_t>(i)], i - 1,
                                     i + 1 < size ? i + 1 : -1};
  }
  const auto link = [&](int32_t i) -> MergeScratch::Link& { return links[static_cast<size_t>(i)]; };
  const auto comes_later = [](const MergeScratch::Candidate& a, const MergeScratch::Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
  };
  const auto add = [&](int32_t at, bool keep_order) {
    const Merge* merge = merges.find(link(at).id, link(link(at).next).id);
    if (merge == nullptr) return;
    heap.push_back({merge->rank, at, merge->id});
    if (keep_order) std::push_heap(heap.begin(), heap.end(), comes_later);
  };
  for (int32_t i = 0; i + 1 < size; ++i) add(i, false);
  std::make_heap(heap.begin(), heap.end(), comes_later);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), comes_later);
    const MergeScratch::Candidate top = heap.back();
    heap.pop_back();
    auto& left = link(top.at);
    if (left.next < 0) continue;
    auto& right = link(left.next);
    const Merge* merge = merges.find(left.id, right.id);
    if (merge == nullptr || merge->id != top.id) continue;
    left.id = top.id;
    left.next = right.next;
    right.next = -2;
    if (left.next >= 0) link(left.next).previous = top.at;
    if (left.previous >= 0) add(left.previous, true);
    if (left.next >= 0) add(top.at, true);
  }
  size_t count = 0;
  for (int32_t i = 0; i >= 0; i = link(i).next) symbols[count++] = link(i).id;
  return count;
}

}  // namespace

size_t merge_word(const PairTable& merges, std::span<int32_t> symbols, MergeScratch& scratch) {
  if (symbols.size() < 2) return symbols.size();
  return symbols.size() <= max_short_word ? merge_short(merges, symbols, scratch)
                                          : merge_long(merges, symbols, scratch);
}

}  // namespace trireme::text
