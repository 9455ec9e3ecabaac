// SPDX-License-Identifier: Apache-2.0
// Planted faults: verify must report every one, by a check that is near to its cause.
#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/verify/decorators.h"
#include "tests/verify/faulty_kernels.h"
#include "tests/verify/planted.h"
#include "tests/verify/verify_rig.h"

namespace trireme::tests {
namespace {

using comm::Fault;
using What = comm::Fault::What;

// ---- layouts
const SmallJob ddp{.dp = 2};
const SmallJob ddp_folded{.dims = tiny_gpt2(), .dp = 2, .logical_dp = 4, .microbatches = 2};
const SmallJob zero1{.dims = tiny_qwen3(), .zero = 2, .stage = 1};
const SmallJob zero2{.zero = 2, .stage = 2, .microbatches = 2, .reduce = spec::ReduceWhen::each};
const SmallJob zero3{.dims = tiny_qwen3(), .zero = 2, .stage = 3};
// The deadline passes in these.
const SmallJob ddp_hurried{.dp = 2, .deadline_s = 1};
const SmallJob zero2_hurried{
    .zero = 2, .stage = 2, .microbatches = 2, .reduce = spec::ReduceWhen::each, .deadline_s = 1};
const SmallJob hsdp{.dp = 2, .zero = 2, .stage = 2};
const SmallJob hsdp3{.dp = 2, .zero = 2, .stage = 3};
const SmallJob tp2{.tp = 2};
const SmallJob tp2_biased{.dims = even_gpt2(), .tp = 2, .microbatches = 2};
const SmallJob sp2{.dims = tiny_qwen3(), .tp = 2, .sequence_parallel = true};
const SmallJob tp2_dp2{.dp = 2, .tp = 2};
const SmallJob sp2_zero2{.zero = 2, .stage = 2, .tp = 2, .sequence_parallel = true};

// The buckets of a job: the embedding, two blocks, the head.
constexpr int64_t buckets = 4;
constexpr int64_t parameters = 20;  // of zero1's model
// Gathers along zero before the update of zero1's second step: the first weights, reads of
// parameters and of their gradients, and the first update.
constexpr int64_t gathers_before_second_update = buckets + 2 * parameters + buckets;
// Gathers of gradients before those of ddp's second step: reads of the thirteen of the embedding
// and the blocks, which are gathered late, and the first update.
constexpr int64_t gathers_before_second_gradients = 13 + buckets;

// Groups: all ranks, for the sums that close a step; and the ranks that share one copy of the
// state.
constexpr const char *all_ranks = "closing", *sharers = "zero+cp data";

std::vector<Planted> sums_of_gradients() {
  const auto reduce = [](What what, int world_rank = -1, float factor = 1) {
    return one_fault({.what = what,
                      .op = "reduce_scatter",
                      .group = "data",
                      .world_rank = world_rank,
                      .factor = factor});
  };
  return {
      {"reduce_dropped", ddp, reduce(What::drop), "gradients"},
      {"reduce_doubled", ddp, reduce(What::doubled), "gradients"},
      {"reduce_halved_on_one_rank", zero1, reduce(What::scale, 1, 0.5F), "gradients"},
      {"reduce_in_wrong_order", zero2, reduce(What::wrong_order), "gradients"},
      {"reduce_stale", zero2, reduce(What::stale), "gradients"},
      {"reduce_not_waited_for", zero3, reduce(What::skip_wait), "gradients"},
      {"one_round_dropped", zero2,
       one_fault({.what = What::drop, .op = "reduce_scatter", .group = "data", .call = 1}),
       "gradients"},
      {"accumulate_overwrites", ddp_folded, with_kernels(-1, accumulate_overwrites()), "gradients"},
      {"products_overwrite_gradients", ddp_folded, with_kernels(-1, gemm_forgets_beta()),
       "gradients"},
      {"gradients_not_zeroed", ddp, with_kernels(0, fill_leaves_gradients()), "loss"},
  };
}

std::vector<Planted> gathers() {
  const auto gather = [](What what, const char* group, int64_t call, int world_rank) {
    return one_fault(
        {.what = what, .op = "all_gather", .group = group, .call = call, .world_rank = world_rank});
  };
  return {
      {"gradients_gather_dropped", ddp, gather(What::drop, "data", 0, 0), "gradients"},
      {"gradients_gather_in_wrong_order", ddp, gather(What::wrong_order, "data", 1, -1),
       "gradients"},
      {"gradients_gather_stale_in_the_second_step", ddp,
       gather(What::stale, "data", gathers_before_second_gradients + 1, 1), "weights"},
      {"gradients_gather_along_dp_dropped", hsdp, gather(What::drop, "dp data", -1, -1),
       "gradients"},
      {"parameters_gather_stale", zero1,
       gather(What::stale, sharers, gathers_before_second_update, 1), "loss"},
      {"parameters_gather_dropped", hsdp, gather(What::drop, sharers, -1, -1), "loss"},
      {"parameters_gather_not_waited_for", zero3, gather(What::skip_wait, sharers, -1, 0), "loss"},
      {"parameters_gather_along_dp", hsdp3, with_group(sharers, [](int r) { return r % 2; }),
       "loss"},
      {"parameters_gather_in_wrong_order", zero3, gather(What::wrong_order, sharers, -1, -1),
       "loss"},
  };
}

std::vector<Planted> step_sums() {
  const auto sums = [](What what, int64_t call) {
    return one_fault({.what = what, .op = "all_gather", .group = all_ranks, .call = call});
  };
  return {
      {"step_sums_dropped", ddp, sums(What::drop, -1), "tokens"},
      {"step_sums_stale", ddp, sums(What::stale, 1), "loss"},
      {"norm_counted_twice", zero1, with_kernels(-1, norm_counted_twice()), "gradient norm"},
      {"squares_counted_twice_on_one_rank", zero3, with_kernels(1, squares_counted_twice()),
       "gradient norm"},
      {"tokens_counted_twice", ddp, with_kernels(-1, tokens_counted_twice()), "tokens"},
      {"first_ranks_sums_counted_for_all", hsdp, with_kernels(-1, first_sums_counted_again()),
       "loss"},
  };
}

std::vector<Planted> batches() {
  const auto shift_labels = [](int, const engine::HostMicrobatch& b) {
    std::rotate(b.labels.begin(), b.labels.begin() + 1, b.labels.end());
  };
  const auto die = [](int call, const engine::HostMicrobatch&) {
    if (call == 1) throw base::IoError("the disk is gone");
  };
  return {
      {"same_samples_on_two_ranks", ddp, with_batches_of(0, 1), "samples"},
      {"sample_skipped", zero2, with_skipped_batch(1), "samples"},
      {"labels_shifted_on_one_rank", hsdp, with_batches(3, shift_labels), "samples"},
      {"rank_dies", zero1, with_batches(1, die), "completes"},
  };
}

std::vector<Planted> ranks_apart() {
  train::VerifyHooks seed, decay, rate;
  seed.options = [](int rank, engine::EngineOptions& o) { o.seed += rank == 1 ? 1 : 0; };
  decay.options = [](int rank, engine::EngineOptions& o) {
    o.adamw.weight_decay *= rank == 1 ? 2.0F : 1.0F;
  };
  rate.learning_rate = [](int rank, double of) { return rank == 1 ? 1.5 * of : of; };
  return {
      {"other_seed_on_one_rank", ddp, seed, "initial weights"},
      {"other_seed_on_one_shard", zero3, seed, "initial weights"},
      {"other_weight_decay_on_one_rank", zero1, decay, "weights"},
      {"other_learning_rate_on_one_rank", ddp, rate, "weights"},
      {"optimizer_leaves_a_shard_out", zero2, with_kernels(1, adamw_does_nothing()), "weights"},
  };
}

std::vector<Planted> bytes_and_memory() {
  const auto on = [](What what, const char* op, int64_t call, int rank) {
    return one_fault({.what = what, .op = op, .group = "data", .call = call, .world_rank = rank});
  };
  return {
      {"gather_sent_twice", ddp, on(What::resent, "all_gather", -1, -1), "bytes on the wire"},
      {"reduce_sent_twice", zero3, on(What::resent, "reduce_scatter", -1, -1), "bytes on the wire"},
      {"allocation_beyond_the_prediction", zero2, with_allocation(1, 4096), "memory"},
      {"rank_stays_away", zero2_hurried, on(What::absent, "reduce_scatter", 2, 1), "completes"},
      {"rank_stays_away_at_the_end", ddp_hurried,
       one_fault({.what = What::absent,
                  .op = "all_gather",
                  .group = all_ranks,
                  .call = 2,
                  .world_rank = 0}),
       "completes"},
  };
}

std::vector<Planted> along_tp() {
  const auto on = [](What what, const char* op, int64_t call = -1, int rank = -1) {
    return one_fault({.what = what, .op = op, .group = "tp", .call = call, .world_rank = rank});
  };
  const auto shift_labels = [](int, const engine::HostMicrobatch& b) {
    std::rotate(b.labels.begin(), b.labels.begin() + 1, b.labels.end());
  };
  return {
      {"tp_sum_dropped", tp2, on(What::drop, "all_reduce"), "loss"},
      {"tp_sum_doubled", tp2_biased, on(What::doubled, "all_reduce", 1), "loss"},
      {"tp_sum_of_gradients_doubled", tp2, on(What::doubled, "all_reduce", 8), "gradients"},
      {"tp_sum_stale_on_one_rank", tp2_dp2, on(What::stale, "all_reduce", -1, 1), "loss"},
      {"tp_sum_not_waited_for", tp2, on(What::skip_wait, "all_reduce", 3, 0), "loss"},
      {"tp_sum_along_dp", tp2_dp2, with_group("tp", [](int r) { return r % 2; }), "loss"},
      {"tp_sum_sent_twice", tp2, on(What::resent, "all_reduce", 2), "bytes on the wire"},
      {"rank_along_tp_stays_away", tp2, on(What::absent, "all_reduce", 2, 1), "completes"},
      {"residual_added_twice", tp2, with_kernels(1, accumulate_adds_twice()), "loss"},
      {"embedding_one_row_off", tp2, with_kernels(1, embedding_one_row_off()), "loss"},
      {"embedding_gradient_one_row_off", tp2, with_kernels(1, embedding_grad_one_row_off()),
       "gradients"},
      {"targets_one_column_off", tp2_biased, with_kernels(0, stats_one_column_off()), "loss"},
      {"loss_gradient_one_column_off", tp2, with_kernels(1, grad_one_column_off()), "gradients"},
      {"loss_over_a_part_of_the_vocabulary", sp2, with_kernels(-1, first_stats_for_all()), "loss"},
      {"copies_along_tp_counted_apart", tp2_dp2, with_kernels(-1, copies_counted_apart()),
       "tokens"},
      {"other_samples_along_tp", tp2, with_batches(1, shift_labels), "samples"},
      {"samples_of_another_rank_along_tp", tp2_dp2, with_batches_of(0, 3), "samples"},
      {"rows_gathered_in_wrong_order", sp2, on(What::wrong_order, "all_gather"), "loss"},
      {"rows_scattered_without_the_others", sp2, on(What::drop, "reduce_scatter"), "loss"},
      {"replicated_gradients_not_summed_over_tp", sp2, on(What::drop, "all_reduce"), "gradients"},
      {"reduce_dropped_beside_tp", sp2_zero2,
       one_fault({.what = What::drop, .op = "reduce_scatter", .group = "data"}), "gradients"},
      {"optimizer_leaves_a_shard_out_beside_tp", sp2_zero2, with_kernels(3, adamw_does_nothing()),
       "weights"},
  };
}

std::vector<Planted> all_faults() {
  std::vector<Planted> all;
  for (const auto& make :
       {sums_of_gradients, gathers, step_sums, batches, ranks_apart, bytes_and_memory, along_tp}) {
    for (Planted& fault : make()) all.push_back(std::move(fault));
  }
  return all;
}

class VerifyFaults : public testing::TestWithParam<Planted> {};

TEST_P(VerifyFaults, is_found) { expect_found(GetParam()); }

// A hint names the parameters whose sums over tp are missing.
TEST(VerifyHints, name_the_seam_of_replicated_parameters) {
  const Fault dropped = {.what = What::drop, .op = "all_reduce", .group = "tp"};
  const train::VerifyReport report = train::verify(job_of(sp2), one_fault(dropped));
  ASSERT_NE(report.first_failed(), nullptr);
  EXPECT_EQ(report.first_failed()->name, "gradients");
  EXPECT_NE(report.first_failed()->hint.find("tp does not cut"), std::string::npos)
      << train::to_text(report);
}

INSTANTIATE_TEST_SUITE_P(planted, VerifyFaults, testing::ValuesIn(all_faults()),
                         [](const testing::TestParamInfo<Planted>& fault) {
                           return fault.param.name;
                         });

}  // namespace
}  // namespace trireme::tests
