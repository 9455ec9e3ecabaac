// SPDX-License-Identifier: Apache-2.0
#include "comm/failure/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

namespace trireme::comm {
namespace {

using Call = RankPosition::Call;
using Reports = std::vector<RankReport>;

std::string named(int rank, const RankReport& report) {
  if (!report.position) return fmt::format("rank {}", rank);
  return fmt::format("rank {} (process {} on {})", rank, report.position->process,
                     report.position->host);
}

// The reports, and the ranks that each rank waits for in its current call.
class WaitGraph {
 public:
  explicit WaitGraph(const Reports& reports) : reports_(reports), awaited_(reports.size()) {
    std::vector<std::map<int, int64_t>> reached(reports.size());
    for (size_t rank = 0; rank < reports.size(); ++rank) {
      if (!reports[rank].position) continue;
      for (const Call& call : reports[rank].position->reached) {
        reached[rank][group_of(call)] = call.sequence;
      }
    }
    for (int rank = 0; rank < world(); ++rank) {
      const Call* call = inside(rank);
      if (call == nullptr) continue;
      std::vector<int>& awaited = awaited_[static_cast<size_t>(rank)];
      if (call->is_message()) {
        const bool is_there = call->peer >= 0 && call->peer < world();
        if (is_there && at(rank).position->has_begun) awaited = {call->peer};
        continue;
      }
      const int group = group_of(*call);
      for (const int member : call->ranks) {
        if (member == rank || member < 0 || member >= world()) continue;
        const auto& there = reached[static_cast<size_t>(member)];
        const auto found = there.find(group);
        if (found == there.end() || found->second < call->sequence) awaited.push_back(member);
      }
    }
  }

  int world() const { return static_cast<int>(reports_.size()); }
  const RankReport& at(int rank) const { return reports_[static_cast<size_t>(rank)]; }
  // Null: in no call.
  const Call* inside(int rank) const {
    const auto& position = at(rank).position;
    return position && position->inside ? &*position->inside : nullptr;
  }
  const std::vector<int>& awaited(int rank) const { return awaited_[static_cast<size_t>(rank)]; }

 private:
  // Groups of one name may have different ranks.
  int group_of(const Call& call) {
    return groups_.try_emplace({call.group, call.ranks}, static_cast<int>(groups_.size()))
        .first->second;
  }

  const Reports& reports_;
  std::map<std::pair<std::string, std::vector<int>>, int> groups_;
  std::vector<std::vector<int>> awaited_;
};

std::string last_known(const RankReport& report) {
  if (!report.position) return "no heartbeat was ever received from it";
  const RankPosition& position = *report.position;
  if (position.inside)
    return fmt::format("at its last heartbeat it was in {}", call_text(*position.inside));
  if (position.finished) {
    return fmt::format("at its last heartbeat it had finished {}", call_text(*position.finished));
  }
  return "at its last heartbeat it had not communicated yet";
}

bool concerns(const Call& call, int rank) {
  if (call.is_message()) return call.peer == rank;
  return std::find(call.ranks.begin(), call.ranks.end(), rank) != call.ranks.end();
}

// Returns "ranks 0 and 1 wait in all_reduce #17 of group 'world', rank 3 waits in ...", for calls
// that involve the culprit.
std::string waiters_text(const WaitGraph& known, int culprit) {
  std::map<std::string, std::vector<int>> by_call;
  for (int rank = 0; rank < known.world(); ++rank) {
    const Call* call = known.inside(rank);
    if (rank == culprit || call == nullptr || !concerns(*call, culprit)) continue;
    by_call[call_text(*call)].push_back(rank);
  }
  std::string text;
  constexpr int max_shown = 4;
  int shown = 0;
  for (const auto& [call, ranks] : by_call) {
    if (++shown > max_shown) break;
    text += fmt::format("{}{} {} in {}", text.empty() ? "" : ", ", ranks_text(ranks),
                        ranks.size() == 1 ? "waits" : "wait", call);
  }
  return text;
}

std::string join_clauses(std::initializer_list<std::string> clauses) {
  std::string text;
  for (const std::string& clause : clauses) {
    if (clause.empty()) continue;
    text += (text.empty() ? "" : "; ") + clause;
  }
  return text;
}

// The host of the rank; empty: unknown.
std::string node_of(const RankReport& report) {
  return report.position ? report.position->host : std::string();
}

Verdict blame_one(const WaitGraph& known, VerdictKind kind, int rank, const std::string& what) {
  return {.kind = kind,
          .ranks = {rank},
          .node = node_of(known.at(rank)),
          .cause = what,
          .text = join_clauses({fmt::format("{} {}", named(rank, known.at(rank)), what),
                                known.world() == 1 ? "" : last_known(known.at(rank)),
                                waiters_text(known, rank)})};
}

// Returns the ranks that `begin` wait for, directly or through others, and that do not wait
// themselves.
std::vector<int> roots_from(const WaitGraph& known, const std::vector<int>& begin) {
  std::set<int> seen(begin.begin(), begin.end()), roots;
  std::vector<int> open = begin;
  while (!open.empty()) {
    const int rank = open.back();
    open.pop_back();
    for (const int other : known.awaited(rank)) {
      if (!seen.insert(other).second) continue;
      open.push_back(other);
      if (known.awaited(other).empty()) roots.insert(other);
    }
  }
  return {roots.begin(), roots.end()};
}

Verdict blame_laggards(const WaitGraph& known, const std::vector<int>& laggards,
                       const VerdictOptions& options) {
  // The text names the call that a waiting rank is in, preferably the reporter.
  const Call* call = nullptr;
  std::vector<int> waiting;
  const auto look_at = [&](int rank) {
    const std::vector<int>& awaited = known.awaited(rank);
    if (std::find_first_of(awaited.begin(), awaited.end(), laggards.begin(), laggards.end()) ==
        awaited.end()) {
      return;
    }
    if (call == nullptr) call = known.inside(rank);
    if (*known.inside(rank) == *call) waiting.push_back(rank);
  };
  if (options.reporter >= 0) look_at(options.reporter);
  for (int rank = 0; rank < known.world(); ++rank) {
    if (rank != options.reporter) look_at(rank);
  }
  std::sort(waiting.begin(), waiting.end());
  std::vector<int> absent;  // from that call
  for (const int rank : laggards) {
    if (call != nullptr && concerns(*call, rank)) absent.push_back(rank);
  }
  if (absent.empty()) absent = laggards;
  std::string cause = fmt::format(
      "did not enter {}", call != nullptr ? call_text(*call) : "a call that others wait in");
  if (options.deadline_s > 0) cause += fmt::format(" within {:g} s", options.deadline_s);
  const std::string text = fmt::format("{} {}", ranks_text(absent), cause);
  std::string waits;
  if (!waiting.empty()) {
    waits = fmt::format("{} {} waiting", ranks_text(waiting), waiting.size() == 1 ? "is" : "are");
  }
  const RankReport& first = known.at(absent.front());
  std::string last;
  if (!first.position) {
    last = fmt::format("no heartbeat was ever received from rank {}", absent.front());
  } else if (first.position->has_left) {
    last = fmt::format("rank {} has left the run", absent.front());
  } else if (first.position->inside) {
    last = fmt::format("rank {} is in {}", absent.front(), call_text(*first.position->inside));
  } else if (first.position->finished) {
    last = fmt::format("the last call that rank {} finished was {}", absent.front(),
                       call_text(*first.position->finished));
  } else {
    last = fmt::format("rank {} has not communicated yet", absent.front());
  }
  return {.kind = VerdictKind::stalled,
          .ranks = absent,
          .node = node_of(first),
          .cause = cause,
          .text = join_clauses({text, waits, last})};
}

// All ranks wait for each other: they disagree about the next call. If most are in one call, the
// ranks missing from it are to blame.
Verdict blame_cycle(const WaitGraph& known, const std::vector<int>& waiting,
                    const VerdictOptions& options) {
  std::map<std::string, std::vector<int>> by_call;
  for (const int rank : waiting) by_call[call_text(*known.inside(rank))].push_back(rank);
  const auto larger = [](const auto& a, const auto& b) {
    return a.second.size() < b.second.size();
  };
  const auto most = std::max_element(by_call.begin(), by_call.end(), larger);
  const auto as_many = std::count_if(by_call.begin(), by_call.end(), [&](const auto& one) {
    return one.second.size() == most->second.size();
  });
  if (by_call.size() > 1 && as_many == 1) {
    VerdictOptions as_waiting = options;
    as_waiting.reporter = most->second.front();
    return blame_laggards(known, known.awaited(as_waiting.reporter), as_waiting);
  }
  std::string text = fmt::format("{} wait for each other:", ranks_text(waiting));
  for (size_t i = 0; i < std::min<size_t>(waiting.size(), 8); ++i) {
    text += fmt::format("{} rank {} in {}", i == 0 ? "" : ",", waiting[i],
                        call_text(*known.inside(waiting[i])));
  }
  return {.kind = VerdictKind::stalled,
          .ranks = waiting,
          .node = node_of(known.at(waiting.front())),
          .cause = "wait for each other",
          .text = text};
}

// Extends `path`, depth first, until it leads back to its first rank.
bool closes_cycle(const WaitGraph& known, std::vector<int>& path, std::set<int>& seen) {
  for (const int next : known.awaited(path.back())) {
    if (next == path.front()) return true;
    if (!seen.insert(next).second) continue;
    path.push_back(next);
    if (closes_cycle(known, path, seen)) return true;
    path.pop_back();
  }
  return false;
}

bool hangs(const WaitGraph& known, int rank) {
  const RankReport& report = known.at(rank);
  if (!report.ended.empty() || !report.position || report.position->has_left) return false;
  const std::optional<Motion>& motion = report.position->motion;
  if (!motion || motion->limit_s <= 0 || motion->still_s <= motion->limit_s) return false;
  // On a GPU a call may be queued ahead.
  return known.awaited(rank).empty() &&
         (known.inside(rank) == nullptr || !report.position->has_begun);
}

}  // namespace

std::string ranks_text(const std::vector<int>& ranks) {
  if (ranks.size() == 1) return fmt::format("rank {}", ranks.front());
  constexpr size_t max_shown = 8;
  const size_t shown = std::min(ranks.size(), max_shown);
  std::string text = "ranks ";
  for (size_t i = 0; i < shown; ++i) {
    const bool is_last = i + 1 == ranks.size();
    text += fmt::format("{}{}", i == 0 ? "" : is_last ? " and " : ", ", ranks[i]);
  }
  if (shown < ranks.size()) text += fmt::format(" and {} more", ranks.size() - shown);
  return text;
}

double silent_limit(double deadline_s) {
  return deadline_s > 0 ? std::min(1.5, 0.75 * deadline_s) : 1.5;
}

std::optional<Verdict> hang_of(const Reports& reports) {
  const WaitGraph known(reports);
  std::vector<int> hanging;
  for (int rank = 0; rank < known.world(); ++rank) {
    if (hangs(known, rank)) hanging.push_back(rank);
  }
  if (hanging.empty()) return std::nullopt;
  const Motion& motion = *known.at(hanging.front()).position->motion;
  Verdict verdict = blame_one(
      known, VerdictKind::stalled, hanging.front(),
      fmt::format("hangs in phase '{}': nothing has moved for {:.1f} s, and the limit of the phase "
                  "is {:.1f} s",
                  motion.phase, motion.still_s, motion.limit_s));
  if (hanging.size() > 1) verdict.text += fmt::format("; {} hang", ranks_text(hanging));
  verdict.ranks = std::move(hanging);
  return verdict;
}

std::string cycle_of(const Reports& reports, int rank) {
  const WaitGraph known(reports);
  std::vector<int> path = {rank};
  std::set<int> seen;
  if (!closes_cycle(known, path, seen)) return {};
  // All ranks of the cycle must produce the same text.
  std::rotate(path.begin(), std::min_element(path.begin(), path.end()), path.end());
  std::string text;
  for (const int at : path) {
    text += fmt::format("{} rank {} is in {} and waits for {}", text.empty() ? "" : ";", at,
                        call_text(*known.inside(at)), ranks_text(known.awaited(at)));
  }
  return "ranks wait for each other:" + text;
}

Verdict verdict_of(const Reports& reports, const VerdictOptions& options) {
  const WaitGraph known(reports);
  const int world = known.world();
  const auto at = [&](int rank) -> const RankReport& { return known.at(rank); };
  int first_ended = -1, max_silent = -1;
  std::vector<int> waiting;
  for (int rank = 0; rank < world; ++rank) {
    if (!at(rank).ended.empty() &&
        (first_ended < 0 || at(rank).departure < at(first_ended).departure)) {
      first_ended = rank;
    }
    const bool should_speak = at(rank).position && !at(rank).position->has_left;
    if (should_speak && at(rank).silent_s > options.silent_limit_s &&
        (max_silent < 0 || at(rank).silent_s > at(max_silent).silent_s)) {
      max_silent = rank;
    }
    if (!known.awaited(rank).empty()) waiting.push_back(rank);
  }
  if (first_ended >= 0) {
    return blame_one(known, VerdictKind::died, first_ended, at(first_ended).ended);
  }
  if (max_silent >= 0) {
    return blame_one(
        known, VerdictKind::stalled, max_silent,
        fmt::format("has sent no heartbeat for {:.1f} s: it is stopped, or its host is "
                    "unreachable",
                    at(max_silent).silent_s));
  }
  std::vector<int> unknown;
  for (int rank = 0; rank < world; ++rank) {
    if (!at(rank).position) unknown.push_back(rank);
  }
  if (!unknown.empty()) {
    const std::string cause =
        "never reached the store: not started, or started with another address";
    return {.kind = VerdictKind::stalled,
            .ranks = unknown,
            .cause = cause,
            .text = fmt::format("{} {}", ranks_text(unknown), cause)};
  }
  std::vector<int> begin = waiting;
  if (options.reporter >= 0 && !known.awaited(options.reporter).empty()) {
    begin = {options.reporter};
  }
  if (const std::vector<int> roots = roots_from(known, begin); !roots.empty()) {
    return blame_laggards(known, roots, options);
  }
  if (!waiting.empty()) return blame_cycle(known, waiting, options);
  const std::string cause = "no rank lags behind: the network may have failed";
  return {.kind = VerdictKind::failed, .cause = cause, .text = cause};
}

}  // namespace trireme::comm
