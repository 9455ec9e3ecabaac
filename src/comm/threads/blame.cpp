// SPDX-License-Identifier: Apache-2.0
#include "comm/threads/blame.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/check.h"

namespace trireme::comm {
namespace {

// "rank 2", "ranks 0, 1, 3".
std::string text_of(const std::vector<int>& ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

// Returns the index of the wait of `rank`, preferring that of its host; waits.size() if it has
// none.
size_t wait_of(std::span<const Wait> waits, int rank) {
  size_t found = waits.size();
  for (size_t at = 0; at < waits.size(); ++at) {
    if (waits[at].rank != rank) continue;
    if (waits[at].is_collective) return at;
    found = std::min(found, at);
  }
  return found;
}

bool contains(const std::vector<int>& ranks, int rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

// Returns the ranks that wait in the same call as `wait` for one of `culprits`.
std::vector<int> waiting_with(std::span<const Wait> waits, const Wait& wait,
                              const std::vector<int>& culprits) {
  std::vector<int> ranks;
  for (const Wait& other : waits) {
    const bool same = other.group == wait.group && other.expected == wait.expected &&
                      std::any_of(culprits.begin(), culprits.end(),
                                  [&](int rank) { return contains(other.missing, rank); });
    if (same && !contains(ranks, other.rank)) ranks.push_back(other.rank);
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

std::string cycle_text(std::span<const Wait> waits, std::span<const size_t> cycle) {
  std::string text = "ranks wait for each other:";
  for (const size_t at : cycle) {
    const Wait& wait = waits[at];
    text += fmt::format("{} rank {} is in {} of group '{}' and waits for {}",
                        at == cycle.front() ? "" : ";", wait.rank, wait.call, wait.group,
                        text_of(wait.missing));
  }
  return text;
}

// Extends `path` by waits in collectives, depth first, until it leads back to its first wait.
bool closes_cycle(std::span<const Wait> waits, std::vector<size_t>& path, std::vector<bool>& seen) {
  for (const int rank : waits[path.back()].missing) {
    const size_t next = wait_of(waits, rank);
    if (next == path.front()) return true;
    if (next == waits.size() || seen[next] || !waits[next].is_collective) continue;
    seen[next] = true;
    path.push_back(next);
    if (closes_cycle(waits, path, seen)) return true;
    path.pop_back();
  }
  return false;
}

}  // namespace

std::string cycle_through(std::span<const Wait> waits, size_t through) {
  TRIREME_CHECK(through < waits.size(), "wait {} of {}", through, waits.size());
  std::vector<size_t> path = {through};
  std::vector<bool> seen(waits.size());
  return closes_cycle(waits, path, seen) ? cycle_text(waits, path) : std::string();
}

std::string blame(std::span<const Wait> waits, size_t noticed, double deadline_s,
                  const std::function<std::string(int rank)>& last_of) {
  TRIREME_CHECK(noticed < waits.size(), "wait {} of {}", noticed, waits.size());
  std::vector<size_t> path = {noticed};
  std::vector<int> culprits;
  while (true) {
    const Wait& wait = waits[path.back()];
    for (const int rank : wait.missing) {
      if (wait_of(waits, rank) == waits.size()) culprits.push_back(rank);
    }
    if (!culprits.empty() || wait.missing.empty()) break;
    const size_t next = wait_of(waits, wait.missing.front());
    const auto seen = std::find(path.begin(), path.end(), next);
    if (seen != path.end()) {
      const auto begin = static_cast<size_t>(seen - path.begin());
      return fmt::format("{}; rank {} noticed after {} s",
                         cycle_text(waits, std::span(path).subspan(begin)), waits[noticed].rank,
                         deadline_s);
    }
    path.push_back(next);
  }
  const Wait& wait = waits[path.back()];
  const auto waiting = waiting_with(waits, wait, culprits);
  std::string text = fmt::format("{} did not enter {} of group '{}'", text_of(culprits),
                                 wait.expected, wait.group);
  if (path.size() == 1) text += fmt::format(" within {} s", deadline_s);
  text += fmt::format("; {} {} waiting", text_of(waiting), waiting.size() == 1 ? "is" : "are");
  for (const int rank : culprits) {
    const std::string last = last_of(rank);
    text += last.empty() ? fmt::format("; rank {} has finished no communication yet", rank)
                         : fmt::format("; the last call that rank {} finished was {}", rank, last);
  }
  if (path.size() > 1) {
    text += fmt::format("; behind them rank {} waited {} s in {} of group '{}'",
                        waits[noticed].rank, deadline_s, waits[noticed].call, waits[noticed].group);
  }
  return text;
}

}  // namespace trireme::comm
