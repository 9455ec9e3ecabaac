// SPDX-License-Identifier: Apache-2.0
#include "plan/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <tuple>

#include "base/count_text.h"
#include "base/error.h"
#include "plan/feasible.h"
#include "plan/space.h"

namespace trireme::plan {
namespace {

using Family = std::tuple<int, int, int, int>;  // tp, cp, pp, ep

Family family_of(const Layout& l) { return {l.tp, l.cp, l.pp, l.ep}; }

// What is known of a family so far.
struct Found {
  std::optional<Candidate> best;
  std::string rule;                // the last that was broken
  std::optional<Candidate> least;  // in memory
};

// The best layout for each value of one thing, by its number.
using ByValue = std::map<int64_t, Candidate>;

class Search {
 public:
  Search(const Job& job, const spec::Machine& machine, const Stack& stack,
         const SearchOptions& options)
      : job_(job), machine_(machine), options_(options), pricer_(job, machine, stack) {
    room_ = machine.processor.memory_bytes * options.memory_fraction;
  }

  void look_at(const Layout& layout) {
    ++result_.layouts;
    Found& family = families_[family_of(layout)];
    if (std::string rule = broken_rule(job_, layout); !rule.empty()) {
      if (family.rule.empty()) family.rule = std::move(rule);
      ++result_.pruned;
      return;
    }
    if (!options_.space.unaudited) {
      if (std::string lack = missing_in_engine(job_, layout); !lack.empty()) {
        if (family.rule.empty()) family.rule = std::move(lack);
        ++result_.pruned;
        return;
      }
    }
    const Candidate candidate{layout, pricer_.price(layout)};
    ++result_.priced;
    if (options_.visit) options_.visit(layout, candidate.price);
    const double bytes = candidate.price.bytes;
    if (!family.least || bytes < family.least->price.bytes) family.least = candidate;
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
      } else if (found.least) {
        const double least = found.least->price.bytes;
        result_.rejected.push_back(
            {tp, cp, pp, ep,
             fmt::format("memory: at least {:.1f} GB of {:.1f} GB", least / 1e9, room_ / 1e9),
             least - room_, found.least->layout});
      } else {
        result_.rejected.push_back({tp, cp, pp, ep, found.rule, 0, {}});
      }
      if (found.least &&
          (!result_.smallest || found.least->price.bytes < result_.smallest->price.bytes)) {
        result_.smallest = found.least;
      }
    }
    std::ranges::stable_sort(result_.families, is_better);
    std::ranges::sort_heap(result_.fastest, is_better);
    take_alternatives();
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

  void keep_for_front(const Candidate& candidate) {
    const auto covers = [](const Candidate& a, const Candidate& b) {
      return a.price.seconds <= b.price.seconds && a.price.bytes <= b.price.bytes;
    };
    for (const Candidate& kept : front_) {
      if (covers(kept, candidate)) return;
    }
    std::erase_if(front_, [&](const Candidate& kept) { return covers(candidate, kept); });
    front_.push_back(candidate);
  }

  // A heap with the slowest on top.
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
    const std::array<int64_t, things> values = values_of(candidate.layout);
    for (size_t i = 0; i < things; ++i) {
      const auto [at, is_new] = by_value_[i].try_emplace(values[i], candidate);
      if (!is_new && is_better(candidate, at->second)) at->second = candidate;
    }
  }

  void take_alternatives() {
    if (!result_.best) return;
    const std::array<int64_t, things> own = values_of(result_.best->layout);
    for (size_t i = 0; i < things; ++i) {
      for (const auto& [value, candidate] : by_value_[i]) {
        const bool is_known = std::ranges::any_of(
            result_.alternatives,
            [&](const Candidate& other) { return other.layout == candidate.layout; });
        if (value != own[i] && !is_known) result_.alternatives.push_back(candidate);
      }
    }
    std::ranges::stable_sort(result_.alternatives, is_better);
    if (result_.alternatives.size() > options_.alternatives) {
      result_.alternatives.resize(options_.alternatives);
    }
  }

  // Everything of a layout that is chosen freely.
  static constexpr size_t things = 10;
  static std::array<int64_t, things> values_of(const Layout& l) {
    return {l.tp,
            l.cp,
            l.pp,
            l.zero,
            l.ep,
            static_cast<int64_t>(l.pipe) * 1000 + l.chunks,
            l.micro_batch,
            static_cast<int64_t>(l.recompute),
            static_cast<int64_t>(l.sequence_parallel) * 2 + static_cast<int64_t>(l.placement),
            static_cast<int64_t>(l.precision)};
  }

  const Job& job_;
  const spec::Machine& machine_;
  const SearchOptions& options_;
  Pricer pricer_;
  double room_ = 0;
  std::map<Family, Found> families_;
  std::vector<Candidate> front_;
  std::array<ByValue, things> by_value_;
  SearchResult result_;
};

}  // namespace

std::string missing_in_engine(const Job& job, const Layout& l) {
  if (job.experts) return "experts are not in the engine yet";
  if (l.cp > 1) return "context parallelism is not in the engine yet";
  if (l.precision == Precision::fp8 || l.precision == Precision::fp4) {
    return fmt::format("{} is not in the engine yet", name_of(l.precision));
  }
  const auto& block = std::get<spec::BlockSpec>(job.model.layers.at(1));
  if (block.kv_heads % l.tp != 0) {
    return fmt::format("kv_heads = {} do not divide by tp = {}", block.kv_heads, l.tp);
  }
  if (l.pp > 1 && l.zero >= 2 && l.pipe != Pipe::one_f_one_b && l.pipe != Pipe::interleaved) {
    return fmt::format("ZeRO-{} runs with 1f1b and interleaved, not with {}", l.zero,
                       name_of(l.pipe));
  }
  if (l.placement != Placement::dp_inside && l.pp > 1 && l.dp > 1) {
    return "the engine's mesh has data ranks side by side, not stages";
  }
  return {};
}

SearchResult search(const Job& job, const spec::Machine& machine, const Stack& stack,
                    const SearchOptions& options) {
  const auto began = std::chrono::steady_clock::now();
  for (const Precision precision : options.space.precision) {
    if (const std::string gap = missing_in_machine(machine, options.processors, precision);
        !gap.empty()) {
      throw base::ConfigError(gap);
    }
  }
  Search all(job, machine, stack, options);
  for_each_layout(job, machine, options, [&](const Layout& layout) { all.look_at(layout); });
  SearchResult result = all.take();
  if (result.layouts == 0) {
    throw base::ConfigError(fmt::format("no layout has {} with what was asked for: {}",
                                        base::count_text(options.processors, "GPU"),
                                        why_empty(job, options)));
  }
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  return result;
}

}  // namespace trireme::plan
