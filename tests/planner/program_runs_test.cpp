// SPDX-License-Identifier: Apache-2.0
// Compares predicted time and memory with runs of other programs to which no constant was fitted.
// tests/planner/program_runs.jsonl has the rows with their sources (facts and figures only); those
// of the zero-bubble paper are in data/.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "config/document.h"
#include "plan/search/context_choice.h"
#include "plan/search/search.h"
#include "plan/validate/validate.h"
#include "tests/planner/rules_rig.h"

namespace trireme::tests {
namespace {

using plan::ErrorSummary;
using plan::PublishedRun;

const std::filesystem::path source_tree = TRIREME_SOURCE_DIR;

// machines/h100-500w.toml and the stacks of TorchTitan were fitted to runs of this source.
constexpr std::string_view fitted_source =
    "pytorch/torchtitan benchmarks/llama3_h100_202412_torchtitan.md";

std::vector<PublishedRun> runs_of(const std::filesystem::path& file) {
  return plan::published_runs(config::read_text(file), {shipped_machine, shipped_stack},
                              file.string());
}

ErrorSummary errors_of(const std::vector<PublishedRun>& runs) {
  return plan::summary_of(plan::validate(runs), "all");
}

// The constant of the zero-bubble stack was fitted to these runs; here they are priced with the
// stack that it is based on.
std::vector<PublishedRun> zero_bubble_runs() {
  std::vector<PublishedRun> runs = runs_of(source_tree / "data" / "published_runs.jsonl");
  std::erase_if(runs, [](const PublishedRun& run) { return run.stack.name != "zero-bubble"; });
  for (PublishedRun& run : runs) run.stack = shipped_stack("megatron-2021");
  return runs;
}

std::vector<PublishedRun> unseen_runs() {
  std::vector<PublishedRun> runs =
      runs_of(source_tree / "tests" / "planner" / "program_runs.jsonl");
  std::erase_if(runs, [](const PublishedRun& run) { return run.source == fitted_source; });
  return runs;
}

TEST(ProgramRuns, every_row_is_predicted) {
  for (const PublishedRun& run :
       runs_of(source_tree / "tests" / "planner" / "program_runs.jsonl")) {
    EXPECT_EQ(run.reason, "") << run.id;
  }
  EXPECT_EQ(zero_bubble_runs().size(), 31U);
}

TEST(ProgramRuns, unfitted_sources_are_predicted_within_bounds) {
  std::vector<PublishedRun> runs = unseen_runs();
  const ErrorSummary pytorch = errors_of(runs);
  EXPECT_EQ(pytorch.timed, 22);
  EXPECT_EQ(pytorch.weighed, 12);
  EXPECT_LE(pytorch.time, 0.1);
  EXPECT_LE(pytorch.memory, 0.12);
  const std::vector<PublishedRun> megatron = zero_bubble_runs();
  runs.insert(runs.end(), megatron.begin(), megatron.end());
  const ErrorSummary all = errors_of(runs);
  EXPECT_EQ(all.timed, 53);
  EXPECT_EQ(all.weighed, 43);
  EXPECT_LE(all.time, 0.1);
  EXPECT_LE(all.memory, 0.12);
}

TEST(ProgramRuns, the_zero_bubble_paper_is_predicted_with_constants_of_megatron) {
  const ErrorSummary errors = errors_of(zero_bubble_runs());
  EXPECT_LE(errors.memory, 0.03);
  EXPECT_LE(errors.time, 0.11);
}

// Table 4 of the Llama 3 report, with the stack of rows that name no program. No constant was
// fitted to it. It does not print how attention is counted; under the causal mask is assumed.
TEST(ProgramRuns, llama3_is_predicted_at_8192_and_131072_tokens) {
  const std::vector<PublishedRun> runs =
      runs_of(source_tree / "tests" / "planner" / "long_context_runs.jsonl");
  ASSERT_EQ(runs.size(), 3U);
  for (const PublishedRun& run : runs) {
    ASSERT_EQ(run.reason, "") << run.id;
    EXPECT_EQ(run.stack.name, "megatron-core");
    const double seconds = plan::Pricer(run.job, run.machine, run.stack).price(run.layout).seconds;
    // The error of TFLOP/s, of which the report prints 430, 400 and 380.
    const double error = run.seconds / seconds - 1;
    EXPECT_LE(std::abs(error), run.layout.cp > 1 ? 0.15 : 0.2) << run.id << ": " << error;
  }
}

// The planner's layout for that job is no slower than the report's, under Trireme's stack.
TEST(ProgramRuns, the_answer_at_131072_tokens_is_no_slower_than_the_layout_of_llama3) {
  const PublishedRun run =
      runs_of(source_tree / "tests" / "planner" / "long_context_runs.jsonl").back();
  plan::SearchOptions options;
  options.gpus = run.layout.ranks();
  options.space.cp = plan::default_context_degrees(run.job, options.gpus);
  const plan::Stack& stack = plan::trireme_stack();
  const auto best = plan::search(run.job, run.machine, stack, options).best;
  ASSERT_TRUE(best.has_value());
  const double theirs = plan::Pricer(run.job, run.machine, stack).price(run.layout).seconds;
  EXPECT_LE(best->price.seconds, theirs) << words(best->layout);
}

}  // namespace
}  // namespace trireme::tests
