// SPDX-License-Identifier: Apache-2.0
#include "plan/search/context_choice.h"

#include <gtest/gtest.h>

#include "plan/samples_test.h"
#include "plan/search/search.h"

namespace trireme::plan {
namespace {

using spec::ContextKind;

Layout with_cp(int cp, int tp = 1) {
  Layout l;
  l.tp = tp;
  l.cp = cp;
  l.chunks = 1;
  return l;
}

TEST(ContextChoice, ulysses_inside_a_domain_and_gathers_across) {
  const Job job = job_of("llama-8b", 8, 131072);
  const spec::Machine machine = shipped_machine("h100");
  Pricer pricer(job, machine, trireme_stack());
  ContextChoice choice(job, Space{}.context_kinds, pricer);
  EXPECT_EQ(choice.chosen(with_cp(8)).front().context_kind, ContextKind::ulysses);
  EXPECT_EQ(choice.chosen(with_cp(8)).front().ulysses, 8);
  EXPECT_EQ(choice.chosen(with_cp(1)), std::vector{with_cp(1)});
  // One head of keys and values on a rank, and ranks of cp in different domains.
  const Layout far = choice.chosen(with_cp(16, 8)).front();
  for (const Layout& other : choice.legal_kinds(with_cp(16, 8))) {
    const auto seconds = [&](const Layout& l) {
      const LayerCost& c = pricer.layers(l).block;
      return c.f + c.f_cp + c.backward() + c.b_cp;
    };
    EXPECT_LE(seconds(far), 1.006 * seconds(other)) << words(other);
  }
}

TEST(ContextChoice, only_legal_kinds_are_tried) {
  const Job job = job_of("llama-8b", 8, 131072);
  const spec::Machine machine = shipped_machine("h100");
  Pricer pricer(job, machine, trireme_stack());
  ContextChoice all(job, {}, pricer);
  int rings = 0;
  for (const Layout& l : all.legal_kinds(with_cp(64))) {
    EXPECT_EQ(broken_rule(job, l), "") << words(l);
    EXPECT_NE(l.context_kind, ContextKind::ulysses) << "32 heads";
    rings += spec::has_ring(l.context_kind) ? 1 : 0;
  }
  EXPECT_GT(rings, 1);
  ContextChoice ring(job, {ContextKind::ring}, pricer);
  ASSERT_EQ(ring.chosen(with_cp(8)).size(), 1U);
  EXPECT_EQ(ring.chosen(with_cp(8)).front().context_kind, ContextKind::ring);
  // A limit is kept: a rule refuses the layout.
  ContextChoice none(job, {ContextKind::ulysses}, pricer);
  ASSERT_EQ(none.chosen(with_cp(64)).size(), 1U);
  EXPECT_NE(broken_rule(job, none.chosen(with_cp(64)).front()).find("[cp.heads]"),
            std::string::npos);
}

// Sums in a fixed order need 2 bytes for each pair of a call: over whole sequences more than a GPU
// has.
TEST(ContextChoice, a_kind_that_needs_less_memory_is_tried_too) {
  const Job job = job_of("llama-8b", 8, 131072);
  const spec::Machine machine = shipped_machine("h100");
  Pricer pricer(job, machine, trireme_stack());
  ContextChoice choice(job, Space{}.context_kinds, pricer);
  const std::vector<Layout> both = choice.chosen(with_cp(8));
  ASSERT_EQ(both.size(), 2U);
  EXPECT_EQ(both[0].context_kind, ContextKind::ulysses);
  EXPECT_EQ(both[1].context_kind, ContextKind::gather);
  EXPECT_GT(pricer.layers(both[0]).block.scratch, machine.processor.memory_bytes);
  SearchOptions options;
  options.gpus = 8;
  options.space.cp = {8};
  const SearchResult found = search(job, machine, trireme_stack(), options);
  ASSERT_TRUE(found.best);
  EXPECT_EQ(found.best->layout.context_kind, ContextKind::gather);
}

TEST(ContextChoice, degrees_are_tried_for_long_sequences) {
  EXPECT_EQ(default_context_degrees(job_of("llama-8b", 8, 8192), 64), std::vector<int>{1});
  EXPECT_EQ(default_context_degrees(job_of("llama-8b", 8, 16384), 64),
            (std::vector<int>{1, 2, 4, 8}));
  EXPECT_EQ(default_context_degrees(job_of("llama-8b", 8, 131072), 8),
            (std::vector<int>{1, 2, 4, 8}));
}

// One sequence of 131,072 tokens per step on 8 GPUs has no other layout without tp or stages.
TEST(ContextChoice, a_search_finds_context_parallelism) {
  const Job job = job_of("llama-8b", 1, 131072);
  const spec::Machine machine = shipped_machine("h200");
  SearchOptions options;
  options.gpus = 8;
  options.space.cp = default_context_degrees(job, options.gpus);
  const SearchResult found = search(job, machine, trireme_stack(), options);
  ASSERT_TRUE(found.best);
  EXPECT_GT(found.best->layout.cp, 1) << words(found.best->layout);
  EXPECT_EQ(missing_in_engine(job, found.best->layout), "");
}

}  // namespace
}  // namespace trireme::plan
