// SPDX-License-Identifier: Apache-2.0
// The answer to a user's question: the layout to use, what was looked at, and what would have to
// change where nothing fits. Every layout in it has been confirmed (finalists.h), so that their
// times can be compared.
#pragma once

#include <optional>
#include <vector>

#include "plan/search/changes.h"
#include "plan/search/finalists.h"
#include "plan/search/textbook.h"

namespace trireme::plan {

// The layout to use on fewer GPUs.
struct Smaller {
  int64_t gpus = 0;
  Proposal best;
};

struct Answer {
  // The simplest of the fastest layouts that fit. None: nothing fits.
  std::optional<Proposal> best;
  double tolerance = 0;               // relative time, within which the simplest was chosen
  std::vector<Proposal> passed_over;  // faster ones, the best of each kind; fastest first
  // Slower ones: the best of each other kind, and neighbours of the answer with another recompute
  // or micro-batch; fastest first.
  std::vector<Proposal> others;
  SearchResult search;
  Textbook textbook;
  std::optional<Proposal> textbook_proposal;
  std::vector<Smaller> smaller;  // down to where nothing fits any more

  // Where nothing fits:
  std::optional<Proposal> nearest;  // the layout that needs the least memory
  std::optional<StateNeed> state;   // where the training state alone is too large
  std::vector<Change> changes;      // what would make it fit, the least change first
};

struct AnswerOptions {
  std::vector<Layout> known;  // that also take part, if the limits allow them
  PlanProgress progress;
};
Answer answer(const Job&, const spec::Machine&, const Stack&, const SearchOptions&,
              const AnswerOptions& = {});

// Layouts of the same program, each of another tp, pp, cp and ep, that are faster than this one;
// the fastest first, at most `max_count`.
std::vector<Proposal> better_than(const Job&, const spec::Machine&, const Stack&,
                                  const SearchOptions&, const Proposal&, size_t max_count);

// 1 / (1 + batch / critical batch): progress by token against that of a small batch. 1: not known.
double batch_efficiency(const Job&);

}  // namespace trireme::plan
