// SPDX-License-Identifier: Apache-2.0
// Rules about context parallelism: what the slices of sequences and the exchange of heads divide.
// Messages list the degrees and the kinds with which the same job would be legal.
#include <fmt/format.h>

#include <algorithm>

#include "spec/layout/rules_internal.h"
#include "spec/parallel/context_parallel.h"

namespace trireme::spec {
namespace {

constexpr auto kinds = {ContextKind::ulysses, ContextKind::gather, ContextKind::ring,
                        ContextKind::ulysses_gather, ContextKind::ulysses_ring};
constexpr auto all_slices = {ContextSlices::zigzag, ContextSlices::contiguous,
                             ContextSlices::striped, ContextSlices::blocks};

// ---- each takes the layout that it checks, so that messages can look for others

bool length_holds(const Workload& work, const Layout& l) {
  return l.cp == 1 || work.seq_len % context_unit(l.context_slices, l.cp) == 0;
}

bool degree_holds(const Layout& l) {
  if (l.ulysses < 1 || l.cp % l.ulysses != 0) return false;
  if (!has_ulysses(l.context_kind)) return l.ulysses == 1;
  return l.context_kind != ContextKind::ulysses || l.ulysses == l.cp;
}

// Do the heads of a rank along tp divide by the ranks that exchange them? Ranks get copies of the
// heads of keys and values if there are fewer of them.
bool heads_hold(const ModelSizes& model, const Layout& l) {
  const int64_t ranks = std::max(l.ulysses, 1);
  // tp.divides reports sizes that tp does not divide.
  const auto is_cut = [&](const auto& cut) {
    return cut.first != "heads" || cut.second % l.tp != 0 || (cut.second / l.tp) % ranks == 0;
  };
  const auto is_shared = [&](int64_t heads) {
    const int64_t own = std::max<int64_t>(1, heads / l.tp);
    return own % ranks == 0 || ranks % own == 0;
  };
  return std::ranges::all_of(model.tp_cuts, is_cut) &&
         std::ranges::all_of(model.kv_heads, is_shared);
}

bool all_hold(const RuleCase& c, const Layout& l) { return context_is_legal(c.model, c.work, l); }

// Returns the layout with another degree, and the open Ulysses degree of its kind.
Layout with_degree(const RuleCase& c, int cp) {
  Layout l = c.l;
  l.cp = cp;
  l.ulysses = 0;
  l.ulysses = open_ulysses(l, c.model.kv_heads);
  return l;
}

// Returns "cp = 2 or 8": the legal degrees on both sides of the requested one.
std::string nearest_degrees(const RuleCase& c) {
  std::vector<std::string> near;
  for (int cp = c.l.cp - 1; cp >= 1; --cp) {
    if (!all_hold(c, with_degree(c, cp))) continue;
    near.push_back(fmt::format("{}", cp));
    break;
  }
  for (int cp = c.l.cp + 1; cp <= 2 * c.l.cp; ++cp) {
    if (!all_hold(c, with_degree(c, cp))) continue;
    near.push_back(fmt::format("{}", cp));
    break;
  }
  return near.empty() ? "" : fmt::format("{} = {}", c.name(LayoutKey::cp), joined(near, "or"));
}

// Returns ", or context_kind = gather or ring": the other kinds that are legal at this degree.
std::string other_kinds(const RuleCase& c) {
  std::vector<std::string> legal;
  for (const ContextKind kind : kinds) {
    Layout l = c.l;
    l.context_kind = kind;
    l.ulysses = 0;
    l.ulysses = open_ulysses(l, c.model.kv_heads);
    if (kind != c.l.context_kind && all_hold(c, l)) legal.emplace_back(name_of(kind));
  }
  if (legal.empty()) return "";
  return fmt::format(", or {} = {} at this degree", c.name(LayoutKey::context_kind),
                     joined(legal, "or"));
}

// Returns ", or context_slices = striped": the other slices that are legal at this degree.
std::string other_slices(const RuleCase& c) {
  std::vector<std::string> legal;
  for (const ContextSlices slices : all_slices) {
    Layout l = c.l;
    l.context_slices = slices;
    if (slices != c.l.context_slices && all_hold(c, l)) legal.emplace_back(name_of(slices));
  }
  if (legal.empty()) return "";
  return fmt::format(", or {} = {} at this degree", c.name(LayoutKey::context_slices),
                     joined(legal, "or"));
}

std::string length_message(const RuleCase& c) {
  using enum LayoutKey;
  const int64_t unit = context_unit(c.l.context_slices, c.l.cp);
  const std::string degrees = nearest_degrees(c);
  return fmt::format("{} = {}: with {} = {} it must divide by {}{} = {}; nearest: {}{}{}{}",
                     c.name(seq_len), c.work.seq_len, c.name(context_slices),
                     name_of(c.l.context_slices), unit == c.l.cp ? "" : "2 x ", c.name(cp), unit,
                     nearest_multiples(c.work.seq_len, unit), degrees.empty() ? "" : ", ", degrees,
                     other_slices(c));
}

std::string degree_message(const RuleCase& c) {
  using enum LayoutKey;
  const std::string start = fmt::format("{} = {}: ", c.name(ulysses), c.l.ulysses);
  if (c.l.context_kind == ContextKind::ulysses) {
    return fmt::format("{}with {} = ulysses it is {} = {}; nearest: {}, or {} = ulysses_gather",
                       start, c.name(context_kind), c.name(cp), c.l.cp, c.l.cp,
                       c.name(context_kind));
  }
  if (!has_ulysses(c.l.context_kind)) {
    return fmt::format("{}with {} = {} no ranks exchange heads; nearest: 1, or {} = ulysses_{}",
                       start, c.name(context_kind), name_of(c.l.context_kind), c.name(context_kind),
                       name_of(c.l.context_kind));
  }
  std::vector<std::string> divisors;
  for (int ranks = 1; ranks <= c.l.cp; ++ranks) {
    Layout l = c.l;
    l.ulysses = ranks;
    if (c.l.cp % ranks == 0 && heads_hold(c.model, l)) divisors.push_back(fmt::format("{}", ranks));
  }
  return fmt::format("{}must divide {} = {}; nearest: {}", start, c.name(cp), c.l.cp,
                     joined(divisors, "or"));
}

std::string heads_message(const RuleCase& c) {
  using enum LayoutKey;
  std::vector<std::string> heads;
  for (const auto& [what, size] : c.model.tp_cuts) {
    if (what == "heads") heads.push_back(fmt::format("{} heads", size / c.l.tp));
  }
  for (const int64_t size : c.model.kv_heads) {
    heads.push_back(fmt::format("{} kv_heads", std::max<int64_t>(1, size / c.l.tp)));
  }
  std::string nearest = nearest_degrees(c);
  if (c.l.context_kind != ContextKind::ulysses) {
    std::vector<std::string> divisors;
    for (int ranks = 1; ranks < c.l.ulysses; ++ranks) {
      Layout l = c.l;
      l.ulysses = ranks;
      if (all_hold(c, l)) divisors.push_back(fmt::format("{}", ranks));
    }
    nearest = fmt::format("{} = {}", c.name(ulysses), joined(divisors, "or"));
  }
  return fmt::format(
      "{} = {}: {} ranks exchange the {} of a rank (after {} = {}), but heads must divide by them, "
      "and kv_heads divide by them or divide them; nearest: {}{}",
      c.name(context_kind), name_of(c.l.context_kind), c.l.ulysses, joined(heads, "and"),
      c.name(tp), c.l.tp, nearest, other_kinds(c));
}

std::string slices_message(const RuleCase& c) {
  using enum LayoutKey;
  return fmt::format(
      "{} = {}: {} = {} passes keys round in fixed slices, and blocks vary with documents; "
      "nearest: zigzag{}",
      c.name(context_slices), name_of(c.l.context_slices), c.name(context_kind),
      name_of(c.l.context_kind), other_kinds(c));
}

}  // namespace

bool context_is_legal(const ModelSizes& model, const Workload& work, const Layout& l) {
  return degree_holds(l) && heads_hold(model, l) &&
         context_allows(l.context_kind, l.context_slices) && length_holds(work, l);
}

std::vector<Rule> context_rules() {
  using enum LayoutKey;
  return {
      {.id = "cp.ulysses",
       .whose = Whose::any,
       .keys = {ulysses, context_kind, cp},
       .needs = Known::degrees,
       .spoils = Known::context,
       // Without a model an open degree stays open.
       .holds =
           [](const RuleCase& c) {
             return degree_holds(c.l) || (c.l.ulysses == 0 && c.model.kv_heads.empty());
           },
       .message = degree_message},
      {.id = "cp.heads",
       .whose = Whose::any,
       .keys = {context_kind, cp, ulysses, tp, model},
       .needs = Known::degrees | Known::context,
       .holds = [](const RuleCase& c) { return heads_hold(c.model, c.l); },
       .message = heads_message},
      {.id = "cp.slices",
       .whose = Whose::any,
       .keys = {context_slices, context_kind},
       .needs = Known::degrees,
       .spoils = Known::context,
       .holds =
           [](const RuleCase& c) { return context_allows(c.l.context_kind, c.l.context_slices); },
       .message = slices_message},
      {.id = "cp.seq_len",
       .whose = Whose::any,
       .keys = {seq_len, cp, context_slices},
       .needs = Known::degrees | Known::batch | Known::context,
       .holds = [](const RuleCase& c) { return length_holds(c.work, c.l); },
       .message = length_message},
  };
}

}  // namespace trireme::spec
