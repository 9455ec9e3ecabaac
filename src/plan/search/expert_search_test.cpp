// SPDX-License-Identifier: Apache-2.0
// Searches of layouts for models with experts.
#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "plan/samples_test.h"
#include "plan/search/search.h"
#include "plan/search/textbook.h"
#include "spec/layout/layout_text.h"

namespace trireme::plan {
namespace {

SearchOptions searched_on(int64_t gpus) {
  SearchOptions options;
  options.gpus = gpus;
  return options;
}

std::set<int> eps_tried(const Job& job, SearchOptions options) {
  std::set<int> all;
  options.visit = [&](const Layout& l, const Price&) { all.insert(l.ep); };
  (void)search(job, shipped_machine("h100"), trireme_stack(), options);
  return all;
}

TEST(ExpertSearch, every_degree_that_fits_experts_and_ranks_is_tried) {
  EXPECT_EQ(eps_tried(job_of("olmoe-1b-7b", 32, 4096), searched_on(16)),
            (std::set<int>{1, 2, 4, 8, 16}));
  EXPECT_EQ(eps_tried(job_of("mixtral-8x7b", 32, 1024), searched_on(16)),
            (std::set<int>{1, 2, 4, 8}));
  EXPECT_EQ(eps_tried(job_of("llama-1b", 32, 1024), searched_on(16)), std::set<int>{1});
  SearchOptions some = searched_on(16);
  some.space.ep = {4};
  EXPECT_EQ(eps_tried(job_of("olmoe-1b-7b", 32, 4096), some), std::set<int>{4});
}

TEST(ExpertSearch, ranks_share_single_experts_only_if_asked_to) {
  const Job job = job_of("mixtral-8x7b", 32, 1024);
  std::set<int> etps;
  SearchOptions options = searched_on(8);
  options.visit = [&](const Layout& l, const Price&) { etps.insert(l.etp); };
  (void)search(job, shipped_machine("h100"), trireme_stack(), options);
  EXPECT_EQ(etps, std::set<int>{1});
  etps.clear();
  options.space.etp = {1, 2};
  (void)search(job, shipped_machine("h100"), trireme_stack(), options);
  EXPECT_EQ(etps, (std::set<int>{1, 2}));
}

TEST(ExpertSearch, experts_are_spread_if_their_state_is_large) {
  const SearchResult found = search(job_of("mixtral-8x7b", 128, 4096), shipped_machine("h100"),
                                    trireme_stack(), searched_on(32));
  ASSERT_TRUE(found.best);
  EXPECT_GT(found.best->layout.ep, 1) << to_text(found.best->layout);
}

TEST(ExpertSearch, a_smaller_row_budget_needs_less_memory_and_time) {
  const Job job = job_of("qwen3-30b-a3b", 64, 4096);
  const auto smallest = [&](double budget) {
    SearchOptions options = searched_on(16);
    options.space.ep = {8};
    options.space.row_budget = budget;
    const SearchResult found = search(job, shipped_machine("h200"), trireme_stack(), options);
    return found.smallest.value().price;
  };
  EXPECT_LT(smallest(1.1).bytes, smallest(2).bytes);
  EXPECT_LT(smallest(1.1).at(Term::expert), smallest(2).at(Term::expert));
}

TEST(ExpertSearch, a_rule_that_every_degree_breaks_is_listed_once) {
  SearchOptions options = searched_on(16);
  options.space.tp = {16};
  const SearchResult found =
      search(job_of("mixtral-8x7b", 16, 1024), shipped_machine("h100"), trireme_stack(), options);
  ASSERT_EQ(found.rejected.size(), 1U);
  EXPECT_NE(found.rejected.front().reason.find("[tp.kv_heads]"), std::string::npos);
}

TEST(ExpertSearch, an_impossible_degree_is_refused_with_those_that_are_possible) {
  SearchOptions options = searched_on(8);
  options.space.ep = {3};
  try {
    (void)search(job_of("olmoe-1b-7b", 8, 1024), shipped_machine("h100"), trireme_stack(), options);
    ADD_FAILURE() << "not refused";
  } catch (const base::ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("64 experts: 1, 2, 4, 8 are allowed, found 3"),
              std::string::npos)
        << error.what();
  }
}

TEST(ExpertSearch, the_textbook_spreads_experts_over_a_domain) {
  const Job job = job_of("olmoe-1b-7b", 64, 4096);
  const spec::Machine machine = shipped_machine("h100");
  Pricer pricer(job, machine, trireme_stack());
  const Textbook found = textbook(job, machine, 16, 0.95, pricer, Precision::bf16);
  ASSERT_TRUE(found.layout);
  EXPECT_EQ(found.layout->ep, 8);
  EXPECT_EQ(found.steps.front().what, "ep 8");
}

}  // namespace
}  // namespace trireme::plan
