// SPDX-License-Identifier: Apache-2.0
#include "plan/search/answer.h"

#include <algorithm>

#include "base/error.h"

namespace trireme::plan {
namespace {

constexpr size_t max_others = 8, max_smaller = 4;

// Returns the layout with every other recompute policy, and with twice and half the micro-batch.
std::vector<Layout> neighbours_of(const Layout& layout) {
  std::vector<Layout> all;
  for (const auto recompute :
       {spec::Recompute::none, spec::Recompute::selective, spec::Recompute::full}) {
    if (recompute == layout.recompute) continue;
    all.push_back(layout);
    all.back().recompute = recompute;
  }
  all.push_back(layout);
  all.back().micro_batch *= 2;
  if (layout.micro_batch % 2 == 0) {
    all.push_back(layout);
    all.back().micro_batch /= 2;
  }
  return all;
}

void add_choice(const Finalists& finalists, Answer& result) {
  const Choice choice = finalists.choice();
  result.best = *choice.best;
  result.tolerance = choice.tolerance;
  const LayoutKind own = kind_of(choice.best->layout);
  for (const Proposal* p : finalists.best_of_kinds()) {
    if (p->confirmed.seconds < choice.best->confirmed.seconds) {
      result.passed_over.push_back(*p);
    } else if (kind_of(p->layout) != own) {
      result.others.push_back(*p);
    }
  }
}

// Confirms the best layouts of each precision.
void add_precisions(const Job& job, const SearchOptions& options, Finalists& finalists,
                    Answer& result) {
  if (options.space.precision.size() < 2 || !result.best) return;
  for (const Precision precision : options.space.precision) {
    OfPrecision own{precision, {}, {}};
    if (const Proposal* best = finalists.best_with(precision)) {
      own.best = *best;
    } else {
      Layout l = result.best->layout;
      l.precision = precision;
      own.reason = missing_in_engine(job, l);
      if (own.reason.empty()) own.reason = "memory: no layout fits";
    }
    result.precisions.push_back(std::move(own));
  }
}

void add_neighbours(Finalists& finalists, Answer& result) {
  const auto is_faster = [](const Proposal& a, const Proposal& b) {
    return a.confirmed.seconds < b.confirmed.seconds;
  };
  for (const Layout& layout : neighbours_of(result.best->layout)) {
    const Proposal* p = finalists.add(layout);
    const auto is_same = [&](const Proposal& other) { return other.layout == layout; };
    if (p == nullptr || result.others.size() == max_others ||
        p->confirmed.seconds < result.best->confirmed.seconds ||
        std::ranges::any_of(result.others, is_same)) {
      continue;
    }
    result.others.push_back(*p);
  }
  std::ranges::stable_sort(result.others, is_faster);
}

void add_smaller(const Job& job, const spec::Machine& machine, const Stack& stack,
                 const SearchOptions& options, const PlanProgress& progress, Answer& result) {
  SearchOptions fewer = options;
  fewer.visit = {};
  for (int64_t n = options.gpus / 2; n >= 1 && result.smaller.size() < max_smaller; n /= 2) {
    fewer.gpus = n;
    Finalists finalists(job, machine, stack, fewer, progress);
    try {
      (void)finalists.search_and_confirm(Effort::quick);
    } catch (const base::ConfigError&) {
      return;  // no layout has this number of GPUs
    }
    const Choice choice = finalists.choice();
    if (choice.best == nullptr) return;
    result.smaller.push_back({n, *choice.best});
  }
}

}  // namespace

Answer answer(const Job& job, const spec::Machine& machine, const Stack& stack,
              const SearchOptions& options, const AnswerOptions& more) {
  Answer result;
  Finalists finalists(job, machine, stack, options, more.progress);
  result.search = finalists.search_and_confirm(Effort::full);
  for (const Layout& layout : more.known) (void)finalists.add(layout);
  for (const Candidate& best : result.search.precisions) (void)finalists.add(best.layout);
  if (finalists.choice().best == nullptr) {
    if (const Proposal* nearest = finalists.nearest()) result.nearest = *nearest;
    const StateNeed need = state_need(job, machine, stack, options);
    if (options.gpus < need.min_gpus) result.state = need;
    if (more.is_brief) return result;
    SearchOptions other = options;
    other.visit = {};
    result.changes = changes_that_fit(job, machine, stack, other, more.progress);
    return result;
  }
  Pricer pricer(job, machine, stack);
  result.textbook = textbook(job, machine, options.gpus, options.memory_fraction, pricer,
                             finalists.choice().best->layout.precision);
  if (result.textbook.layout) {
    Layout& l = *result.textbook.layout;
    if (spec::is_fp8(l.precision)) {
      l.bf16_first = options.space.bf16_first;
      l.bf16_last = options.space.bf16_last;
      l.bf16_blocks = options.space.bf16_blocks;
    }
    const Proposal* p = finalists.add(*result.textbook.layout);
    result.textbook_proposal =
        p != nullptr ? *p : propose(job, machine, stack, *result.textbook.layout);
  }
  // Layouts that are shown beside the answer are candidates too.
  for (const Layout& layout : neighbours_of(finalists.choice().best->layout)) {
    (void)finalists.add(layout);
  }
  add_choice(finalists, result);
  if (more.is_brief) return result;
  add_neighbours(finalists, result);
  add_precisions(job, options, finalists, result);
  add_smaller(job, machine, stack, options, more.progress, result);
  return result;
}

std::vector<Proposal> better_than(const Job& job, const spec::Machine& machine, const Stack& stack,
                                  const SearchOptions& options, const Proposal& asked,
                                  size_t max_count) {
  SearchOptions own = options;
  own.space.unaudited = true;  // the limits of Trireme's engine do not apply
  own.space.pipes = {Kind::one_f_one_b, Kind::interleaved};
  if (stack.even_cut) {
    // Megatron has ZeRO-1, and stages of equal numbers of blocks.
    own.space.zero = {0, 1};
    for (int chunks = 1; chunks <= job.model.blocks(); ++chunks) {
      if (job.model.blocks() % chunks == 0) own.space.chunks.push_back(chunks);
    }
    for (int pp = 1; pp <= job.model.blocks(); ++pp) {
      if (job.model.blocks() % pp == 0) own.space.pp.push_back(pp);
    }
  }
  std::vector<Proposal> faster;
  for (const Candidate& c : search(job, machine, stack, own).families) {
    if (faster.size() == max_count) break;
    if (stack.even_cut && job.model.blocks() % (c.layout.pp * c.layout.chunks) != 0) continue;
    Proposal next = propose(job, machine, stack, c.layout);
    if (next.confirmed.seconds < asked.confirmed.seconds) faster.push_back(std::move(next));
  }
  std::ranges::stable_sort(faster, [](const Proposal& a, const Proposal& b) {
    return a.confirmed.seconds < b.confirmed.seconds;
  });
  return faster;
}

double batch_efficiency(const Job& job) {
  if (job.critical_batch_tokens <= 0) return 1;
  return 1 / (1 + static_cast<double>(job.tokens()) / job.critical_batch_tokens);
}

}  // namespace trireme::plan
