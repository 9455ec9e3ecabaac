// SPDX-License-Identifier: Apache-2.0
// The memory that `plan` prints for a layout equals the memory that `train` predicts, and
// allocates, for the same layout in a configuration. TRIREME_FULL=1 draws five times as many.
#include <gtest/gtest.h>

#include <cstdlib>

#include "config/config_text.h"
#include "config/files_test.h"
#include "config/layout.h"
#include "plan/import/config_layout.h"
#include "plan/samples_test.h"
#include "plan/search/answer.h"
#include "plan/search/finalists.h"
#include "spec/layout/layout_samples_test.h"

namespace trireme::plan {
namespace {

spec::Plan plan_of_train(const Job& job, const Layout& l, const std::string& model) {
  const config::TemporaryFolder folder;
  const config::Config config = config::load_solved(
      folder.write("plan.toml", config::config_text(workload_of(job), l, {model, ""})),
      {.overrides = {"--training.dataset_path=tokens.bin", "--checkpoint.export_folder="},
       .model_folders = {source_root() / "configs" / "models"},
       .world = static_cast<int>(l.ranks())});
  return spec::solve_or_throw(spec::make_model(config.dims), config::workload_of(config),
                              config::layout_of(config),
                              spec::cuda_backend(config.system.determinism == "l1"));
}

TEST(PrintedMemory, equals_that_of_train_to_the_byte) {
  constexpr uint64_t seed = 41;
  const int count = std::getenv("TRIREME_FULL") != nullptr ? 3000 : 600;
  SCOPED_TRACE(seed);
  const spec::Machine machine = shipped_machine("h100");
  const auto reserved = static_cast<int64_t>(machine.processor.reserved_bytes);
  spec::LayoutDice dice(seed);
  for (int i = 0; i < count; ++i) {
    const auto* const model =
        dice.of<const char*>({"gpt2-124m", "gpt2-1.5b", "qwen2-0.5b", "llama-1b", "llama-8b"});
    Job job = job_of(model, 1, dice.of<int64_t>({256, 1024}));
    const Layout l = spec::any_layout(dice, spec::sizes_of(job.model), job.seq_len);
    job.global_batch = l.global_batch();
    // The layout in its text form, as users type it.
    const Proposal p =
        propose(job, machine, trireme_stack(), spec::layout_from_text(spec::to_text(l), l.ranks()));
    ASSERT_TRUE(p.is_engine_plan) << spec::to_text(l) << ": " << p.confirmed.problem;
    EXPECT_EQ(p.confirmed.plan.layout, l) << spec::to_text(l);
    const spec::Plan trained = plan_of_train(job, l, model);
    EXPECT_EQ(static_cast<int64_t>(p.confirmed.bytes) - reserved,
              trained.predicted.largest().total())
        << model << ": " << spec::to_text(l);
    EXPECT_EQ(p.confirmed.plan, trained) << model << ": " << spec::to_text(l);
  }
}

// A run over several data sets keeps the losses of all tokens of a step, to sum them by data set.
TEST(PrintedMemory, of_several_data_sets_equals_that_of_train_to_the_byte) {
  const config::TemporaryFolder folder;
  const auto load = [&](const std::string& sets) {
    return config::load_solved(
        folder.write("mixture.toml",
                     "[model]\nname = \"gpt2-124m\"\n[training]\nseq_len = 256\n"
                     "local_batch_size = 1\nglobal_batch_size = 8\n" +
                         sets),
        {.model_folders = {source_root() / "configs" / "models"}});
  };
  const std::string two =
      "[[training.dataset]]\nname = \"a\"\npath = \"a.bin\"\n"
      "[[training.dataset]]\nname = \"b\"\npath = \"b.bin\"\n";
  const spec::Machine machine = shipped_machine("h100");
  const auto bytes_of = [&](const config::Config& config) {
    const Job job = job_of(config);
    const Layout l = plan::layout_of(config);
    const spec::Plan trained =
        spec::solve_or_throw(job.model, config::workload_of(config), l, job.backend);
    const double total =
        static_cast<double>(trained.predicted.largest().total()) + machine.processor.reserved_bytes;
    const Proposal p = propose(job, machine, trireme_stack(), l);
    EXPECT_EQ(p.confirmed.bytes, total);
    EXPECT_EQ(Pricer(job, machine, trireme_stack()).price(l).bytes, total);
    return p.confirmed.bytes;
  };
  EXPECT_GT(bytes_of(load(two)), bytes_of(load("dataset_path = \"a.bin\"\n")));
}

TEST(PrintedMemory, of_layouts_with_experts_equals_that_of_train_to_the_byte) {
  constexpr uint64_t seed = 43;
  constexpr int count = 400;
  SCOPED_TRACE(seed);
  const spec::Machine machine = shipped_machine("h200");
  spec::LayoutDice dice(seed);
  int parallel = 0;
  for (int i = 0; i < count; ++i) {
    const auto* const model =
        dice.of<const char*>({"kjv-moe", "olmoe-1b-7b", "mixtral-2l", "qwen3-30b-a3b"});
    Job job = job_of(model, 1, 256);
    Layout l = spec::any_layout(dice, spec::sizes_of(job.model), job.seq_len);
    // Not every random layout has ranks that experts fit on.
    l.ep = dice.of<int>({1, 2, 4});
    const spec::Settled settled = spec::settle(spec::sizes_of(job.model), {.seq_len = 256}, 0, l);
    if (!settled.broken.empty()) continue;
    l = settled.layout;
    job.global_batch = l.global_batch();
    const Proposal p =
        propose(job, machine, trireme_stack(), spec::layout_from_text(spec::to_text(l), l.ranks()));
    ASSERT_TRUE(p.is_engine_plan) << spec::to_text(l) << ": " << p.confirmed.problem;
    const spec::Plan trained = plan_of_train(job, l, model);
    EXPECT_EQ(p.confirmed.plan, trained) << model << ": " << spec::to_text(l);
    parallel += l.ep > 1 ? 1 : 0;
  }
  EXPECT_GT(parallel, 50);
}

// Every layout in an answer has the memory of the plan that `train` makes of it.
TEST(PrintedMemory, of_all_layouts_of_an_answer_equals_that_of_train) {
  struct Question {
    const char *model, *machine;
    int64_t ranks, batch, seq_len;
  };
  int shown = 0, rejected = 0;
  for (const Question& q :
       {Question{"llama-8b", "h100", 16, 64, 4096}, Question{"gpt2-1.5b", "a100-40gb", 8, 32, 1024},
        Question{"llama3-70b", "h100", 64, 128, 4096}, Question{"llama3-70b", "h200", 8, 16, 4096},
        Question{"olmoe-1b-7b", "h100", 8, 64, 4096},
        Question{"qwen3-30b-a3b", "h100", 16, 64, 4096}}) {
    const spec::Machine machine = shipped_machine(q.machine);
    const Job job = job_of(q.model, q.batch, q.seq_len);
    SearchOptions options;
    options.gpus = q.ranks;
    const Answer found = answer(job, machine, trireme_stack(), options);
    const auto expect_exact = [&](const Job& of, const Proposal& p) {
      ASSERT_TRUE(p.is_engine_plan);
      const spec::Plan trained = plan_of_train(of, p.confirmed.plan.layout, q.model);
      EXPECT_EQ(p.confirmed.bytes, static_cast<double>(trained.predicted.largest().total()) +
                                       machine.processor.reserved_bytes)
          << spec::to_text(p.layout);
      ++shown;
    };
    if (found.best) expect_exact(job, *found.best);
    for (const Proposal& p : found.passed_over) expect_exact(job, p);
    for (const Proposal& p : found.others) expect_exact(job, p);
    if (found.textbook_proposal) expect_exact(job, *found.textbook_proposal);
    if (found.nearest) expect_exact(job, *found.nearest);
    for (const Change& change : found.changes) {
      if (change.proposal.is_engine_plan) expect_exact(job, change.proposal);
    }
    const double room = machine.processor.memory_bytes * options.memory_fraction;
    for (const Rejected& family : found.search.rejected) {
      if (!family.nearest) continue;
      const Layout l = spec::filled(*family.nearest, workload_of(job));
      EXPECT_EQ(family.missing_bytes + room,
                static_cast<double>(plan_of_train(job, l, q.model).predicted.largest().total()) +
                    machine.processor.reserved_bytes)
          << spec::to_text(l);
      ++rejected;
    }
  }
  EXPECT_GT(shown, 20);
  EXPECT_GT(rejected, 5);
}

}  // namespace
}  // namespace trireme::plan
