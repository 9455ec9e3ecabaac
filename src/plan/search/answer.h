// SPDX-License-Identifier: Apache-2.0
// The answer to a user's question: the layout to use, its alternatives, and changes that would help
// if nothing fits. Every layout in it has been confirmed (finalists.h), so that times can be
// compared.
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

// The best layout with one precision.
struct OfPrecision {
  Precision precision = Precision::bf16;
  std::optional<Proposal> best;  // none: there is no layout
  std::string reason;            // the violated rule, or the missing memory; empty if there is one
};

struct Answer {
  // The simplest of the fastest layouts that fit; none if nothing fits.
  std::optional<Proposal> best;
  double tolerance = 0;  // relative time within which the simplest was chosen
  // Layouts that are faster but less simple: the best of each kind, fastest first.
  std::vector<Proposal> passed_over;
  // Slower layouts, fastest first: the best of each other kind, and neighbours of the answer with
  // another recompute or micro-batch.
  std::vector<Proposal> others;
  // If several precisions were allowed: what the answer would be with each.
  std::vector<OfPrecision> precisions;
  SearchResult search;
  Textbook textbook;
  std::optional<Proposal> textbook_proposal;
  std::vector<Smaller> smaller;  // on ever fewer GPUs, as long as something fits

  // Set if nothing fits:
  std::optional<Proposal> nearest;  // the layout that needs the least memory
  std::optional<StateNeed> state;   // set if the training state alone is too large
  std::vector<Change> changes;      // changes after which a layout fits, the smallest first
};

struct AnswerOptions {
  std::vector<Layout> known;  // further candidates, if the limits allow them
  PlanProgress progress;
  // Only best, passed_over and textbook, or nearest and state: for questions that compare many
  // searches. `best` is the same with and without it.
  bool is_brief = false;
};
Answer answer(const Job&, const spec::Machine&, const Stack&, const SearchOptions&,
              const AnswerOptions& = {});

// Returns layouts of the same program that are faster than this one, with distinct (tp, pp, cp,
// ep), the fastest first, at most `max_count`.
std::vector<Proposal> better_than(const Job&, const spec::Machine&, const Stack&,
                                  const SearchOptions&, const Proposal&, size_t max_count);

// Returns the progress per token relative to a small batch, 1 / (1 + batch / critical batch), or 1
// if the critical batch is unknown.
double batch_efficiency(const Job&);

}  // namespace trireme::plan
