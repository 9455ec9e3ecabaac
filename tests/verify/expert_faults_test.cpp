// SPDX-License-Identifier: Apache-2.0
// Planted faults of mixtures of experts: routers, rows on their way to experts and back, sums of
// loads, statistics and gradients; and healthy layouts of the same kinds.
#include <gtest/gtest.h>

#include "tests/verify/decorators.h"
#include "tests/verify/expert_kernels.h"
#include "tests/verify/faulty_kernels.h"
#include "tests/verify/planted.h"

namespace trireme::tests {
namespace {

using spec::AuxScope;
using spec::Recompute;
using spec::ReduceWhen;
using What = comm::Fault::What;

// ---- models: two blocks with experts; and a dense block followed by one with a bias, groups and
// shared experts
spec::ModelDims softmax_model() { return with_heads(tiny_moe(), 4); }
spec::ModelDims sigmoid_model() { return with_heads(tiny_shared_moe(), 4); }

// ---- layouts
const SmallJob ep2 = {.dims = softmax_model(), .dp = 2, .ep = 2};
const SmallJob ep2_of_4 = {.dims = softmax_model(), .dp = 4, .ep = 2};
const SmallJob ep4 = {.dims = sigmoid_model(), .zero = 4, .stage = 1, .ep = 4};
const SmallJob sharded_experts = {.dims = softmax_model(), .zero = 4, .stage = 3, .ep = 2};
const SmallJob etp2 = {.dims = softmax_model(), .tp = 2, .sequence_parallel = true, .etp = 2};
const SmallJob over_tp = {.dims = softmax_model(), .tp = 2, .sequence_parallel = true, .ep = 2};
const SmallJob over_cp = {.dims = softmax_model(), .cp = 2, .seq_len = 16, .ep = 2};
const SmallJob beside_cp = {.dims = softmax_model(), .cp = 2, .seq_len = 16};
const SmallJob folded = {.dims = sigmoid_model(),
                         .tp = 2,
                         .sequence_parallel = true,
                         .cp = 2,
                         .seq_len = 16,
                         .ep = 2,
                         .etp = 2};
const SmallJob piped = {
    .dims = deep(softmax_model()), .dp = 2, .microbatches = 2, .pp = 2, .ep = 2};

SmallJob recomputed(SmallJob job) {
  job.recompute = Recompute::full;
  return job;
}
SmallJob in_two(SmallJob job) {
  job.microbatches = 2;
  return job;
}
SmallJob of_model(SmallJob job, const spec::ModelDims& dims) {
  job.dims = dims;
  return job;
}
SmallJob with_capacity(SmallJob job) {
  job.expert_capacity = 1;
  return job;
}
SmallJob hasty(SmallJob job) {  // the deadline passes
  job.deadline_s = 1;
  return job;
}
SmallJob of_scope(SmallJob job, AuxScope scope) {
  job.dims.moe->balance.scope = scope;
  return job;
}

// The all_to_alls of a block. One group exchanges counts and weights, and in the backward the
// gradients of weights; another one rows and results, rows of dy and of dh2. With two blocks the
// backward begins with call 4 of both.
struct Exchange {
  const char* group;
  int64_t call;
};
constexpr const char *values_group = "ep expert", *rows_group = "ep expert rows";
constexpr Exchange of_counts{values_group, 0}, of_weights{values_group, 1};
constexpr Exchange of_rows{rows_group, 0}, of_results{rows_group, 1};
constexpr Exchange of_dy{rows_group, 4}, of_dweights{values_group, 4}, of_drows{rows_group, 5};
constexpr Exchange of_counts_of_the_second_block{values_group, 2};
constexpr Exchange of_second_counts{values_group, 3};  // of the second micro-batch, with one block

train::VerifyHooks exchange(What what, const Exchange& of, int rank = -1) {
  return one_fault(
      {.what = what, .op = "all_to_all", .group = of.group, .call = of.call, .world_rank = rank});
}
train::VerifyHooks in_group(const char* group, const char* op, What what, float factor = 1) {
  return one_fault({.what = what, .op = op, .group = group, .factor = factor});
}

std::vector<Planted> routers() {
  return {
      {"pairs_counted_twice", ep2, with_kernels(1, pairs_counted_twice()), "routing"},
      {"drops_not_counted", with_capacity(ep2), with_kernels(-1, drops_not_counted()), "routing"},
      {"drops_not_counted_on_one_rank", with_capacity(ep4), with_kernels(2, drops_not_counted()),
       "routing"},
      {"chosen_again_in_recompute", recomputed(ep2), with_kernels(-1, chosen_again()), "gradients"},
      {"chosen_again_on_one_rank", recomputed(over_tp), with_kernels(1, chosen_again()),
       "gradients"},
      {"bias_ignored", ep4, with_kernels(-1, bias_ignored()), "routing"},
      {"bias_not_updated_on_one_rank", ep4, with_kernels(1, bias_not_updated()), "routing"},
      {"counts_not_summed_over_data_ranks", ep4, in_group("data", "all_reduce", What::drop),
       "routing"},
      {"counts_not_summed_over_tp", folded, in_group("tp", "all_reduce", What::drop), "routing"},
      {"aux_times_cp", over_cp, with_kernels(-1, aux_doubled()), "gradients"},
      {"aux_times_tp", over_tp, with_kernels(-1, aux_doubled()), "gradients"},
      {"aux_doubled_on_one_rank_of_a_pipeline", piped, with_kernels(3, aux_doubled()), "gradients"},
      {"loads_not_summed_over_cp", beside_cp, in_group("cp expert", "all_reduce", What::drop),
       "gradients"},
      {"loads_of_sequences_not_summed_over_cp", of_scope(beside_cp, AuxScope::sequence),
       in_group("cp expert", "all_reduce", What::drop), "gradients"},
      {"loads_not_summed_over_cp_and_tp", folded,
       in_group("ep+etp expert", "all_reduce", What::drop), "gradients"},
      {"z_left_out_on_one_rank", ep2, with_kernels(1, z_left_out()), "gradients"},
      {"z_left_out_on_one_slice", over_cp, with_kernels(1, z_left_out()), "gradients"},
      {"terms_of_masked_tokens", ep2, with_kernels(-1, terms_of_masked_tokens()), "gradients"},
      {"weights_without_gradient", etp2, with_kernels(-1, weights_without_gradient()), "gradients"},
  };
}

std::vector<Planted> rows_of_experts() {
  return {
      {"row_weights_lost", ep2, with_kernels(-1, row_weights_lost()), "loss"},
      {"row_weights_lost_on_one_rank", sharded_experts, with_kernels(3, row_weights_lost()),
       "loss"},
      {"row_weights_lost_in_the_backward", over_cp, with_kernels(-1, row_weights_lost_in_grad()),
       "gradients"},
      {"rows_swapped_in_the_backward", ep2, with_kernels(1, rows_swapped_in_grad()), "gradients"},
      {"rows_swapped_with_etp", etp2, with_kernels(0, rows_swapped_in_grad()), "gradients"},
      {"rows_of_the_next_expert", ep2, with_kernels(1, rows_of_the_next_expert()), "loss"},
      {"last_choice_left_out", over_tp, with_kernels(-1, last_choice_left_out()), "loss"},
      {"padding_not_zeroed", ep2, with_tile(4, with_kernels(-1, padding_not_zeroed())),
       "gradients"},
      {"padding_not_zeroed_on_one_rank", etp2, with_tile(8, with_kernels(1, padding_not_zeroed())),
       "gradients"},
      {"rows_of_other_ranks_ignored", ep2, with_kernels(1, groups_of_one_rank()), "loss"},
      {"rows_of_etp_ignored", etp2, with_kernels(-1, groups_of_one_rank()), "loss"},
  };
}

std::vector<Planted> exchanges_of_rows() {
  return {
      {"counts_of_another_block", ep2, exchange(What::stale, of_counts_of_the_second_block),
       "loss"},
      {"counts_of_the_micro_batch_before", in_two(of_model(ep2, sigmoid_model())),
       exchange(What::stale, of_second_counts), "loss"},
      {"counts_dropped", over_cp, exchange(What::drop, of_counts), "loss"},
      {"weights_dropped", ep4, exchange(What::drop, of_weights), "loss"},
      {"rows_to_the_wrong_rank", ep4, exchange(What::wrong_order, of_rows), "loss"},
      {"results_to_the_wrong_rank", ep2, exchange(What::wrong_order, of_results), "loss"},
      {"results_to_the_wrong_rank_over_tp", over_tp, exchange(What::wrong_order, of_results),
       "loss"},
      {"results_to_the_wrong_rank_in_a_pipeline", piped, exchange(What::wrong_order, of_results),
       "loss"},
      {"results_stale_on_one_rank", sharded_experts, exchange(What::stale, of_results, 2), "loss"},
      {"rows_not_waited_for", ep2, exchange(What::skip_wait, of_rows, 0), "loss"},
      {"dy_dropped", ep2, exchange(What::drop, of_dy), "gradients"},
      {"dy_to_the_wrong_rank", over_cp, exchange(What::wrong_order, of_dy), "gradients"},
      {"gradients_of_weights_not_returned", ep2, exchange(What::drop, of_dweights), "gradients"},
      {"gradients_of_rows_to_the_wrong_rank", sharded_experts,
       exchange(What::wrong_order, of_drows), "gradients"},
      {"rows_sent_twice", ep2, exchange(What::resent, of_rows), "bytes on the wire"},
      {"rank_without_rows_leaves_out_an_exchange", hasty(ep2), exchange(What::absent, of_rows, 1),
       "completes"},
      {"rank_leaves_out_an_exchange_of_the_backward", hasty(over_tp),
       exchange(What::absent, of_drows, 0), "completes"},
      {"ranks_of_other_experts_exchange_rows", ep2_of_4,
       with_group(rows_group, [](int rank) { return rank % 2; }), "loss"},
      {"experts_in_the_wrong_order", ep2, with_order(rows_group, [](int rank) { return -rank; }),
       "loss"},
      {"parts_of_etp_not_summed", etp2, in_group("etp expert", "reduce_scatter", What::drop),
       "loss"},
      {"parts_of_etp_of_the_wrong_rank", folded,
       in_group("etp expert", "reduce_scatter", What::wrong_order), "loss"},
      {"rows_of_etp_dropped", folded, in_group("etp expert", "all_gather", What::drop), "loss"},
  };
}

std::vector<Planted> gradients_of_experts() {
  constexpr const char* data = "data of experts";
  return {
      {"gradients_times_ep", ep2, with_kernels(-1, expert_gradients_doubled()), "gradients"},
      {"gradients_times_etp_on_one_rank", etp2, with_kernels(1, expert_gradients_doubled()),
       "gradients"},
      {"gradients_scaled_by_ep", ep2_of_4, in_group(data, "reduce_scatter", What::scale, 2),
       "gradients"},
      {"gradients_not_summed_over_copies", ep2_of_4, in_group(data, "reduce_scatter", What::drop),
       "gradients"},
      {"gradients_not_summed_over_shards", sharded_experts,
       in_group(data, "reduce_scatter", What::drop), "gradients"},
      {"gradients_of_other_experts_summed", ep2_of_4,
       with_group(data, [](int rank) { return (rank / 2) ^ (rank % 2); }), "gradients"},
      {"shards_of_experts_not_gathered", sharded_experts,
       in_group("ezero data", "all_gather", What::drop), "loss"},
      {"experts_not_updated_on_one_rank", ep2, with_kernels(1, adamw_does_nothing()), "weights"},
      {"more_memory_on_a_rank_along_ep", ep2, with_allocation(1, 4096), "memory"},
  };
}

std::vector<Planted> all_expert_faults() {
  std::vector<Planted> all;
  for (const auto& make : {routers, rows_of_experts, exchanges_of_rows, gradients_of_experts}) {
    for (Planted& fault : make()) all.push_back(std::move(fault));
  }
  return all;
}

class ExpertFaults : public testing::TestWithParam<Planted> {};

TEST_P(ExpertFaults, is_found) { expect_found(GetParam()); }

INSTANTIATE_TEST_SUITE_P(planted, ExpertFaults, testing::ValuesIn(all_expert_faults()),
                         [](const testing::TestParamInfo<Planted>& fault) {
                           return fault.param.name;
                         });

std::string first_hint_of(const SmallJob& job, const train::VerifyHooks& hooks) {
  const train::VerifyReport report = train::verify(job_of(job), hooks);
  return report.ok() ? "" : report.first_failed()->hint;
}

TEST(ExpertHints, name_the_seam_of_experts) {
  const auto expect = [](const std::string& hint, const char* text) {
    EXPECT_NE(hint.find(text), std::string::npos) << hint;
  };
  expect(first_hint_of(ep2, exchange(What::wrong_order, of_results)), "counts along ep (");
  expect(first_hint_of(folded, in_group("etp expert", "reduce_scatter", What::drop)),
         "counts along ep and etp");
  expect(first_hint_of(ep2, with_kernels(-1, expert_gradients_doubled())),
         "only experts: their sum over copies");
  expect(first_hint_of(ep2, with_kernels(-1, expert_gradients_doubled())),
         "each is 2 times the right value");
  expect(first_hint_of(beside_cp, in_group("cp expert", "all_reduce", What::drop)),
         "balance terms and the loads");
  expect(first_hint_of(ep4, with_kernels(1, bias_not_updated())), "router's bias");
  expect(first_hint_of(with_capacity(ep2), with_kernels(-1, drops_not_counted())),
         "pairs without a row");
}

// The layouts above without a fault, and others.
std::vector<SmallJob> healthy_expert_jobs() {
  std::vector<SmallJob> jobs = {ep2,
                                ep2_of_4,
                                ep4,
                                sharded_experts,
                                etp2,
                                over_tp,
                                over_cp,
                                beside_cp,
                                folded,
                                piped,
                                recomputed(over_tp),
                                in_two(of_model(ep2, sigmoid_model())),
                                with_capacity(ep2),
                                with_capacity(ep4),
                                of_scope(beside_cp, AuxScope::sequence),
                                of_scope(ep2, AuxScope::global),
                                {.dims = softmax_model()},
                                {.dims = sigmoid_model(), .dp = 2, .microbatches = 2}};
  const auto with_recipe = [&jobs](SmallJob job) {
    job.recipe = "bf16";
    jobs.push_back(job);
  };
  with_recipe(ep2);
  with_recipe(folded);
  with_recipe(of_model(sharded_experts, sigmoid_model()));
  jobs.push_back(in_two(of_model(sharded_experts, sigmoid_model())));
  jobs.back().reduce = ReduceWhen::each;
  jobs.back().grad = base::DType::bf16;
  return jobs;
}

TEST(VerifyHealthyExperts, finds_no_error) {
  for (const SmallJob& job : healthy_expert_jobs()) {
    const train::VerifyReport report = train::verify(job_of(job));
    EXPECT_TRUE(report.ok()) << train::to_text(report);
    EXPECT_EQ(report.layout.ep, job.ep);
    EXPECT_EQ(report.layout.etp, job.etp);
    const std::string text = train::to_text(report);
    EXPECT_NE(text.find("routing"), std::string::npos) << text;
    const std::string ep = job.ep > 1 ? fmt::format("ep {}", job.ep) : "";
    EXPECT_NE(text.find(ep), std::string::npos) << text;
  }
}

TEST(VerifyHealthyExperts, groups_of_rows_may_be_padded) {
  for (const SmallJob& job : {ep2, etp2, recomputed(over_cp), SmallJob{.dims = softmax_model()}}) {
    const train::VerifyReport report = train::verify(job_of(job), with_tile(4, {}));
    EXPECT_TRUE(report.ok()) << train::to_text(report);
  }
}

}  // namespace
}  // namespace trireme::tests
