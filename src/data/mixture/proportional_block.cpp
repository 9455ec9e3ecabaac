// SPDX-License-Identifier: Apache-2.0
// Why every slot finds an item in its window. Items with integer windows can be assigned, earliest
// end first, if for all slots R < D at most D - R of them have a window inside [R, D).
// - Windows inside a block: item k of a source flows evenly from k / w to (k + 1) / w, inside its
//   window, and all sources together fill one slot per slot.
// - From the state (1) at T to D: the fractions w * T - floor(w * T) of the sources add up to the m
//   extra items. If all extra items end by D, at most sum(floor(w * D)) - T <= D - T items are
//   open. Otherwise z of them end after D. The m - z others have fractions below 1, so the sources
//   without an end in (T, D] have fractions of at least z; these only grow until D, so that
//   sum(floor(w * D)) <= D - z, and again at most D - T items are open.
// - From R to the state (2) at T: for R >= T - L, the assignment that led to it is the proof. For
//   earlier R, 2 / w slots back, the state contains all items that begin before R, so that
//   T - sum(ceil(w * R)) <= T - R are left.
#include "data/mixture/proportional_block.h"

#include <algorithm>
#include <bit>
#include <queue>
#include <tuple>

#include "base/check.h"

namespace trireme::data {
namespace {

__extension__ using Wide = __int128;

// The window of the next item of one source, moved on without divisions.
class NextItem {
 public:
  NextItem(int64_t share, int64_t total, int64_t item)
      : share_(share), step_(total / share), step_rest_(total % share) {
    first_ = static_cast<int64_t>(Wide{item} * total / share);
    rest_ = static_cast<int64_t>(Wide{item} * total % share);
    find_next();
  }

  ItemWindow window() const { return {first_, next_ + (next_rest_ > 0 ? 1 : 0)}; }
  void advance() {
    first_ = next_;
    rest_ = next_rest_;
    find_next();
  }

 private:
  void find_next() {
    next_ = first_ + step_;
    next_rest_ = rest_ + step_rest_;
    if (next_rest_ >= share_) {
      next_rest_ -= share_;
      ++next_;
    }
  }

  int64_t share_, step_, step_rest_;
  int64_t first_ = 0, rest_ = 0;  // item * total / share: quotient and remainder
  int64_t next_ = 0, next_rest_ = 0;
};

// A slot and the window of its item, which the block's borders may have narrowed.
struct Assigned {
  uint16_t source = 0;
  int64_t first = 0, end = 0;
};

// Assigns slots in their order to the item that ends first. `targets` (may be empty) are the counts
// at the end: a source stops there, and its items end there at the latest.
class SlotAssigner {
 public:
  SlotAssigner(const ProportionalShares& shares, int64_t begin, int64_t end,
               std::vector<int64_t> counts, std::span<const int64_t> targets)
      : begin_(begin), end_(end), counts_(std::move(counts)), targets_(targets) {
    first_waiting_.assign(static_cast<size_t>(end - begin), -1);
    next_waiting_.assign(shares.share.size(), -1);
    items_.reserve(shares.share.size());
    for (size_t source = 0; source < shares.share.size(); ++source) {
      items_.emplace_back(shares.share[source], shares.total, counts_[source]);
      enqueue(static_cast<int>(source), begin);
    }
  }

  // REQUIRES: slots are assigned once each, in order.
  Assigned assign(int64_t slot) {
    for (int source = first_waiting_[static_cast<size_t>(slot - begin_)]; source >= 0;
         source = next_waiting_[static_cast<size_t>(source)]) {
      begun_.emplace(end_of(source), source);
    }
    TRIREME_CHECK(!begun_.empty(), "no source for slot {}", slot);
    const auto [item_end, source] = begun_.top();
    begun_.pop();
    TRIREME_CHECK(item_end > slot, "slot {} is behind the window of source {}", slot, source);
    const auto at = static_cast<size_t>(source);
    const Assigned assigned{static_cast<uint16_t>(source), items_[at].window().first, item_end};
    ++counts_[at];
    items_[at].advance();
    enqueue(source, slot + 1);
    return assigned;
  }

  std::vector<int64_t> counts() && { return std::move(counts_); }

 private:
  int64_t end_of(int source) const {
    const int64_t end = items_[static_cast<size_t>(source)].window().end;
    return targets_.empty() ? end : std::min(end, end_);
  }

  // Keeps a source until the window of its next item begins.
  void enqueue(int source, int64_t next_slot) {
    const auto at = static_cast<size_t>(source);
    if (!targets_.empty() && counts_[at] == targets_[at]) return;
    const int64_t slot = std::max(items_[at].window().first, next_slot);
    if (slot >= end_) return;
    int& first = first_waiting_[static_cast<size_t>(slot - begin_)];
    next_waiting_[at] = first;
    first = source;
  }

  int64_t begin_, end_;
  std::vector<int64_t> counts_;
  std::span<const int64_t> targets_;
  std::vector<NextItem> items_;
  // Sources by the slot at which their next item begins: heads of lists, and links by source.
  std::vector<int> first_waiting_, next_waiting_;
  using Entry = std::tuple<int64_t, int>;  // end of the window, source
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> begun_;
};

// Step (1) of the header.
std::vector<int64_t> earliest_end_counts(const ProportionalShares& shares, int64_t slot) {
  std::vector<int64_t> counts;
  std::vector<std::tuple<int64_t, size_t>> ends;  // of the next items whose window has begun
  int64_t missing = slot;
  for (size_t i = 0; i < shares.share.size(); ++i) {
    const Wide product = Wide{shares.share[i]} * slot;
    counts.push_back(static_cast<int64_t>(product / shares.total));
    missing -= counts.back();
    if (product % shares.total == 0) continue;
    ends.emplace_back(item_window(shares, static_cast<int>(i), counts.back()).end, i);
  }
  TRIREME_CHECK(missing >= 0 && missing <= static_cast<int64_t>(ends.size()),
                "{} items are missing, {} are begun", missing, ends.size());
  std::partial_sort(ends.begin(), ends.begin() + missing, ends.end());
  for (int64_t i = 0; i < missing; ++i) ++counts[std::get<1>(ends[static_cast<size_t>(i)])];
  return counts;
}

// Step (2) of the header.
std::vector<int64_t> counts_at(const ProportionalShares& shares, int64_t slot) {
  if (slot == 0) return std::vector<int64_t>(shares.share.size(), 0);
  const int64_t begin = slot - shares.lookback;
  SlotAssigner assigner(shares, begin, slot, earliest_end_counts(shares, begin), {});
  for (int64_t i = begin; i < slot; ++i) assigner.assign(i);
  return std::move(assigner).counts();
}

uint64_t next_random(uint64_t& state) {  // splitmix64 (Steele et al. 2014)
  uint64_t z = state += 0x9E3779B97F4A7C15U;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31);
}

// Exchanges slots, near ones more often than far ones. An exchange that puts two items of one
// source in the other order is the same as one that does not: their windows are in order.
void shuffle_within_windows(std::vector<Assigned>& slots, int64_t begin, size_t sources,
                            uint64_t seed) {
  const uint64_t reach = 2 * sources;
  for (int sweep = 0; sweep < 3; ++sweep) {
    for (size_t i = 0; i + 1 < slots.size(); ++i) {
      const uint64_t bits = next_random(seed);
      const size_t other = i + 1 + (bits & 1 ? 0 : static_cast<size_t>((bits >> 32) % reach));
      if (other >= slots.size() || slots[i].source == slots[other].source) continue;
      if (slots[other].first > begin + static_cast<int64_t>(i)) continue;
      if (slots[i].end <= begin + static_cast<int64_t>(other)) continue;
      std::swap(slots[i], slots[other]);
    }
  }
}

}  // namespace

ProportionalShares::ProportionalShares(std::vector<int64_t> shares) : share(std::move(shares)) {
  TRIREME_CHECK(!share.empty() && share.size() <= 65536, "{} sources", share.size());
  int64_t smallest = share.front();
  for (const int64_t one : share) {
    TRIREME_CHECK(one > 0, "a share of {}", one);
    smallest = std::min(smallest, one);
    total += one;
  }
  TRIREME_CHECK(total <= int64_t{1'000'000'000'000'000}, "a sum of shares of {}", total);
  lookback = 2 * total / smallest + 2;
  constexpr uint64_t min_block_slots = 4096;
  block_slots = static_cast<int64_t>(
      std::max(min_block_slots, std::bit_ceil(static_cast<uint64_t>(lookback))));
}

ItemWindow item_window(const ProportionalShares& shares, int source, int64_t item) {
  return NextItem(shares.share[static_cast<size_t>(source)], shares.total, item).window();
}

ProportionalBlock proportional_block(const ProportionalShares& shares, base::RngKey key,
                                     int64_t block) {
  TRIREME_CHECK(block >= 0 && block < (int64_t{1} << 62) / shares.block_slots, "block {}", block);
  ProportionalBlock out;
  out.begin = block * shares.block_slots;
  const int64_t end = out.begin + shares.block_slots;
  out.counts = counts_at(shares, out.begin);
  const std::vector<int64_t> targets = counts_at(shares, end);
  SlotAssigner assigner(shares, out.begin, end, out.counts, targets);
  std::vector<Assigned> slots;
  slots.reserve(static_cast<size_t>(shares.block_slots));
  for (int64_t slot = out.begin; slot < end; ++slot) slots.push_back(assigner.assign(slot));
  TRIREME_CHECK(std::move(assigner).counts() == targets, "block {} misses its end", block);

  const auto bits = base::philox(key, static_cast<uint64_t>(block));
  shuffle_within_windows(slots, out.begin, shares.share.size(), uint64_t{bits[0]} << 32 | bits[1]);
  std::vector<uint32_t> taken(shares.share.size(), 0);
  for (const Assigned& slot : slots) {
    out.sources.push_back(slot.source);
    out.items.push_back(taken[slot.source]++);
  }
  return out;
}

}  // namespace trireme::data
