// SPDX-License-Identifier: Apache-2.0
#include "plan/search/textbook.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "plan/samples_test.h"
#include "spec/layout/layout_text.h"

namespace trireme::plan {
namespace {

struct Question {
  const char* model;
  const char* machine;
  int64_t gpus, batch, seq_len;
};

Textbook recipe(const Question& asked) {
  const Job job = job_of(asked.model, asked.batch, asked.seq_len);
  const spec::Machine machine = shipped_machine(asked.machine);
  Pricer pricer(job, machine, trireme_stack());
  return textbook(job, machine, asked.gpus, 0.95, pricer);
}

TEST(Textbook, small_models_use_data_parallelism_alone) {
  const Textbook found = recipe({"gpt2-124m", "h100", 8, 512, 1024});
  ASSERT_TRUE(found.layout);
  EXPECT_EQ(found.layout->tp, 1);
  EXPECT_EQ(found.layout->pp, 1);
  EXPECT_EQ(found.layout->data_ranks(), 8);
  EXPECT_EQ(found.layout->zero_stage, 1);
  EXPECT_GT(found.layout->micro_batch, 1);
}

TEST(Textbook, large_models_fill_the_domain_before_they_use_stages) {
  const Textbook found = recipe({"gpt3-175b", "a100-80gb", 1024, 1536, 2048});
  ASSERT_TRUE(found.layout);
  EXPECT_EQ(found.layout->tp, 8);
  EXPECT_GT(found.layout->pp, 1);
  EXPECT_EQ(found.layout->schedule, Kind::one_f_one_b);
  EXPECT_EQ(found.layout->ranks(), 1024);
  EXPECT_TRUE(found.layout->sequence_parallel);
  ASSERT_EQ(found.steps.size(), 4U);
  EXPECT_EQ(found.steps[0].what, "tp 8");
}

TEST(Textbook, its_layout_fits_and_breaks_no_rule) {
  for (const Question& asked :
       {Question{"llama-8b", "h100", 8, 64, 4096}, Question{"llama3-70b", "h100", 64, 256, 4096},
        Question{"llama3-70b", "a100-80gb", 256, 1024, 4096},
        Question{"gpt2-1.5b", "a100-40gb", 24, 192, 1024}}) {
    const Textbook found = recipe(asked);
    ASSERT_TRUE(found.layout) << asked.model;
    const Job job = job_of(asked.model, asked.batch, asked.seq_len);
    const spec::Machine machine = shipped_machine(asked.machine);
    EXPECT_EQ(broken_rule(job, *found.layout), "");
    EXPECT_EQ(found.layout->ranks(), asked.gpus);
    const Price price = Pricer(job, machine, trireme_stack()).price(*found.layout);
    EXPECT_LE(price.bytes, 0.95 * machine.processor.memory_bytes) << to_text(*found.layout);
  }
}

TEST(Textbook, if_nothing_fits_it_lists_what_was_tried) {
  const Textbook found = recipe({"llama3-405b", "h100", 8, 64, 4096});
  EXPECT_FALSE(found.layout);
  ASSERT_EQ(found.steps.size(), 1U);
  EXPECT_EQ(found.steps[0].what, "nothing fits");
}

TEST(Textbook, departures_list_differences_and_their_seconds) {
  const Job job = job_of("llama3-70b", 256, 4096);
  const spec::Machine machine = shipped_machine("h100");
  Pricer pricer(job, machine, trireme_stack());
  const Layout a = layout_from_text("tp=8 sp pp=4 zero=1", 64);
  const Layout b = layout_from_text("tp=4 sp pp=8 zb-h1 zero=1 full", 64);
  const auto lines = departures(a, pricer.price(a), b, pricer.price(b));
  const auto contains = [&](const std::string& line) {
    return std::ranges::find(lines, line) != lines.end();
  };
  EXPECT_TRUE(contains("tp 4 instead of 8"));
  EXPECT_TRUE(contains("pp 8 instead of 4"));
  EXPECT_TRUE(contains("zb-h1 instead of 1f1b"));
  EXPECT_TRUE(contains("full recompute instead of none"));
  EXPECT_TRUE(lines.back().ends_with(" s"));
  EXPECT_TRUE(departures(a, pricer.price(a), a, pricer.price(a)).empty());
}

}  // namespace
}  // namespace trireme::plan
