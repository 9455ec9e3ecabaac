// SPDX-License-Identifier: Apache-2.0
#include "plan/memory/in_flight.h"

#include <algorithm>

#include "plan/memory/stage_share.h"
#include "schedule/catalogue.h"
#include "schedule/lives.h"

namespace trireme::plan {
namespace {

// After this many rounds of micro-batches through all ranks the peaks no longer grow, except in
// GPipe.
constexpr int64_t settling_rounds = 3;

// Counts micro-batches in flight by stage of the rank, and records the peaks.
class Counter {
 public:
  explicit Counter(int chunks)
      : now_(static_cast<size_t>(chunks)), peaks_(static_cast<size_t>(chunks)) {}

  void begin(int chunk) {
    now_[static_cast<size_t>(chunk)] += 1;
    double sum = 0;
    for (size_t k = 0; k < now_.size(); ++k) {
      sum += now_[k];
      if (k >= static_cast<size_t>(chunk)) peaks_[k] = std::max(peaks_[k], sum);
    }
    last_ = std::max(last_, now_.back());
  }
  void end(int chunk) { now_[static_cast<size_t>(chunk)] -= 1; }

  const InFlight::Peaks& peaks() const { return peaks_; }
  double last() const { return last_; }

 private:
  InFlight::Peaks now_, peaks_;
  double last_ = 0;
};

InFlight::Counts merged(InFlight::Peaks peaks, double last) {
  InFlight::Counts counts{.f_to_b = peaks, .f_to_w = peaks, .b_to_w = {}, .last_stage = last};
  counts.b_to_w.assign(peaks.size(), 0);
  return counts;
}

// Follows one rank's program of schedule/generators/interleaved.cpp, for a number of micro-batches
// that divides by pp.
InFlight::Counts interleaved(const Layout& l, int64_t micro_batches, int rank) {
  Counter counter(l.chunks);
  const int64_t count = micro_batches * l.chunks;
  const int64_t ahead =
      std::min(count, int64_t{l.chunks - 1} * l.pp + int64_t{2} * (l.pp - 1 - rank));
  const auto chunk_of = [&](int64_t k) { return static_cast<int>(k / l.pp % l.chunks); };
  for (int64_t k = 0; k < count; ++k) {
    counter.begin(chunk_of(k));
    if (k >= ahead) counter.end(l.chunks - 1 - chunk_of(k - ahead));
  }
  return merged(counter.peaks(), counter.last());
}

struct LifeChange {
  int at = 0, chunk = 0;
  bool begins = true;
};

Counter counted(std::vector<LifeChange> changes, int chunks) {
  // A life that ends at a position still counts there.
  std::ranges::stable_sort(changes, [](const LifeChange& a, const LifeChange& b) {
    if (a.at != b.at) return a.at < b.at;
    return a.begins && !b.begins;
  });
  Counter counter(chunks);
  for (const LifeChange& change : changes) {
    if (change.begins) counter.begin(change.chunk);
    if (!change.begins) counter.end(change.chunk);
  }
  return counter;
}

InFlight::Counts counts_of(const schedule::Schedule& schedule, int rank) {
  const std::vector<schedule::Action>& program = schedule.program[static_cast<size_t>(rank)];
  const std::vector<int> stages = schedule::stages_of(schedule, rank);
  std::vector<LifeChange> f_to_b, f_to_w, b_to_w;
  const auto add = [](std::vector<LifeChange>& all, int chunk, int from, int to) {
    all.push_back({from, chunk, true});
    all.push_back({to, chunk, false});
  };
  for (const schedule::Passage& life : schedule::passages(schedule, rank)) {
    const auto chunk = static_cast<int>(std::ranges::find(stages, life.stage) - stages.begin());
    add(f_to_b, chunk, life.f, life.b);
    add(f_to_w, chunk, life.f, life.w);
    add(b_to_w, chunk, life.b, life.w);
  }
  const auto chunks = static_cast<int>(stages.size());
  const Counter until_b = counted(f_to_b, chunks);
  InFlight::Counts counts = merged(until_b.peaks(), until_b.last());
  counts.f_to_w = counted(f_to_w, chunks).peaks();
  counts.is_merged = !schedule::splits_backward(program);
  counts.runs_pairs = schedule::has_pairs(program);
  if (!counts.is_merged) counts.b_to_w = counted(b_to_w, chunks).peaks();
  return counts;
}

InFlight in_flight(const Layout& l, int64_t micro_batches) {
  const auto m = static_cast<double>(micro_batches);
  const EndRanks ends = end_ranks(l);
  InFlight all;
  const bool is_simple = l.pp == 1 || l.schedule == Kind::gpipe || l.schedule == Kind::one_f_one_b;
  const auto made = is_simple || l.schedule == Kind::interleaved
                        ? base::Result<schedule::Schedule>::no("")
                        : schedule::generate(name_of(l.schedule),
                                             {l.pp, static_cast<int>(micro_batches), l.chunks});
  for (int i = 0; i < ends.count; ++i) {
    const int rank = ends.ranks[static_cast<size_t>(i)];
    const double held = l.pp == 1                   ? 1
                        : l.schedule == Kind::gpipe ? m
                                                    : std::min(m, static_cast<double>(l.pp - rank));
    if (l.schedule == Kind::interleaved && l.pp > 1) {
      all.ranks.push_back(interleaved(l, micro_batches, rank));
    } else if (made) {
      all.ranks.push_back(counts_of(made.value(), rank));
    } else {
      // Also used for a shape that the schedule does not support; the rules reject it.
      all.ranks.push_back(merged(InFlight::Peaks(static_cast<size_t>(l.chunks), held), held));
    }
  }
  return all;
}

}  // namespace

const InFlight& InFlightTable::find(const Layout& l, int64_t micro_batches) {
  const int64_t m = l.schedule == Kind::gpipe || l.pp == 1
                        ? micro_batches
                        : std::min<int64_t>(micro_batches, settling_rounds * l.pp);
  const std::tuple key(m, l.pp, l.chunks, l.schedule);
  const auto found = known_.find(key);
  if (found != known_.end()) return found->second;
  return known_.emplace(key, in_flight(l, m)).first->second;
}

}  // namespace trireme::plan
