// SPDX-License-Identifier: Apache-2.0
// The memory that `plan` prints for a layout is what `train` predicts, and allocates, for the same
// layout in a configuration.
#include <gtest/gtest.h>

#include <cstdlib>

#include "config/config_text.h"
#include "config/files_test.h"
#include "config/layout.h"
#include "plan/finalists.h"
#include "plan/samples_test.h"
#include "spec/layout_samples_test.h"

namespace trireme::plan {
namespace {

spec::Plan plan_of_train(const Job& job, const Layout& l, const std::string& model) {
  const config::TemporaryFolder folder;
  const config::Config config =
      config::load(folder.write("plan.toml", config::config_text(workload_of(job), l, {model, ""})),
                   {.overrides = {"--training.dataset_path=tokens.bin"},
                    .model_folders = {source_root() / "configs" / "models"},
                    .world = static_cast<int>(l.ranks())});
  return spec::solve_or_throw(spec::make_model(config.dims), config::workload_of(config),
                              config::layout_of(config),
                              spec::cuda_backend(config.system.determinism == "l1"));
}

TEST(PrintedMemory, is_that_of_train_to_the_byte) {
  constexpr uint64_t seed = 41;
  const int count = std::getenv("TRIREME_FULL") != nullptr ? 3000 : 150;
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
    // As it is typed, and printed.
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

}  // namespace
}  // namespace trireme::plan
