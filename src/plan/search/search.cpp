// SPDX-License-Identifier: Apache-2.0
#include "plan/search/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <tuple>

#include "base/error.h"
#include "base/text/count_text.h"
#include "plan/context/context_choice.h"
#include "plan/search/confirm.h"
#include "plan/search/feasible.h"
#include "plan/search/space.h"

namespace trireme::plan {
namespace {

// At the end of a search the memory of up to max_confirmed rejected layouts is predicted to the
// byte, if their schedules have at most max_confirmed_passes passes (micro-batches x stages).
constexpr size_t max_confirmed = 32;
constexpr int64_t max_confirmed_passes = int64_t{1} << 13;

// The largest fraction of a rank's memory in gaps; 17,000 random layouts had at most 21 %.
constexpr double max_gaps = 0.3;

using Family = std::tuple<int, int, int, int>;  // tp, cp, pp, ep

Family family_of(const Layout& l) { return {l.tp, l.cp, l.pp, l.ep}; }

// The results for one family so far.
struct Found {
  std::optional<Candidate> best;
  std::string rule;                   // the first broken rule
  std::optional<Candidate> smallest;  // the layout that needs the least memory
  double min_bytes = 0;               // lower bound of the smallest one's bytes
};

// The best layout for each value of one field.
using ByValue = std::map<int64_t, Candidate>;

class Search {
 public:
  Search(const Job& job, const spec::Machine& machine, const Stack& stack,
         const SearchOptions& options)
      : job_(job),
        machine_(machine),
        stack_(stack),
        options_(options),
        sizes_(sizes_of(job)),
        work_(workload_of(job)),
        whose_(options.space.unaudited ? spec::Whose::any : spec::Whose::engine),
        pricer_(job, machine, stack),
        contexts_(job, options.space.context_kinds, pricer_) {
    room_ = machine.processor.memory_bytes * options.memory_fraction;
  }

  // Considers the layout with the kinds of context parallelism that suit it.
  void consider(const Layout& given) {
    // Blocks of a layout whose ep does not fit its ranks have no cost; a rule rejects it.
    if (!spec::expert_sizes(given)) return consider_kind(given);
    for (const Layout& layout : contexts_.chosen(given)) consider_kind(layout);
  }

  void consider_kind(const Layout& layout) {
    ++result_.layouts;
    Found& family = families_[family_of(layout)];
    const spec::RuleCase rules{sizes_, work_, 0, layout, layout, rule_names()};
    if (const spec::Rule* rule = spec::first_broken(rules, whose_)) {
      if (family.rule.empty()) family.rule = spec::to_text({rule, rule->message(rules)});
      ++result_.pruned;
      return;
    }
    const Candidate candidate{layout, pricer_.price(layout)};
    ++result_.priced;
    if (options_.visit) options_.visit(layout, candidate.price);
    double bytes = candidate.price.bytes;
    if (bytes <= room_ && bytes > room_ * (1 - max_gaps) && is_wanted(family, candidate)) {
      bytes = pricer_.bytes_at_least(layout);
    }
    if (!family.smallest || bytes < family.min_bytes) {
      family.smallest = candidate;
      family.min_bytes = bytes;
    }
    if (bytes > room_) {
      ++result_.too_large;
      return;
    }
    if (!family.best || is_better(candidate, *family.best)) family.best = candidate;
    keep_for_front(candidate);
    keep_by_value(candidate);
    keep_fastest(candidate);
  }

  SearchResult take() {
    for (auto& [key, found] : families_) {
      const auto [tp, cp, pp, ep] = key;
      if (found.best) {
        result_.families.push_back(*found.best);
        if (!result_.best || is_better(*found.best, *result_.best)) result_.best = found.best;
      } else if (found.smallest) {
        result_.rejected.push_back(
            {tp, cp, pp, ep, {}, found.min_bytes - room_, found.smallest->layout});
      } else if (!is_repeated(tp, cp, pp, found.rule)) {
        result_.rejected.push_back({tp, cp, pp, ep, found.rule, 0, {}});
      }
      if (found.smallest &&
          (!result_.smallest || found.smallest->price.bytes < result_.smallest->price.bytes)) {
        result_.smallest = found.smallest;
      }
    }
    state_missing_memory();
    std::ranges::stable_sort(result_.families, is_better);
    std::ranges::sort_heap(result_.fastest, is_better);
    add_alternatives();
    for (const auto& [value, candidate] : by_value_[precision_field]) {
      result_.precisions.push_back(candidate);
    }
    std::ranges::stable_sort(result_.precisions, is_better);
    std::ranges::sort(front_, [](const Candidate& a, const Candidate& b) {
      return a.price.seconds < b.price.seconds;
    });
    result_.front = front_;
    return std::move(result_);
  }

 private:
  static bool is_better(const Candidate& a, const Candidate& b) {
    if (a.price.seconds != b.price.seconds) return a.price.seconds < b.price.seconds;
    return a.price.bytes < b.price.bytes;
  }

  // Returns whether the family with a smaller ep was rejected by the same rule.
  bool is_repeated(int tp, int cp, int pp, const std::string& rule) const {
    if (result_.rejected.empty()) return false;
    const Rejected& last = result_.rejected.back();
    return last.tp == tp && last.cp == cp && last.pp == pp && last.reason == rule;
  }

  static bool covers(const Candidate& a, const Candidate& b) {
    return a.price.seconds <= b.price.seconds && a.price.bytes <= b.price.bytes;
  }

  // Returns whether one of the lists would keep the candidate.
  bool is_wanted(const Found& family, const Candidate& candidate) const {
    if (!family.best || is_better(candidate, *family.best)) return true;
    if (result_.fastest.size() < options_.fastest) return true;
    if (!result_.fastest.empty() && is_better(candidate, result_.fastest.front())) return true;
    if (!is_covered(candidate)) return true;
    const std::array<int64_t, fields> values = values_of(candidate.layout);
    for (size_t i = 0; i < fields; ++i) {
      const auto at = by_value_[i].find(values[i]);
      if (at == by_value_[i].end() || is_better(candidate, at->second)) return true;
    }
    return false;
  }

  bool is_covered(const Candidate& candidate) const {
    return std::ranges::any_of(front_, [&](const Candidate& k) { return covers(k, candidate); });
  }

  // Replaces the lower bounds of the nearest rejected families by what the engine would allocate,
  // and writes the reasons.
  void state_missing_memory() {
    std::vector<Rejected*> by_memory;
    for (Rejected& r : result_.rejected) {
      if (r.nearest) by_memory.push_back(&r);
    }
    std::ranges::stable_sort(by_memory, {}, &Rejected::missing_bytes);
    size_t confirmed = 0;
    for (Rejected* r : by_memory) {
      const Layout& l = *r->nearest;
      const bool is_short =
          int64_t{l.pp} * l.chunks * micro_batches(job_, l) <= max_confirmed_passes;
      if (!options_.space.unaudited && stack_.is_engine() && is_short &&
          confirmed++ < max_confirmed) {
        try {
          r->missing_bytes = engine_bytes(job_, machine_, stack_, l) - room_;
        } catch (const base::ConfigError&) {
          // The engine rejects it by a rule that the search does not check: keep the bound.
        }
      }
      r->reason = fmt::format("memory: at least {:.1f} GB of {:.1f} GB",
                              (r->missing_bytes + room_) / 1e9, room_ / 1e9);
    }
  }

  void keep_for_front(const Candidate& candidate) {
    if (is_covered(candidate)) return;
    std::erase_if(front_, [&](const Candidate& kept) { return covers(candidate, kept); });
    front_.push_back(candidate);
  }

  // Keeps a heap with the slowest on top.
  void keep_fastest(const Candidate& candidate) {
    std::vector<Candidate>& kept = result_.fastest;
    if (kept.size() == options_.fastest) {
      if (!is_better(candidate, kept.front())) return;
      std::ranges::pop_heap(kept, is_better);
      kept.pop_back();
    }
    kept.push_back(candidate);
    std::ranges::push_heap(kept, is_better);
  }

  void keep_by_value(const Candidate& candidate) {
    const std::array<int64_t, fields> values = values_of(candidate.layout);
    for (size_t i = 0; i < fields; ++i) {
      const auto [at, is_new] = by_value_[i].try_emplace(values[i], candidate);
      if (!is_new && is_better(candidate, at->second)) at->second = candidate;
    }
  }

  void add_alternatives() {
    if (!result_.best) return;
    const std::array<int64_t, fields> own = values_of(result_.best->layout);
    for (size_t i = 0; i < fields; ++i) {
      for (const auto& [value, candidate] : by_value_[i]) {
        const bool is_known = std::ranges::any_of(
            result_.alternatives, [&layout = candidate.layout](const Candidate& other) {
              return other.layout == layout;
            });
        if (value != own[i] && !is_known) result_.alternatives.push_back(candidate);
      }
    }
    std::ranges::stable_sort(result_.alternatives, is_better);
    if (result_.alternatives.size() > options_.alternatives) {
      result_.alternatives.resize(options_.alternatives);
    }
  }

  // The fields of a layout that the search chooses.
  static constexpr size_t fields = 11, precision_field = fields - 1;
  static std::array<int64_t, fields> values_of(const Layout& l) {
    return {l.tp,
            l.cp,
            l.pp,
            l.zero_stage,
            l.dp_shard,
            l.ep,
            static_cast<int64_t>(l.schedule) * 1000 + l.chunks,
            l.micro_batch,
            static_cast<int64_t>(l.recompute),
            static_cast<int64_t>(l.sequence_parallel) * 2 + static_cast<int64_t>(l.placement),
            static_cast<int64_t>(l.precision)};
  }

  const Job& job_;
  const spec::Machine& machine_;
  const Stack& stack_;
  const SearchOptions& options_;
  const spec::ModelSizes sizes_;
  const spec::Workload work_;
  const spec::Whose whose_;
  Pricer pricer_;
  ContextChoice contexts_;
  double room_ = 0;
  std::map<Family, Found> families_;
  std::vector<Candidate> front_;
  std::array<ByValue, fields> by_value_;
  SearchResult result_;
};

}  // namespace

SearchResult search(const Job& job, const spec::Machine& machine, const Stack& stack,
                    const SearchOptions& options) {
  const auto began = std::chrono::steady_clock::now();
  for (const Precision precision : options.space.precision) {
    if (const std::string gap = missing_in_machine(machine, options.gpus, precision);
        !gap.empty()) {
      throw base::ConfigError(gap);
    }
  }
  Search all(job, machine, stack, options);
  for_each_layout(job, machine, options, [&](const Layout& layout) { all.consider(layout); });
  SearchResult result = all.take();
  if (result.layouts == 0) {
    throw base::ConfigError(fmt::format("no layout on {} satisfies the given limits: {}",
                                        base::count_text(options.gpus, "GPU"),
                                        why_empty(job, options)));
  }
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  return result;
}

}  // namespace trireme::plan
