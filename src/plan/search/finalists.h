// SPDX-License-Identifier: Apache-2.0
// Finalists: the layouts of a search that are looked at as the engine would run them, and the
// choice among them. The search goes by price; here every layout is measured by the same
// confirm(), so that what is printed beside the answer can be compared with it.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <string_view>
#include <vector>

#include "plan/validate/band.h"
#include "plan/search/confirm.h"
#include "plan/search/kinds.h"
#include "plan/search/search.h"

namespace trireme::plan {

// A layout with all that is known of it.
struct Proposal {
  Layout layout;
  Price price;
  // With Trireme's stack: as the engine would run it; with another program's: as priced.
  Confirmed confirmed;
  Band band;
  bool is_engine_plan = false;  // confirmed.plan is what would run, and confirmed.bytes exact
};
// Throws ConfigError where the machine's file does not describe what the layout needs.
Proposal propose(const Job&, const spec::Machine&, const Stack&, const Layout&);

// Called before each piece of work, with what it is.
using PlanProgress = std::function<void(std::string_view)>;

// What is confirmed: the fastest, the best of each kind, and simpler ones; or, where the choice is
// only one of many to be shown, the fastest and a few simpler ones.
enum class Effort : uint8_t { full, quick };

// What was chosen.
struct Choice {
  const Proposal* best = nullptr;     // null: nothing passes
  const Proposal* fastest = nullptr;  // the same as `best`, unless a simpler one is near enough
  double tolerance = 0;               // relative time, within which the simplest is chosen
};

class Finalists {
 public:
  // All must outlive it.
  Finalists(const Job&, const spec::Machine&, const Stack&, const SearchOptions&, PlanProgress);

  // Searches the space of the options, and confirms the best of what it finds. Throws ConfigError
  // as search() does.
  SearchResult search_and_confirm(Effort);
  // Lets a layout take part, if the limits allow it and no rule forbids it. Null: it does not pass.
  const Proposal* add(const Layout&);

  // The layout to use: of all that passed, the simplest whose time is within the tolerance of the
  // fastest one's.
  Choice choice() const;
  // The fastest of each kind, fastest first.
  std::vector<const Proposal*> best_of_kinds() const;
  // The confirmed layout that needs the least memory; one that the engine runs, if
  // there is one. Null: nothing was.
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
  std::list<Proposal> known_;  // pointers to them stay valid
  std::vector<const Proposal*> passed_;
};

}  // namespace trireme::plan
