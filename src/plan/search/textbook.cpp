// SPDX-License-Identifier: Apache-2.0
#include "plan/search/textbook.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace trireme::plan {
namespace {

// Tried in this order for given tp and pp, the cheapest first.
constexpr std::array<spec::Recompute, 3> policies = {
    spec::Recompute::none, spec::Recompute::selective, spec::Recompute::full};

}  // namespace

Textbook textbook(const Job& job, const spec::Machine& machine, int64_t gpus,
                  double memory_fraction, Pricer& pricer, Precision precision) {
  Textbook result;
  const double room = machine.processor.memory_bytes * memory_fraction;
  const auto fits = [&](const Layout& layout) {
    return broken_rule(job, layout).empty() && pricer.price(layout).bytes <= room;
  };
  const auto try_all = [&](int tp, int pp) -> std::optional<Layout> {
    for (const spec::Recompute recompute : policies) {
      Layout l;
      l.tp = tp;
      l.pp = pp;
      l.sequence_parallel = tp > 1;
      const auto ranks = static_cast<int>(gpus / tp / pp);
      spec::set_data_ranks(l, ranks, ranks > 1 ? 1 : 0);
      l.recompute = recompute;
      l.precision = precision;
      if (fits(l)) return l;
    }
    return {};
  };
  const int max_tp =
      static_cast<int>(std::min<int64_t>(gpus, std::min<int64_t>(8, machine.domain.size)));
  std::optional<Layout> found;
  for (int tp = 1; tp <= max_tp && !found; tp *= 2) {
    if (gpus % tp == 0) found = try_all(tp, 1);
  }
  for (int pp = 2; int64_t{pp} * max_tp <= gpus && pp <= job.model.blocks() && !found; ++pp) {
    if (gpus % (int64_t{pp} * max_tp) == 0) found = try_all(max_tp, pp);
  }
  if (!found) {
    result.steps.push_back(
        {"nothing fits", fmt::format("tried: tp up to {} inside the domain, stages across "
                                     "domains, ZeRO-1 over the remaining ranks, full recompute",
                                     max_tp)});
    return result;
  }
  Layout l = *found;
  // Larger micro-batches while the bubble stays small.
  for (int64_t micro = 2; micro <= 16; micro *= 2) {
    Layout larger = l;
    larger.micro_batch = micro;
    const bool is_filled = l.pp == 1 || (broken_rule(job, larger).empty() &&
                                         micro_batches(job, larger) >= int64_t{4} * l.pp);
    if (is_filled && fits(larger)) l = larger;
  }
  result.layout = l;
  result.steps.push_back({fmt::format("tp {}", l.tp),
                          l.tp == 1
                              ? "the state fits without tensor parallelism"
                              : fmt::format("inside a domain of {}, as large as memory requires",
                                            machine.domain.size)});
  result.steps.push_back(
      {fmt::format("pp {}", l.pp), l.pp == 1 ? "no stages are needed" : "across domains, 1F1B"});
  result.steps.push_back({fmt::format("ZeRO-{} over dp {}", l.zero_stage, l.data_ranks()),
                          "shards the optimizer state"});
  result.steps.push_back(
      {fmt::format("micro-batch {}, {} of them", l.micro_batch, micro_batches(job, l)),
       l.recompute == spec::Recompute::none
           ? "no recompute"
           : fmt::format("{} recompute", spec::name_of(l.recompute))});
  return result;
}

std::vector<std::string> departures(const Layout& recipe, const Price& recipe_price,
                                    const Layout& answer, const Price& answer_price) {
  std::vector<std::string> all;
  const auto differ = [&](const char* name, int64_t theirs, int64_t ours) {
    if (theirs != ours) all.push_back(fmt::format("{} {} instead of {}", name, ours, theirs));
  };
  differ("tp", recipe.tp, answer.tp);
  differ("cp", recipe.cp, answer.cp);
  differ("pp", recipe.pp, answer.pp);
  differ("ZeRO stage", recipe.zero_stage, answer.zero_stage);
  differ("micro-batch", recipe.micro_batch, answer.micro_batch);
  if (answer.pp > 1 && recipe.pp > 1 && answer.schedule != recipe.schedule) {
    all.push_back(
        fmt::format("{} instead of {}", name_of(answer.schedule), name_of(recipe.schedule)));
  }
  if (recipe.recompute != answer.recompute) {
    const bool has_none = answer.recompute == spec::Recompute::none;
    all.push_back(fmt::format("{} recompute instead of {}",
                              has_none ? "no" : spec::name_of(answer.recompute),
                              spec::name_of(recipe.recompute)));
  }
  // The terms with the largest differences.
  std::vector<std::pair<double, size_t>> gains;
  for (size_t i = 0; i < answer_price.seconds_of.size(); ++i) {
    gains.emplace_back(answer_price.seconds_of[i] - recipe_price.seconds_of[i], i);
  }
  std::ranges::sort(
      gains, [](const auto& a, const auto& b) { return std::abs(a.first) > std::abs(b.first); });
  for (size_t i = 0; i < std::min<size_t>(3, gains.size()); ++i) {
    if (std::abs(gains[i].first) < 1e-3 * recipe_price.seconds) break;
    all.push_back(fmt::format("{}: {:+.3f} s", meaning_of(static_cast<Term>(gains[i].second)),
                              gains[i].first));
  }
  return all;
}

}  // namespace trireme::plan
