// SPDX-License-Identifier: Apache-2.0
// Planted faults of pipelines: messages between stages, the shared table, the parts of a backward.
#include <gtest/gtest.h>

#include "tests/verify/decorators.h"
#include "tests/verify/faulty_kernels.h"
#include "tests/verify/planted.h"

namespace trireme::tests {
namespace {

using comm::Fault;
using What = comm::Fault::What;

// ---- layouts. In all of them rank 0 of the pipeline has two micro-batches in flight before it
// waits for the first gradient.
const SmallJob untied{.dims = deep(tiny_llama()), .microbatches = 4, .pp = 2};
const SmallJob tied{.dims = deep(tiny_gpt2()), .microbatches = 4, .pp = 2};
const SmallJob four{.dims = deep(tiny_llama()), .microbatches = 6, .pp = 4};
const SmallJob looping{
    .dims = deep(tiny_llama()), .microbatches = 4, .pp = 2, .schedule = "interleaved"};
const SmallJob apart{.dims = deep(tiny_llama()), .microbatches = 4, .pp = 2, .schedule = "zb-h1"};
const SmallJob with_dp{.dims = deep(tiny_llama()), .dp = 2, .microbatches = 4, .pp = 2};
// The deadline passes in this one.
const SmallJob hurried{.dims = deep(tiny_llama()), .microbatches = 4, .deadline_s = 1, .pp = 2};

const std::string forward = "pp activations 0>1", backward = "pp gradients 1>0";
const std::string table = "pp table 0>1", table_back = "pp table gradients 1>0";

// A fault of every message of a channel, or of one; the first message, number 0, only connects.
train::VerifyHooks message(What what, const std::string& channel, int64_t number = -1,
                           float factor = 1) {
  return one_fault(
      {.what = what, .op = "recv", .group = channel, .call = number, .factor = factor});
}
std::vector<Planted> activations() {
  return {
      {"activations_dropped", untied, message(What::drop, forward), "loss"},
      {"activations_of_one_micro_batch_dropped", untied, message(What::drop, forward, 3), "loss"},
      {"activations_doubled", untied, message(What::doubled, forward), "loss"},
      {"activations_corrupted", four, message(What::scale, "pp activations 2>3", 2, 1.125F),
       "loss"},
      {"activations_of_the_micro_batch_before", untied, message(What::stale, forward, 2), "loss"},
      {"activations_not_waited_for", untied, message(What::skip_wait, forward), "loss"},
      {"activations_in_wrong_order", untied, message(What::swapped, forward, 1), "loss"},
      {"activations_of_the_wrong_chunk", looping, message(What::swapped, forward, 2), "loss"},
      {"activations_wrong_on_one_of_two_pipelines", with_dp,
       one_fault({.what = What::drop, .op = "recv", .group = forward, .world_rank = 3}), "loss"},
      {"activations_lost", hurried, message(What::absent, forward, 1), "completes"},
      {"activations_expected_twice", hurried, message(What::resent, forward, 1), "completes"},
  };
}

std::vector<Planted> gradients() {
  return {
      {"gradients_dropped", untied, message(What::drop, backward), "gradients"},
      {"gradients_of_one_micro_batch_dropped", untied, message(What::drop, backward, 2),
       "gradients"},
      {"gradients_halved", four, message(What::scale, "pp gradients 3>2", -1, 0.5F), "gradients"},
      {"gradients_of_the_micro_batch_before", apart, message(What::stale, backward, 2),
       "gradients"},
      {"gradients_not_waited_for", untied, message(What::skip_wait, backward), "gradients"},
      {"gradients_in_wrong_order", untied, message(What::swapped, backward, 1), "gradients"},
      {"gradients_of_the_wrong_chunk", looping, message(What::stale, "pp gradients 0>1", 2),
       "gradients"},
      {"gradients_lost", hurried, message(What::absent, backward, 1), "completes"},
      {"weight_gradients_left_out_on_one_rank", apart, with_kernels(1, weight_gradients_left_out()),
       "gradients"},
      {"weight_gradients_overwritten", apart, with_kernels(0, gemm_forgets_beta()), "gradients"},
  };
}

std::vector<Planted> shared_table() {
  return {
      {"table_not_sent", tied, message(What::drop, table), "loss"},
      {"table_not_sent_again_after_the_update", tied, message(What::stale, table, 2), "loss"},
      {"table_not_waited_for", tied, message(What::skip_wait, table), "loss"},
      {"table_gradients_dropped", tied, message(What::drop, table_back), "gradients"},
      {"table_gradients_doubled", tied, message(What::doubled, table_back), "gradients"},
      {"table_gradients_of_the_step_before", tied, message(What::stale, table_back, 2), "weights"},
  };
}

std::vector<Planted> stages_apart() {
  train::VerifyHooks seed, rate;
  seed.options = [](int rank, engine::EngineOptions& o) { o.seed += rank == 1 ? 1 : 0; };
  rate.learning_rate = [](int rank, double of) { return rank == 1 ? 1.5 * of : of; };
  return {
      {"other_seed_on_the_last_stage", untied, seed, "initial weights"},
      {"other_learning_rate_on_the_last_stage", untied, rate, "weights"},
      {"other_samples_on_the_last_stage", untied, with_skipped_batch(1), "samples"},
      {"squares_counted_twice_on_the_last_stage", untied, with_kernels(1, squares_counted_twice()),
       "gradient norm"},
      {"more_memory_on_the_last_stage", untied, with_allocation(1, 4096), "memory"},
  };
}

std::vector<Planted> all_pipeline_faults() {
  std::vector<Planted> all;
  for (const auto& make : {activations, gradients, shared_table, stages_apart}) {
    for (Planted& fault : make()) all.push_back(std::move(fault));
  }
  return all;
}

class PipelineFaults : public testing::TestWithParam<Planted> {};

TEST_P(PipelineFaults, is_found) { expect_found(GetParam()); }

INSTANTIATE_TEST_SUITE_P(planted, PipelineFaults, testing::ValuesIn(all_pipeline_faults()),
                         [](const testing::TestParamInfo<Planted>& fault) {
                           return fault.param.name;
                         });

std::string first_hint(const SmallJob& job, const train::VerifyHooks& hooks) {
  const train::VerifyReport report = train::verify(job_of(job), hooks);
  return report.ok() ? "" : report.first_failed()->hint;
}

TEST(PipelineHints, name_the_seam_of_the_pipeline) {
  EXPECT_NE(first_hint(untied, message(What::drop, forward)).find("activations between stages"),
            std::string::npos);
  EXPECT_NE(first_hint(four, message(What::drop, "pp gradients 2>1"))
                .find("stages 0 to 1: the gradients that stage 2 sends"),
            std::string::npos);
  EXPECT_NE(first_hint(tied, message(What::drop, table_back)).find("shared table"),
            std::string::npos);
}

}  // namespace
}  // namespace trireme::tests
