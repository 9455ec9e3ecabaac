// SPDX-License-Identifier: Apache-2.0
#include "plan/memory/rank_memory.h"

#include <gtest/gtest.h>

#include "plan/samples_test.h"

namespace trireme::plan {
namespace {

TEST(RankMemory, each_zero_stage_shards_its_state_evenly) {
  const Job job = job_of("llama-8b", 64, 4096);
  const spec::Machine machine = shipped_machine("h100");
  Pricer pricer(job, machine, trireme_stack());
  std::vector<Price> prices;
  for (int zero = 0; zero <= 3; ++zero) {
    Layout l;
    spec::set_data_ranks(l, 8, zero);
    prices.push_back(pricer.price(l));
  }
  const auto eighth = [&](Item item, size_t zero) {
    // Except for padding, the rotary table and the state of the step.
    EXPECT_NEAR(prices[zero].at(item), prices[0].at(item) / 8, 4e6);
  };
  eighth(Item::optimizer, 1);
  eighth(Item::optimizer, 3);
  eighth(Item::gradients, 2);
  eighth(Item::weights, 3);
  EXPECT_EQ(prices[1].at(Item::gradients), prices[0].at(Item::gradients));
  EXPECT_EQ(prices[2].at(Item::weights), prices[0].at(Item::weights));
  EXPECT_EQ(prices[3].at(Item::activations), prices[0].at(Item::activations));
}

TEST(RankMemory, recompute_keeps_less) {
  const Job job = job_of("llama-8b", 64, 4096);
  const spec::Machine machine = shipped_machine("h100");
  Pricer pricer(job, machine, trireme_stack());
  const auto kept = [&](spec::Recompute recompute) {
    Layout l;
    l.pp = 4;
    l.recompute = recompute;
    return pricer.price(l).at(Item::activations);
  };
  EXPECT_LT(kept(spec::Recompute::selective), kept(spec::Recompute::none));
  EXPECT_LT(kept(spec::Recompute::full), 0.3 * kept(spec::Recompute::none));
}

}  // namespace
}  // namespace trireme::plan
