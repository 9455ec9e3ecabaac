// SPDX-License-Identifier: Apache-2.0
// Rules about the degrees: their range, their product, and axes that the engine does not support.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>

#include "spec/layout/rules_internal.h"

namespace trireme::spec {
namespace {

// In the order in which messages name them.
struct Degree {
  LayoutKey key;
  int Layout::*field;
};
constexpr std::array<Degree, 4> degrees = {{{LayoutKey::dp_replicate, &Layout::dp_replicate},
                                            {LayoutKey::dp_shard, &Layout::dp_shard},
                                            {LayoutKey::tp, &Layout::tp},
                                            {LayoutKey::pp, &Layout::pp}}};
constexpr std::array<Degree, 7> all_degrees = {{{LayoutKey::tp, &Layout::tp},
                                                {LayoutKey::cp, &Layout::cp},
                                                {LayoutKey::pp, &Layout::pp},
                                                {LayoutKey::dp_replicate, &Layout::dp_replicate},
                                                {LayoutKey::dp_shard, &Layout::dp_shard},
                                                {LayoutKey::ep, &Layout::ep},
                                                {LayoutKey::etp, &Layout::etp}}};
constexpr int open_degree = -1;

int64_t max_of(LayoutKey key) { return key == LayoutKey::pp ? max_pp : max_priced_degree; }

bool pp_is_legal(const RuleCase& c, int64_t pp) {
  if (c.asked.custom_schedule) return pp == c.asked.custom_schedule->ranks;
  return pp == 1 || c.model.layers == 0 || pp <= c.model.layers / chunks_of(c.asked);
}

// The distance from the requested layout: the number of changed degrees, then the amount; changes
// of replicas are preferred to those of shards, and those to cuts of the model.
std::tuple<int, double, int, int, int> distance(const Layout& choice, const Layout& asked) {
  int changed = 0;
  double ratio = 0;
  for (const Degree& degree : degrees) {
    const int to = choice.*degree.field, from = asked.*degree.field;
    if (from == open_degree || from == to) continue;
    ++changed;
    ratio += std::abs(std::log2(static_cast<double>(to) / static_cast<double>(from)));
  }
  return {changed, ratio, choice.pp, choice.tp, choice.dp_shard};
}

// Returns the two nearest layouts whose degrees multiply to the number of ranks: "dp_replicate = 3
// or dp_shard = 3".
std::string nearest_choices(const RuleCase& c) {
  std::vector<Layout> all;
  Layout choice;
  choice.cp = static_cast<int>(std::gcd<int64_t>(c.ranks, c.l.cp));
  const int64_t ranks = c.ranks / choice.cp;
  const auto is_divisor = [](int64_t whole, int part) { return whole % part == 0; };
  for (choice.pp = 1; choice.pp <= ranks; ++choice.pp) {
    if (!is_divisor(ranks, choice.pp) || !pp_is_legal(c, choice.pp)) continue;
    const int64_t stage = ranks / choice.pp;
    for (choice.tp = 1; choice.tp <= stage; ++choice.tp) {
      if (!is_divisor(stage, choice.tp) || !tp_is_legal(c.model, choice.tp)) continue;
      const int64_t data = stage / choice.tp;
      for (choice.dp_shard = 1; choice.dp_shard <= data; ++choice.dp_shard) {
        if (!is_divisor(data, choice.dp_shard)) continue;
        choice.dp_replicate = static_cast<int>(data / choice.dp_shard);
        all.push_back(choice);
      }
    }
  }
  const size_t shown = std::min<size_t>(2, all.size());
  std::partial_sort(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(shown), all.end(),
                    [&c](const Layout& a, const Layout& b) {
                      return distance(a, c.asked) < distance(b, c.asked);
                    });
  std::vector<std::string> parts;
  for (size_t i = 0; i < shown; ++i) {
    std::vector<std::string> changes;
    for (const Degree& degree : degrees) {
      const int to = all[i].*degree.field, from = c.asked.*degree.field;
      if (from == to || from == open_degree) continue;
      changes.push_back(fmt::format("{} = {}", c.name(degree.key), to));
    }
    if (choice.cp != c.l.cp) {
      changes.push_back(fmt::format("{} = {}", c.name(LayoutKey::cp), choice.cp));
    }
    parts.push_back(joined(changes, "with"));
  }
  return joined(parts, "or");
}

// The product of the requested degrees, and its text.
struct Asked {
  int64_t product = 1;
  bool has_open = false;
  std::string text;
};
int64_t asked_product(const RuleCase& c, bool& has_open) {
  int64_t product = c.l.cp;
  for (const Degree& degree : degrees) {
    const int ranks = c.asked.*degree.field;
    has_open = has_open || ranks == open_degree;
    if (ranks != open_degree) product *= ranks;
  }
  return product;
}

Asked asked_degrees(const RuleCase& c) {
  Asked all;
  all.product = asked_product(c, all.has_open);
  std::vector<std::string> factors;
  LayoutKey first = LayoutKey::count;
  for (const Degree& degree : degrees) {
    const int ranks = c.asked.*degree.field;
    if (ranks != open_degree && first == LayoutKey::count) first = degree.key;
    if (ranks == open_degree || ranks == 1) continue;
    factors.push_back(fmt::format("{} = {}", c.name(degree.key), ranks));
  }
  if (c.l.cp != 1) factors.push_back(fmt::format("{} = {}", c.name(LayoutKey::cp), c.l.cp));
  if (factors.empty()) factors.push_back(fmt::format("{} = 1", c.name(first)));
  all.text = joined(factors, "x");
  return all;
}

bool product_holds(const RuleCase& c) {
  bool has_open = false;
  const int64_t product = asked_product(c, has_open);
  if (c.ranks == 0) return true;
  return has_open ? c.ranks % product == 0 : c.ranks == product;
}

std::string product_message(const RuleCase& c) {
  const Asked asked = asked_degrees(c);
  if (asked.has_open) {
    return fmt::format("{}: {} ranks do not divide by {}; nearest: {}", asked.text, c.ranks,
                       asked.product, nearest_choices(c));
  }
  const char* plural = asked.product == 1 ? "" : "s";
  return fmt::format("{}: that needs {} rank{}, but there are {}; nearest: {}, or {} rank{}",
                     asked.text, asked.product, plural, c.ranks, nearest_choices(c), asked.product,
                     plural);
}

}  // namespace

int64_t chunks_of(const Layout& l) {
  if (l.custom_schedule) return l.custom_schedule->stages() / l.custom_schedule->ranks;
  return l.chunks > 0 ? l.chunks : schedule::chunks_of(l.schedule);
}

std::vector<Rule> degree_rules() {
  using enum LayoutKey;
  return {
      {.id = "degree.range",
       .whose = Whose::any,
       .keys = {tp, cp, pp, dp_replicate, dp_shard, ep, etp},
       .spoils = Known::all,
       .holds =
           [](const RuleCase& c) {
             const bool is_open = std::ranges::any_of(all_degrees, [&c](const Degree& degree) {
               return c.l.*degree.field == open_degree;
             });
             return !is_open && degrees_are_in_range(c.l);
           },
       .message =
           [](const RuleCase& c) {
             std::vector<std::string> bad;
             for (const Degree& degree : all_degrees) {
               const int ranks = c.l.*degree.field;
               if (ranks >= 1 && ranks <= max_of(degree.key)) continue;
               bad.push_back(fmt::format("{} = {}: from 1 to {}", c.name(degree.key), ranks,
                                         max_of(degree.key)));
             }
             if (bad.empty()) {
               bad.push_back(
                   fmt::format("{} = {} x {} = {}: at most {} data ranks, and {} ranks in all",
                               c.name(dp_replicate), c.l.dp_replicate, c.name(dp_shard),
                               c.l.dp_shard, max_priced_degree, max_ranks));
             }
             return joined(bad, "and");
           }},
      {.id = "degree.product",
       .whose = Whose::any,
       .keys = {dp_replicate, dp_shard, tp, pp, cp},
       .needs = Known::degrees,
       .spoils = 0,
       .holds = product_holds,
       .message = product_message},
      {.id = "degree.one_rest",
       .whose = Whose::any,
       .keys = {dp_replicate, dp_shard, tp, pp},
       .needs = Known::degrees,
       .holds =
           [](const RuleCase& c) {
             return std::ranges::count_if(degrees, [&c](const Degree& degree) {
                      return c.asked.*degree.field == open_degree;
                    }) <= 1;
           },
       .message =
           [](const RuleCase& c) {
             std::vector<std::string> open;
             for (const Degree& degree : degrees) {
               if (c.asked.*degree.field == open_degree) open.push_back(c.name(degree.key));
             }
             return fmt::format(
                 "{} = -1: only one degree can be -1 (the remaining ranks), but {} {} "
                 "-1, too",
                 open.front(), joined({open.begin() + 1, open.end()}, "and"),
                 open.size() == 2 ? "is" : "are");
           }},
      {.id = "placement.engine",
       .whose = Whose::engine,
       .keys = {placement},
       .needs = Known::degrees,
       .holds = [](const RuleCase& c) { return c.l.placement == Placement::dp_inside; },
       .message =
           [](const RuleCase& c) {
             return fmt::format(
                 "{} = {}: in the engine's mesh data ranks are adjacent, not "
                 "stages; nearest: dp-inside",
                 c.name(placement), name_of(c.l.placement));
           }},
  };
}

}  // namespace trireme::spec
