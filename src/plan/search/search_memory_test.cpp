// SPDX-License-Identifier: Apache-2.0
// The search rejects exactly the layouts that do not fit in memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>

#include "plan/samples_test.h"
#include "plan/search/confirm.h"
#include "plan/search/search.h"
#include "spec/layout/layout_text.h"

namespace trireme::plan {
namespace {

struct FittedPlan {
  Layout layout;
  double seconds = 0, bytes = 0;  // as the engine allocates them
};

// Layouts with and without gaps between the stages of a rank.
SearchOptions some_layouts() {
  SearchOptions options;
  options.gpus = 8;
  options.space.zero = {0, 1};
  options.space.micro_batch = {1, 2};
  options.space.pipes = {Kind::one_f_one_b, Kind::interleaved, Kind::zb_v};
  options.space.recompute = {spec::Recompute::none, spec::Recompute::full};
  options.fastest = 100000;
  options.memory_fraction = 1;
  return options;
}

TEST(SearchMemory, every_layout_that_fits_is_kept) {
  const Job job = job_of("gpt2-124m", 32, 1024);
  spec::Machine machine = shipped_machine("h100");
  std::vector<FittedPlan> all;
  SearchOptions options = some_layouts();
  options.visit = [&](const Layout& l, const Price& price) {
    all.push_back({l, price.seconds, engine_bytes(job, machine, trireme_stack(), l)});
    EXPECT_LE(price.bytes, all.back().bytes) << to_text(l);
  };
  (void)search(job, machine, trireme_stack(), options);
  options.visit = {};
  ASSERT_GT(all.size(), 200U);
  std::ranges::sort(all, {}, &FittedPlan::bytes);
  for (const size_t place : {all.size() / 10, all.size() / 3, all.size() * 3 / 4}) {
    const double room = machine.processor.memory_bytes = all[place].bytes;
    const SearchResult found = search(job, machine, trireme_stack(), options);
    std::set<std::string> kept;
    for (const Candidate& candidate : found.fastest) kept.insert(to_text(candidate.layout));
    std::map<std::pair<int, int>, bool> fits;  // by tp and pp
    double fastest = INFINITY;
    for (const FittedPlan& one : all) {
      bool& family_fits = fits[{one.layout.tp, one.layout.pp}];
      family_fits = family_fits || one.bytes <= room;
      if (one.bytes > room) continue;
      EXPECT_TRUE(kept.contains(to_text(one.layout))) << to_text(one.layout);
      fastest = std::min(fastest, one.seconds);
    }
    ASSERT_TRUE(found.best);
    EXPECT_EQ(found.best->price.seconds, fastest);
    for (const Rejected& family : found.rejected) {
      if (family.missing_bytes == 0) continue;
      EXPECT_FALSE((fits[{family.tp, family.pp}])) << family.tp << ", " << family.pp;
      EXPECT_EQ(family.missing_bytes + room,
                engine_bytes(job, machine, trireme_stack(), family.nearest.value()));
    }
  }
}

// Frames of stages of different sizes leave gaps in a pool, which count as used memory.
TEST(SearchMemory, the_lower_bound_includes_gaps) {
  constexpr uint64_t seed = 9;
  SCOPED_TRACE(seed);
  Dice dice(seed);
  const spec::Machine machine = shipped_machine("h100");
  int with_gaps = 0;
  for (const char* name : {"gpt2-1.5b", "llama-8b", "llama3-70b"}) {
    const Job job = job_of(name, 64, 1024);
    for (int i = 0; i < 60; ++i) {
      Layout l = runnable_layout(dice, job);
      if (l.chunks == 1) continue;
      Pricer pricer(job, machine, trireme_stack());
      const double bytes = pricer.price(l).bytes, bound = pricer.bytes_at_least(l);
      const double exact = engine_bytes(job, machine, trireme_stack(), l);
      EXPECT_LE(bytes, bound) << name << ": " << to_text(l);
      EXPECT_LE(bound, exact) << name << ": " << to_text(l);
      EXPECT_GT(bound, 0.995 * exact) << name << ": " << to_text(l);
      with_gaps += bytes < 0.99 * exact ? 1 : 0;
    }
  }
  EXPECT_GT(with_gaps, 0);
}

}  // namespace
}  // namespace trireme::plan
