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

class Recipe {
 public:
  Recipe(const Job& job, const spec::Machine& machine, int64_t gpus, double memory_fraction,
         Pricer& pricer, Precision precision)
      : job_(job),
        domain_(machine.domain.size),
        gpus_(gpus),
        room_(machine.processor.memory_bytes * memory_fraction),
        pricer_(pricer),
        precision_(precision) {}

  int max_tp() const {
    return static_cast<int>(std::min<int64_t>(gpus_, std::min<int64_t>(8, domain_)));
  }
  // Returns the layout with the smallest tp, or else the smallest pp, that fits.
  std::optional<Layout> smallest_degrees();
  // Returns the layout with the largest micro-batch that fits and keeps the bubble small.
  Layout with_larger_micro_batch(Layout);
  std::vector<TextbookStep> steps_of(const Layout&) const;

 private:
  bool fits(const Layout& l) {
    return broken_rule(job_, l).empty() && pricer_.price(l).bytes <= room_;
  }
  std::optional<Layout> with_least_recompute(int tp, int pp);
  // Returns the most ranks inside a domain that can share the experts.
  int largest_ep(Layout) const;

  const Job& job_;
  int64_t domain_, gpus_;
  double room_;
  Pricer& pricer_;
  Precision precision_;
};

std::optional<Layout> Recipe::with_least_recompute(int tp, int pp) {
  for (const spec::Recompute recompute : policies) {
    Layout l;
    l.tp = tp;
    l.pp = pp;
    l.sequence_parallel = tp > 1;
    const auto ranks = static_cast<int>(gpus_ / tp / pp);
    spec::set_data_ranks(l, ranks, ranks > 1 ? 1 : 0);
    l.ep = largest_ep(l);
    l.recompute = recompute;
    l.precision = precision_;
    if (fits(l)) return l;
  }
  return {};
}

int Recipe::largest_ep(Layout l) const {
  const spec::MoeSpec* moe = spec::moe_of(job_.model);
  if (moe == nullptr) return 1;
  for (int ep = static_cast<int>(std::min<int64_t>(domain_, moe->router.experts)); ep > 1; --ep) {
    l.ep = ep;
    if (moe->router.experts % ep == 0 && spec::expert_sizes(l)) return ep;
  }
  return 1;
}

std::optional<Layout> Recipe::smallest_degrees() {
  std::optional<Layout> found;
  for (int tp = 1; tp <= max_tp() && !found; tp *= 2) {
    if (gpus_ % tp == 0) found = with_least_recompute(tp, 1);
  }
  for (int pp = 2; int64_t{pp} * max_tp() <= gpus_ && pp <= job_.model.blocks() && !found; ++pp) {
    if (gpus_ % (int64_t{pp} * max_tp()) == 0) found = with_least_recompute(max_tp(), pp);
  }
  return found;
}

Layout Recipe::with_larger_micro_batch(Layout l) {
  for (int64_t micro = 2; micro <= 16; micro *= 2) {
    Layout larger = l;
    larger.micro_batch = micro;
    const bool is_filled = l.pp == 1 || (broken_rule(job_, larger).empty() &&
                                         micro_batches(job_, larger) >= int64_t{4} * l.pp);
    if (is_filled && fits(larger)) l = larger;
  }
  return l;
}

std::vector<TextbookStep> Recipe::steps_of(const Layout& l) const {
  std::vector<TextbookStep> steps = {
      {fmt::format("tp {}", l.tp),
       l.tp == 1 ? "the state fits without tensor parallelism"
                 : fmt::format("inside a domain of {}, as large as memory requires", domain_)},
      {fmt::format("pp {}", l.pp), l.pp == 1 ? "no stages are needed" : "across domains, 1F1B"},
      {fmt::format("ZeRO-{} over dp {}", l.zero_stage, l.data_ranks()),
       "shards the optimizer state"},
      {fmt::format("micro-batch {}, {} of them", l.micro_batch, micro_batches(job_, l)),
       l.recompute == spec::Recompute::none
           ? "no recompute"
           : fmt::format("{} recompute", spec::name_of(l.recompute))}};
  if (has_experts(job_)) {
    steps.insert(steps.begin(), {fmt::format("ep {}", l.ep),
                                 "experts over the ranks of a domain before anything "
                                 "is cut"});
  }
  return steps;
}

}  // namespace

Textbook textbook(const Job& job, const spec::Machine& machine, int64_t gpus,
                  double memory_fraction, Pricer& pricer, Precision precision) {
  Textbook result;
  Recipe recipe(job, machine, gpus, memory_fraction, pricer, precision);
  const std::optional<Layout> found = recipe.smallest_degrees();
  if (!found) {
    result.steps.push_back(
        {"nothing fits", fmt::format("tried: tp up to {} inside the domain, stages across "
                                     "domains, ZeRO-1 over the remaining ranks, full recompute",
                                     recipe.max_tp())});
    return result;
  }
  result.layout = recipe.with_larger_micro_batch(*found);
  result.steps = recipe.steps_of(*result.layout);
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
  differ("ep", recipe.ep, answer.ep);
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
