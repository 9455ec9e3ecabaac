// SPDX-License-Identifier: Apache-2.0
#include "spec/job_degrees.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <tuple>

#include "base/check.h"
#include "schedule/catalogue.h"

namespace trireme::spec {
namespace {

// In the order in which messages name them.
struct Degree {
  LayoutKey key;
  int64_t JobLayout::*field;
};
constexpr std::array<Degree, 4> degrees = {{{LayoutKey::dp, &JobLayout::dp},
                                            {LayoutKey::zero, &JobLayout::zero},
                                            {LayoutKey::tp, &JobLayout::tp},
                                            {LayoutKey::pp, &JobLayout::pp}}};

// How far from what was asked: degrees that change, then by how much; replicas rather than shards,
// shards rather than cuts of the model.
std::tuple<int, double, int64_t, int64_t, int64_t> distance(const JobLayout& choice,
                                                            const JobLayout& asked) {
  int changed = 0;
  double ratio = 0;
  for (const Degree& degree : degrees) {
    const int64_t to = choice.*degree.field, from = asked.*degree.field;
    if (from == -1 || from == to) continue;
    ++changed;
    ratio += std::abs(std::log2(static_cast<double>(to) / static_cast<double>(from)));
  }
  return {changed, ratio, choice.pp, choice.tp, choice.zero};
}

// "dp = 3 or zero = 3": the two nearest that multiply to the world.
std::string nearest_choices(const DegreeRules& rules, const JobLayout& asked,
                            const LayoutNames& names) {
  std::vector<JobLayout> all;
  JobLayout choice;
  for (choice.pp = 1; choice.pp <= asked.world; ++choice.pp) {
    if (asked.world % choice.pp != 0 || !rules.pp_is_legal(choice.pp)) continue;
    const int64_t stage = asked.world / choice.pp;
    for (choice.tp = 1; choice.tp <= stage; ++choice.tp) {
      if (stage % choice.tp != 0 || !rules.tp_is_legal(choice.tp)) continue;
      const int64_t data = stage / choice.tp;
      for (choice.zero = 1; choice.zero <= data; ++choice.zero) {
        if (data % choice.zero != 0) continue;
        choice.dp = data / choice.zero;
        all.push_back(choice);
      }
    }
  }
  const size_t shown = std::min<size_t>(2, all.size());
  std::partial_sort(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(shown), all.end(),
                    [&asked](const JobLayout& a, const JobLayout& b) {
                      return distance(a, asked) < distance(b, asked);
                    });
  std::vector<std::string> parts;
  for (size_t i = 0; i < shown; ++i) {
    std::vector<std::string> changes;
    for (const Degree& degree : degrees) {
      const int64_t to = all[i].*degree.field, from = asked.*degree.field;
      if (from == to || from == -1) continue;
      changes.push_back(fmt::format("{} = {}", names[static_cast<size_t>(degree.key)], to));
    }
    parts.push_back(joined(changes, "with"));
  }
  return joined(parts, "or");
}

}  // namespace

std::string joined(const std::vector<std::string>& parts, std::string_view last) {
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) text += i + 1 == parts.size() ? fmt::format(" {} ", last) : ", ";
    text += parts[i];
  }
  return text;
}

DegreeRules::DegreeRules(const ModelDims& dims, const JobLayout& asked) {
  if (dims.heads > 0) {
    tp_cuts_ = {{"heads", dims.heads},
                {"kv_heads", dims.kv_heads > 0 ? dims.kv_heads : dims.heads},
                {"ffn", dims.ffn}};
    vocab_ = dims.vocab;
    is_tied_ = dims.tied_head;
    if (dims.layers > 0) layers_ = dims.layers + 2;
  }
  if (asked.own_schedule) {
    own_ranks_ = asked.own_schedule->ranks;
    chunks_ = asked.own_schedule->stages() / own_ranks_;
  } else if (asked.chunks > 0) {
    chunks_ = asked.chunks;
  } else if (const auto named = schedule::find_named(asked.schedule)) {
    chunks_ = named.value().chunks == 0 ? schedule::usual_chunks : named.value().chunks;
  }
}

bool DegreeRules::tp_is_legal(int64_t tp) const {
  // Every rank has rows of the vocabulary, which is padded where it does not divide.
  const bool has_rows = tp == 1 || vocab_ == 0 || (tp - 1) * ((vocab_ + tp - 1) / tp) < vocab_;
  return has_rows && std::all_of(tp_cuts_.begin(), tp_cuts_.end(),
                                 [tp](const auto& cut) { return cut.second % tp == 0; });
}

bool DegreeRules::pp_is_legal(int64_t pp) const {
  if (own_ranks_ != 0) return pp == own_ranks_;
  return pp == 1 || layers_ == 0 || pp <= layers_ / chunks_;
}

bool solve_degrees(const DegreeRules& rules, const JobLayout& asked, const LayoutNames& names,
                   LayoutCheck& check) {
  int64_t fixed = 1;
  int64_t* open = nullptr;
  std::vector<LayoutKey> keys;
  std::vector<std::string> factors;
  for (const Degree& degree : degrees) {
    int64_t& ranks = check.layout.*degree.field;
    if (ranks == -1) {
      open = &ranks;
      continue;
    }
    fixed *= ranks;
    keys.push_back(degree.key);
    if (ranks != 1) {
      factors.push_back(fmt::format("{} = {}", names[static_cast<size_t>(degree.key)], ranks));
    }
  }
  if (factors.empty()) {
    factors.push_back(fmt::format("{} = 1", names[static_cast<size_t>(keys.front())]));
  }
  const auto add = [&](std::string text) {
    check.problems.push_back({keys, fmt::format("{}: {}", joined(factors, "x"), text)});
  };
  const int64_t world = asked.world == 0 ? fixed : asked.world;
  if (open != nullptr) {
    *open = std::max<int64_t>(1, world / fixed);
    if (world % fixed == 0) return true;
    add(fmt::format("{} ranks do not divide by {}; nearest: {}", world, fixed,
                    nearest_choices(rules, asked, names)));
    return false;
  }
  if (world == fixed) return true;
  const char* plural = fixed == 1 ? "" : "s";
  add(fmt::format("that is {} rank{}, and there are {}; nearest: {}, or {} rank{}", fixed, plural,
                  world, nearest_choices(rules, asked, names), fixed, plural));
  return true;
}

}  // namespace trireme::spec
