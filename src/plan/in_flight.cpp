// SPDX-License-Identifier: Apache-2.0
#include "plan/in_flight.h"

#include <algorithm>
#include <vector>

#include "schedule/catalogue.h"
#include "schedule/lives.h"

namespace trireme::plan {
namespace {

// After so many rounds of micro-batches through all ranks nothing more piles up, except in GPipe.
constexpr int64_t rounds = 3;

// Lives that overlap at most, by position.
double most(const std::vector<std::pair<int, int>>& lives, size_t positions) {
  std::vector<int> change(positions + 2, 0);
  for (const auto& [begin, end] : lives) {
    ++change[static_cast<size_t>(begin)];
    --change[static_cast<size_t>(end) + 1];
  }
  int now = 0, peak = 0;
  for (const int step : change) peak = std::max(peak, now += step);
  return peak;
}

InFlight::Counts counts_of(const schedule::Schedule& schedule, int rank) {
  std::vector<std::pair<int, int>> f_to_b, f_to_w, b_to_w;
  const std::vector<schedule::Action>& program = schedule.program[static_cast<size_t>(rank)];
  const bool is_apart = schedule::splits_backward(program);
  for (const schedule::Passage& life : schedule::passages(schedule, rank)) {
    f_to_b.emplace_back(life.f, life.b);
    f_to_w.emplace_back(life.f, life.w);
    if (is_apart) b_to_w.emplace_back(life.b, life.w);
  }
  return {most(f_to_b, program.size()), most(f_to_w, program.size()), most(b_to_w, program.size())};
}

InFlight in_flight(const Layout& l, int64_t micro_batches) {
  const auto m = static_cast<double>(micro_batches);
  const auto pp = static_cast<double>(l.pp), chunks = static_cast<double>(l.chunks);
  // Merged backwards in closed form.
  const auto merged = [](double first, double last) {
    return InFlight{{first, first, 0}, {last, last, 0}};
  };
  if (l.pp == 1) return merged(1, 1);
  if (l.pipe == Pipe::gpipe) return merged(m, m);
  if (l.pipe == Pipe::one_f_one_b) return merged(std::min(m, pp), 1);
  if (l.pipe == Pipe::interleaved) {
    return merged(std::min(m * chunks, 2 * (pp - 1) + (chunks - 1) * pp + 1),
                  std::min(m * chunks, (chunks - 1) * pp + 1));
  }
  const auto made =
      schedule::generate(name_of(l.pipe), {l.pp, static_cast<int>(micro_batches), l.chunks});
  // A shape that the schedule does not have is refused elsewhere.
  if (!made) return merged(std::min(m, pp) * chunks, chunks);
  return {counts_of(made.value(), 0), counts_of(made.value(), l.pp - 1)};
}

}  // namespace

const InFlight& InFlightTable::find(const Layout& l, int64_t micro_batches) {
  const int64_t m = l.pipe == Pipe::gpipe || l.pp == 1
                        ? micro_batches
                        : std::min<int64_t>(micro_batches, rounds * l.pp);
  const uint64_t key = ((static_cast<uint64_t>(m) * 8192 + static_cast<uint64_t>(l.pp)) * 512 +
                        static_cast<uint64_t>(l.chunks)) *
                           8 +
                       static_cast<uint64_t>(l.pipe);
  const auto found = known_.find(key);
  if (found != known_.end()) return found->second;
  return known_.emplace(key, in_flight(l, m)).first->second;
}

}  // namespace trireme::plan
