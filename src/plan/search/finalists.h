// SPDX-License-Identifier: Apache-2.0
// Finalists confirms the best layouts of a search as the engine would run them, and chooses among
// them. The search ranks by price; here every layout goes through the same confirm(), so that
// layouts printed beside the answer can be compared with it.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <string_view>
#include <vector>

#include "plan/search/confirm.h"
#include "plan/search/kinds.h"
#include "plan/search/search.h"
#include "plan/validate/band.h"

namespace trireme::plan {

// A layout with its price and its confirmation.
struct Proposal {
  Layout layout;
  Price price;
  // As the engine would run it; with another program's stack, the price.
  Confirmed confirmed;
  Band band;
  bool is_engine_plan = false;  // the engine would run confirmed.plan, and confirmed.bytes is exact
};
// Throws ConfigError if the machine's file does not describe what the layout needs.
Proposal propose(const Job&, const spec::Machine&, const Stack&, const Layout&);

// Called before each piece of work with a description of it.
using PlanProgress = std::function<void(std::string_view)>;

// full: confirm the fastest layouts, the best of each kind, and simpler ones. quick: the fastest
// and a few simpler ones, if the choice is only one of many to be shown.
enum class Effort : uint8_t { full, quick };

struct Choice {
  const Proposal* best = nullptr;     // null: nothing passes
  const Proposal* fastest = nullptr;  // equals `best` unless a simpler one is within the tolerance
  double tolerance = 0;               // relative time within which the simplest is chosen
};

class Finalists {
 public:
  // The arguments must outlive the object.
  Finalists(const Job&, const spec::Machine&, const Stack&, const SearchOptions&, PlanProgress);

  // Searches the space of the options and confirms the best layouts found. Throws ConfigError as
  // search() does.
  SearchResult search_and_confirm(Effort);
  // Adds a layout if the limits allow it and no rule forbids it. Returns null if it does not pass.
  const Proposal* add(const Layout&);

  // Returns the layout to use: the simplest that passed within the tolerance of the fastest.
  Choice choice() const;
  // Returns the fastest layout of each kind, fastest first.
  std::vector<const Proposal*> best_of_kinds() const;
  // Returns the fastest layout with this precision that passed, or null.
  const Proposal* best_with(Precision) const;
  // Returns the confirmed layout that needs the least memory, preferring those that the engine can
  // run; null if none was confirmed.
  const Proposal* nearest() const;

 private:
  bool passes(const Proposal&) const;
  bool is_allowed(const Layout&) const;
  void add_fastest(const SearchResult&, size_t count);
  void add_kinds(const Kinds&);
  void add_simpler(const Kinds&, size_t max_tries);

  const Job& job_;
  const spec::Machine& machine_;
  const Stack& stack_;
  const SearchOptions& options_;
  PlanProgress progress_;
  double room_;
  std::list<Proposal> known_;  // a list, so that pointers stay valid
  std::vector<const Proposal*> passed_;
};

}  // namespace trireme::plan
