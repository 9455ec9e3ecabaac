// SPDX-License-Identifier: Apache-2.0
// The answer to a user's question: the layout to use, what was looked at, and what would have to
// change where nothing fits.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plan/band.h"
#include "plan/confirm.h"
#include "plan/search.h"
#include "plan/textbook.h"

namespace trireme::plan {

// A layout with all that is known of it.
struct Proposal {
  Layout layout;
  Price price;
  Confirmed confirmed;
  Band band;
};
// Throws ConfigError where the machine's file does not describe what the layout needs.
Proposal propose(const Job&, const spec::Machine&, const Stack&, const Layout&);

// The fastest on fewer processors.
struct Smaller {
  int64_t processors = 0;
  Candidate best;
};

struct Answer {
  // Of the fastest layouts the one that, looked at as the engine would run it, still fits and is
  // the fastest; where the stack is another program's, the fastest by price. None: nothing fits.
  std::optional<Proposal> best;
  SearchResult search;
  Textbook textbook;
  std::optional<Price> textbook_price;
  std::vector<Smaller> smaller;      // down to where nothing fits any more
  std::vector<std::string> changes;  // where nothing fits: what would make it, nearest first
};
Answer answer(const Job&, const spec::Machine&, const Stack&, const SearchOptions&);

// Layouts of the same program, each of another tp, pp, cp and ep, that are faster than this one;
// the fastest first, at most `most`.
std::vector<Candidate> better_than(const Job&, const spec::Machine&, const Stack&,
                                   const SearchOptions&, const Price&, size_t most);

// 1 / (1 + batch / critical batch): progress by token against that of a small batch. 1: not known.
double batch_efficiency(const Job&);

}  // namespace trireme::plan
