// SPDX-License-Identifier: Apache-2.0
// Planted faults of context parallelism: exchanges of heads, gathered keys, the ring, slices of
// rows, and sums over ranks along cp.
#include <gtest/gtest.h>

#include "tests/verify/context_kernels.h"
#include "tests/verify/decorators.h"
#include "tests/verify/faulty_kernels.h"
#include "tests/verify/planted.h"

namespace trireme::tests {
namespace {

using comm::Fault;
using spec::ContextKind;
using What = comm::Fault::What;

// ---- layouts, all of two blocks, with zigzag slices
SmallJob context_job(int cp, ContextKind kind, int64_t kv_heads = 4) {
  return {.dims = with_heads(tiny_llama(), kv_heads), .cp = cp, .kind = kind, .seq_len = 16};
}
SmallJob with_documents(SmallJob job) {
  job.document_mask = true;
  return job;
}
SmallJob impatient(SmallJob job) {  // the deadline passes
  job.deadline_s = 1;
  return job;
}
SmallJob sharded(SmallJob job, int zero, int stage) {
  job.zero = zero;
  job.stage = stage;
  return job;
}
SmallJob beside_dp(SmallJob job, int dp) {
  job.dp = dp;
  return job;
}
SmallJob product_of(ContextKind kind) {
  SmallJob job = context_job(4, kind);
  job.ulysses = 2;
  return job;
}
SmallJob two_sequences(SmallJob job) {
  job.sequences = 2;
  return job;
}

const SmallJob ulysses2 = context_job(2, ContextKind::ulysses);
const SmallJob shared_heads = context_job(4, ContextKind::ulysses, 2);  // two ranks read a head
const SmallJob gather2 = context_job(2, ContextKind::gather);
const SmallJob gather4 = context_job(4, ContextKind::gather);
const SmallJob ring2 = context_job(2, ContextKind::ring);
const SmallJob ring4 = context_job(4, ContextKind::ring);

// The calls of a step on two blocks. Ulysses: of q, k and v, then of o; backward, from the last
// block: of do, then of dq, dk and dv. Gather: for each of the key/value heads; kv_heads is 4, so
// that the backward begins with call 8. Ring of two: one shift of keys; backward, from the last
// block: of keys, of their gradients, and of these home.
constexpr int64_t first_backward_exchange = 4, first_return = 5;
constexpr int64_t first_backward_gather = 8;
constexpr int64_t first_backward_shift = 2, first_gradient_shift = 3, first_home_shift = 4;

train::VerifyHooks fault_of(const char* group, const char* op, What what, int64_t call = -1,
                            int world_rank = -1, float factor = 1) {
  return one_fault({.what = what,
                    .op = op,
                    .group = group,
                    .call = call,
                    .world_rank = world_rank,
                    .factor = factor});
}

std::vector<Planted> exchanges_of_heads() {
  const auto exchange = [](What what, int64_t call = -1, int rank = -1) {
    return fault_of("ulysses", "all_to_all", what, call, rank);
  };
  return {
      {"heads_of_other_ranks_dropped", ulysses2, exchange(What::drop), "loss"},
      {"blocks_of_heads_rotated", ulysses2, exchange(What::wrong_order), "loss"},
      {"heads_stale_on_one_rank", shared_heads, exchange(What::stale, -1, 2), "loss"},
      {"heads_not_waited_for", ulysses2, exchange(What::skip_wait, 0, 1), "loss"},
      {"results_sent_to_the_wrong_ranks", ulysses2, exchange(What::wrong_order, 1), "loss"},
      {"gradients_of_results_doubled", ulysses2, exchange(What::doubled, first_backward_exchange),
       "gradients"},
      {"gradients_of_heads_not_returned", ulysses2, exchange(What::drop, first_return),
       "gradients"},
      {"gradients_of_heads_rotated", shared_heads, exchange(What::wrong_order, first_return),
       "gradients"},
      {"key_heads_of_the_wrong_group", ulysses2, with_kernels(-1, key_heads_swapped()), "loss"},
      {"gradients_of_shared_heads_overwritten", shared_heads,
       with_kernels(1, accumulate_overwrites()), "gradients"},
      {"heads_exchanged_twice", ulysses2, exchange(What::resent, 0), "bytes on the wire"},
      {"rank_leaves_out_an_exchange", impatient(ulysses2), exchange(What::absent, 3, 1),
       "completes"},
      {"ranks_of_other_samples_exchange_heads", beside_dp(ulysses2, 2),
       with_group("cp", [](int rank) { return rank % 2; }), "loss"},
  };
}

std::vector<Planted> gathers_of_keys() {
  const auto keys = [](What what, int64_t call = -1, int rank = -1) {
    return fault_of("keys", "all_gather", what, call, rank);
  };
  const auto sums = [](What what, float factor = 1, int rank = -1) {
    return fault_of("keys", "reduce_scatter", what, -1, rank, factor);
  };
  return {
      {"keys_of_other_ranks_dropped", gather2, keys(What::drop), "loss"},
      {"keys_gathered_in_wrong_order", gather4, keys(What::wrong_order), "loss"},
      {"keys_in_the_order_of_ranks", gather2, with_kernels(-1, keys_in_order_of_ranks()), "loss"},
      {"keys_stale_on_one_rank", gather2, keys(What::stale, -1, 1), "loss"},
      {"keys_of_the_head_before", gather2, keys(What::stale, 2), "loss"},
      {"keys_not_waited_for", gather2, keys(What::skip_wait, 1, 0), "loss"},
      {"keys_dropped_in_the_backward", gather2, keys(What::drop, first_backward_gather),
       "gradients"},
      {"keys_gathered_twice", gather2, keys(What::resent, 1), "bytes on the wire"},
      {"rank_leaves_out_a_gather", impatient(gather2), keys(What::absent, 5, 0), "completes"},
      {"gradients_of_keys_not_summed", gather2, sums(What::drop), "gradients"},
      {"gradients_of_keys_times_cp", gather4, sums(What::scale, 4), "gradients"},
      {"gradients_of_keys_of_the_wrong_rank", gather4, sums(What::wrong_order), "gradients"},
      {"gradients_of_keys_stale_on_one_rank", gather2, sums(What::stale, 1, 1), "gradients"},
      {"gradients_of_keys_in_the_order_of_rows", gather2,
       with_kernels(-1, key_grads_in_order_of_rows()), "gradients"},
      {"last_key_left_out", gather2, with_kernels(1, last_key_left_out()), "loss"},
      {"last_key_left_out_of_the_backward", gather2, with_kernels(1, last_key_left_out_of_grad()),
       "gradients"},
      {"documents_ignored", with_documents(gather2), with_kernels(-1, documents_ignored()), "loss"},
      {"keys_dropped_beside_ulysses", product_of(ContextKind::ulysses_gather),
       fault_of("keys", "all_gather", What::drop), "loss"},
  };
}

std::vector<Planted> rings() {
  const auto shift = [](What what, int64_t call = -1, int rank = -1, float factor = 1) {
    return fault_of("ring", "shift", what, call, rank, factor);
  };
  return {
      {"shift_dropped", ring2, shift(What::drop), "loss"},
      {"shift_doubled", ring2, shift(What::doubled), "loss"},
      {"one_shift_of_a_long_ring_dropped", ring4, shift(What::drop, 1, 2), "loss"},
      {"keys_of_the_rank_before_again", ring4, shift(What::stale, 1), "loss"},
      {"shift_not_waited_for", ring2, shift(What::skip_wait, 0, 1), "loss"},
      {"keys_dropped_in_the_rings_backward", ring2, shift(What::drop, first_backward_shift),
       "gradients"},
      {"gradients_of_keys_lost_on_the_way", ring2, shift(What::drop, first_gradient_shift),
       "gradients"},
      {"gradients_of_keys_not_returned_home", ring2, shift(What::skip_wait, first_home_shift),
       "gradients"},
      {"gradients_of_keys_scaled", ring2, shift(What::scale, first_home_shift, -1, 2), "gradients"},
      {"partial_results_added_plainly", ring2, with_kernels(-1, merge_adds_plainly()), "loss"},
      {"lse_of_the_first_part_kept", ring2, with_kernels(-1, merge_leaves_lse()), "gradients"},
      {"last_key_left_out_of_the_ring", ring2, with_kernels(0, last_key_left_out()), "loss"},
      {"documents_ignored_in_the_ring", with_documents(ring2),
       with_kernels(-1, documents_ignored()), "loss"},
      {"shifted_twice", ring2, shift(What::resent, 0), "bytes on the wire"},
      {"rank_leaves_out_a_shift", impatient(ring2), shift(What::absent, 1, 0), "completes"},
      {"shift_dropped_beside_ulysses", product_of(ContextKind::ulysses_ring), shift(What::drop),
       "loss"},
  };
}

std::vector<Planted> slices_of_rows() {
  const auto shift_labels = [](int, const engine::HostMicrobatch& b) {
    std::rotate(b.labels.begin(), b.labels.begin() + 1, b.labels.end());
  };
  return {
      {"positions_local_to_the_slice", gather2, with_kernels(-1, positions_of_the_slice()),
       "gradients"},
      {"positions_local_in_the_backward", ulysses2, with_kernels(-1, grad_positions_of_the_slice()),
       "gradients"},
      {"labels_shifted_after_slicing", gather2, with_kernels(-1, labels_shifted()), "loss"},
      {"labels_shifted_before_slicing_on_one_rank", ring2, with_batches(1, shift_labels),
       "samples"},
      {"rows_of_one_rank_in_reverse_order", two_sequences(gather2),
       with_kernels(1, tokens_reversed()), "loss"},
      {"samples_of_another_data_rank", beside_dp(gather2, 2), with_batches_of(0, 3), "samples"},
      {"other_sample_hash_on_one_rank", gather2, with_hash(1), "samples"},
  };
}

std::vector<Planted> sums_over_cp() {
  return {
      {"slices_counted_as_samples", ulysses2, with_kernels(-1, slices_counted_as_samples()),
       "samples"},
      {"loss_of_one_slice", gather2, with_kernels(-1, one_slice_counted()), "tokens"},
      {"tokens_counted_for_every_rank", ring2, with_kernels(-1, tokens_counted_twice()), "tokens"},
      {"gradients_not_summed_over_cp", gather2, fault_of("data", "reduce_scatter", What::drop),
       "gradients"},
      {"gradients_times_cp", gather2, fault_of("data", "reduce_scatter", What::doubled),
       "gradients"},
      {"shard_of_one_rank_not_updated", sharded(gather2, 1, 1),
       with_kernels(1, adamw_does_nothing()), "weights"},
      {"parameters_not_gathered_over_cp", sharded(ulysses2, 1, 3),
       fault_of("zero+cp data", "all_gather", What::drop), "loss"},
      {"more_memory_on_a_rank_along_cp", ring2, with_allocation(1, 4096), "memory"},
  };
}

std::vector<Planted> all_context_faults() {
  std::vector<Planted> all;
  for (const auto& make :
       {exchanges_of_heads, gathers_of_keys, rings, slices_of_rows, sums_over_cp}) {
    for (Planted& fault : make()) all.push_back(std::move(fault));
  }
  return all;
}

class ContextFaults : public testing::TestWithParam<Planted> {};

TEST_P(ContextFaults, is_found) { expect_found(GetParam()); }

INSTANTIATE_TEST_SUITE_P(planted, ContextFaults, testing::ValuesIn(all_context_faults()),
                         [](const testing::TestParamInfo<Planted>& fault) {
                           return fault.param.name;
                         });

void expect_hint(const SmallJob& job, const train::VerifyHooks& hooks, const std::string& text) {
  const train::VerifyReport report = train::verify(job_of(job), hooks);
  ASSERT_NE(report.first_failed(), nullptr);
  EXPECT_NE(report.first_failed()->hint.find(text), std::string::npos)
      << report.first_failed()->hint;
}

TEST(ContextHints, name_the_transfers_of_the_kind) {
  expect_hint(ulysses2, fault_of("ulysses", "all_to_all", What::drop),
              "exchange of rows for heads");
  expect_hint(gather2, fault_of("keys", "all_gather", What::drop), "gathered keys");
  expect_hint(ring2, fault_of("ring", "shift", What::drop), "keys that go round");
  // Only the way of key gradients is wrong: blocks before the last, and its projection.
  expect_hint(gather2, fault_of("keys", "reduce_scatter", What::drop),
              "gradients of keys and values, summed over the gathered keys of cp");
  expect_hint(ring2, fault_of("ring", "shift", What::drop, first_home_shift),
              "gradients of keys and values, which go round");
  expect_hint(ulysses2, fault_of("ulysses", "all_to_all", What::drop, first_return),
              "gradients of heads, exchanged back for rows");
}

}  // namespace
}  // namespace trireme::tests
