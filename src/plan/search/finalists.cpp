// SPDX-License-Identifier: Apache-2.0
#include "plan/search/finalists.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"
#include "plan/search/feasible.h"

namespace trireme::plan {
namespace {

// A simpler layout may cost this fraction of a step's time, but at most half of the prediction's
// band.
constexpr double max_tolerance = 0.02;
// The fraction by which a simulated time may be below its price; usually it is above.
constexpr double price_slack = 0.005;

bool is_faster(const Proposal* a, const Proposal* b) {
  if (a->confirmed.seconds != b->confirmed.seconds) {
    return a->confirmed.seconds < b->confirmed.seconds;
  }
  return a->confirmed.bytes < b->confirmed.bytes;
}

template <typename T>
bool is_in(const std::vector<T>& list, T value) {
  return list.empty() || std::ranges::find(list, value) != list.end();
}

}  // namespace

Proposal propose(const Job& asked, const spec::Machine& machine, const Stack& stack,
                 const Layout& open) {
  // The layout's determinism selects the back end.
  Job job = asked;
  if (job.backend.name == "cuda") job.backend = spec::cuda_backend(open.deterministic);
  const Layout layout = filled(job, open);
  if (const std::string gap = missing_in_machine(machine, layout.ranks(), layout.precision);
      !gap.empty()) {
    throw base::ConfigError(gap);
  }
  Proposal p{layout, Pricer(job, machine, stack).price(layout),
             confirm(job, machine, stack, layout), band_of(job, machine, stack, layout), false};
  p.is_engine_plan = p.confirmed.has_plan;
  if (!stack.is_engine()) {
    // The engine's plan does not describe another program's cut, buffers and memory.
    p.confirmed.seconds = p.price.seconds;
    p.confirmed.bubble = p.price.at(Term::bubble);
    p.confirmed.bytes = p.price.bytes;
  }
  return p;
}

Finalists::Finalists(const Job& job, const spec::Machine& machine, const Stack& stack,
                     const SearchOptions& options, PlanProgress progress)
    : job_(job),
      machine_(machine),
      stack_(stack),
      options_(options),
      progress_(std::move(progress)),
      room_(machine.processor.memory_bytes * options.memory_fraction) {}

SearchResult Finalists::search_and_confirm(Effort effort) {
  if (progress_) progress_("searching");
  Kinds kinds;
  SearchOptions options = options_;
  options.visit = [&](const Layout& layout, const Price& price) {
    if (price.bytes <= room_) kinds.add(layout, price);
    if (options_.visit) options_.visit(layout, price);
  };
  SearchResult found = search(job_, machine_, stack_, options);
  const bool is_full = effort == Effort::full;
  add_fastest(found, is_full ? 6 : 1);
  if (is_full) add_kinds(kinds);
  add_simpler(kinds, is_full ? 12 : 3);
  return found;
}

void Finalists::add_fastest(const SearchResult& found, size_t count) {
  for (const Candidate& c : found.fastest) {
    if (passed_.size() == count) return;
    (void)add(c.layout);
  }
  for (const Candidate& c : found.families) {
    if (!passed_.empty()) return;
    (void)add(c.layout);
  }
  // The memory of a price is an estimate, so the smallest layout may still pass.
  if (passed_.empty() && found.smallest) (void)add(found.smallest->layout);
}

void Finalists::add_kinds(const Kinds& kinds) {
  for (const auto& [kind, candidates] : kinds.of_kind()) {
    for (const Candidate& c : candidates) {
      if (add(c.layout) != nullptr) break;
    }
  }
}

// Adds layouts that are simpler than the choice, the simplest first, until one is fast enough.
void Finalists::add_simpler(const Kinds& kinds, size_t max_tries) {
  size_t tries = 0;
  for (const auto& [simplicity, candidates] : kinds.by_simplicity()) {
    const Choice now = choice();
    if (now.best == nullptr || simplicity >= simplicity_of(now.best->layout)) return;
    const double limit = now.fastest->confirmed.seconds * (1 + now.tolerance);
    for (const Candidate& c : candidates) {
      if (c.price.seconds > limit * (1 + price_slack)) break;
      if (tries++ == max_tries) return;
      if (add(c.layout) != nullptr) break;
    }
  }
}

const Proposal* Finalists::add(const Layout& layout) {
  for (const Proposal& known : known_) {
    if (known.layout == layout) return passes(known) ? &known : nullptr;
  }
  if (!is_allowed(layout) || !broken_rule(job_, layout).empty()) return nullptr;
  if (progress_) progress_("confirming layouts");
  known_.push_back(propose(job_, machine_, stack_, layout));
  if (!passes(known_.back())) return nullptr;
  passed_.push_back(&known_.back());
  return passed_.back();
}

bool Finalists::passes(const Proposal& p) const {
  return (options_.space.unaudited || p.confirmed.problem.empty()) && p.confirmed.bytes <= room_;
}

bool Finalists::is_allowed(const Layout& l) const {
  const Space& space = options_.space;
  if (l.ranks() != options_.gpus) return false;
  if (l.pp > 1 && !(is_in(space.pipes, l.schedule) && is_in(space.chunks, l.chunks))) return false;
  if (l.pp > 1 && l.data_ranks() > 1 && !is_in(space.placement, l.placement)) return false;
  if (l.data_ranks() * l.cp > 1 && !is_in(space.zero, l.zero_stage)) return false;
  if (l.cp > 1 && !is_in(space.context_kinds, l.context_kind)) return false;
  if (l.tp > 1 && !is_in(space.sequence_parallel, l.sequence_parallel ? 1 : 0)) return false;
  return is_in(space.tp, l.tp) && is_in(space.cp, l.cp) && is_in(space.pp, l.pp) &&
         is_in(space.ep, l.ep) && is_in(space.etp, l.etp) &&
         is_in(space.micro_batch, l.micro_batch) && is_in(space.recompute, l.recompute) &&
         is_in(space.precision, l.precision);
}

Choice Finalists::choice() const {
  Choice choice;
  if (passed_.empty()) return choice;
  choice.fastest = *std::ranges::min_element(passed_, is_faster);
  choice.tolerance = std::min(max_tolerance, choice.fastest->band.time / 2);
  const double limit = choice.fastest->confirmed.seconds * (1 + choice.tolerance);
  choice.best = choice.fastest;
  for (const Proposal* p : passed_) {
    if (p->confirmed.seconds > limit) continue;
    const auto own = simplicity_of(p->layout), best = simplicity_of(choice.best->layout);
    if (own < best || (own == best && is_faster(p, choice.best))) choice.best = p;
  }
  return choice;
}

std::vector<const Proposal*> Finalists::best_of_kinds() const {
  std::map<LayoutKind, const Proposal*> best;
  for (const Proposal* p : passed_) {
    const Proposal*& kept = best[kind_of(p->layout)];
    if (kept == nullptr || is_faster(p, kept)) kept = p;
  }
  std::vector<const Proposal*> list;
  for (const auto& [kind, p] : best) list.push_back(p);
  std::ranges::sort(list, is_faster);
  return list;
}

const Proposal* Finalists::best_with(Precision precision) const {
  const Proposal* best = nullptr;
  for (const Proposal* p : passed_) {
    if (p->layout.precision != precision) continue;
    if (best == nullptr || is_faster(p, best)) best = p;
  }
  return best;
}

const Proposal* Finalists::nearest() const {
  const Proposal* best = nullptr;
  const auto is_nearer = [](const Proposal& a, const Proposal& b) {
    const bool a_runs = a.confirmed.problem.empty(), b_runs = b.confirmed.problem.empty();
    return a_runs != b_runs ? a_runs : a.confirmed.bytes < b.confirmed.bytes;
  };
  for (const Proposal& p : known_) {
    if (best == nullptr || is_nearer(p, *best)) best = &p;
  }
  return best;
}

}  // namespace trireme::plan
