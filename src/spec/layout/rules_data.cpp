// SPDX-License-Identifier: Apache-2.0
// Rules about workers, the batch, and what data ranks shard.
#include <fmt/format.h>

#include <limits>

#include "spec/layout/rules_internal.h"

namespace trireme::spec {
namespace {

constexpr int64_t max_tokens = std::numeric_limits<int32_t>::max();  // of a micro-batch
constexpr int64_t max_microbatches = 1 << 20;                        // of a rank

bool has_several(const RuleCase& c) { return c.l.accumulation > 1; }

std::string batch_message(const RuleCase& c) {
  using enum LayoutKey;
  const int64_t unit = c.l.micro_batch * c.l.logical_dp;
  const std::string workers =
      c.l.logical_dp == 1
          ? ""
          : fmt::format(" x {} {} = {}", c.l.logical_dp,
                        c.l.logical_dp == c.l.data_ranks() ? "data ranks" : "workers (logical_dp)",
                        unit);
  return fmt::format("{} = {}: must be a multiple of {} = {}{}; nearest: {}", c.name(global_batch),
                     c.work.global_batch, c.name(micro_batch), c.l.micro_batch, workers,
                     nearest_multiples(c.work.global_batch, unit));
}

double step_activations(const RuleCase& c) {
  return c.model.activations_per_token * static_cast<double>(c.l.micro_batch) *
         static_cast<double>(c.work.seq_len) * static_cast<double>(c.l.rank_microbatches());
}

}  // namespace

std::vector<Rule> size_rules() {
  using enum LayoutKey;
  return {
      {.id = "batch.micro_batch",
       .whose = Whose::any,
       .keys = {micro_batch},
       .spoils = Known::batch | Known::data,
       .holds = [](const RuleCase& c) { return c.l.micro_batch >= 1; },
       .message =
           [](const RuleCase& c) {
             return fmt::format("{} = {}: at least 1 sequence", c.name(micro_batch),
                                c.l.micro_batch);
           }},
      {.id = "seq_len.range",
       .whose = Whose::any,
       .keys = {seq_len, model},
       .spoils = Known::batch,
       .holds =
           [](const RuleCase& c) {
             return c.work.seq_len >= 1 &&
                    (c.model.max_seq == 0 || c.work.seq_len <= c.model.max_seq);
           },
       .message =
           [](const RuleCase& c) {
             if (c.work.seq_len < 1) {
               return fmt::format("{} = {}: at least 1", c.name(seq_len), c.work.seq_len);
             }
             return fmt::format("{} = {}: must be at most the model's max_seq = {}; nearest: {}",
                                c.name(seq_len), c.work.seq_len, c.model.max_seq, c.model.max_seq);
           }},
      {.id = "batch.tokens",
       .whose = Whose::any,
       .keys = {micro_batch, seq_len},
       .needs = Known::batch,
       .spoils = Known::batch,
       .holds = [](const RuleCase& c) { return c.l.micro_batch <= max_tokens / c.work.seq_len; },
       .message =
           [](const RuleCase& c) {
             return fmt::format(
                 "{} = {}: with {} = {} a micro-batch would have more than {} tokens; nearest: {}",
                 c.name(micro_batch), c.l.micro_batch, c.name(seq_len), c.work.seq_len, max_tokens,
                 max_tokens / c.work.seq_len);
           }},
  };
}

std::vector<Rule> data_rules() {
  using enum LayoutKey;
  return {
      {.id = "dp.count",
       .whose = Whose::engine,
       .keys = {dp_shard, dp_replicate},
       .needs = Known::degrees,
       .spoils = Known::data | Known::batch,
       .holds =
           [](const RuleCase& c) { return int64_t{c.l.dp_replicate} * c.l.dp_shard <= max_degree; },
       .message =
           [](const RuleCase& c) {
             return fmt::format("{} = {}: with {} = {} at most {} data ranks; nearest: {}",
                                c.name(dp_shard), c.l.dp_shard, c.name(dp_replicate),
                                c.l.dp_replicate, max_degree, max_degree / c.l.dp_replicate);
           }},
      {.id = "zero.stage",
       .whose = Whose::any,
       .keys = {zero_stage, dp_shard},
       .needs = Known::degrees | Known::data,
       .holds =
           [](const RuleCase& c) {
             const bool is_sharded = c.l.dp_shard > 1 || c.l.cp > 1;
             return c.l.zero_stage >= 0 && c.l.zero_stage <= 3 &&
                    (c.l.dp_shard == 1 || c.l.zero_stage > 0) &&
                    (is_sharded || c.l.zero_stage == 0);
           },
       .message =
           [](const RuleCase& c) {
             if (c.l.zero_stage == 0) {
               return fmt::format(
                   "{} = 0: shards nothing over {} = {}; nearest: 1, or {} = {} with {} = 1",
                   c.name(zero_stage), c.name(dp_shard), c.l.dp_shard, c.name(dp_replicate),
                   c.l.data_ranks(), c.name(dp_shard));
             }
             return fmt::format("{} = {}: from 1 to 3, or 0 with {} = 1", c.name(zero_stage),
                                c.l.zero_stage, c.name(dp_shard));
           }},
      {.id = "logical_dp.multiple",
       .whose = Whose::engine,
       .keys = {logical_dp, dp_replicate, dp_shard},
       .needs = Known::degrees | Known::data,
       .spoils = Known::batch,
       .holds =
           [](const RuleCase& c) {
             return c.l.logical_dp >= 1 && c.l.logical_dp <= max_degree &&
                    c.l.logical_dp % c.l.data_ranks() == 0;
           },
       .message =
           [](const RuleCase& c) {
             const int64_t near = std::min<int64_t>(c.l.logical_dp, max_degree / 2);
             return fmt::format(
                 "{} = {}: must be a multiple of the {} data ranks{}; nearest: {}",
                 c.name(logical_dp), c.l.logical_dp, c.l.data_ranks(),
                 c.l.logical_dp > max_degree ? fmt::format(" up to {}", max_degree) : "",
                 nearest_multiples(near, c.l.data_ranks()));
           }},
      {.id = "batch.divides",
       .whose = Whose::any,
       .keys = {global_batch, micro_batch, dp_replicate, dp_shard, logical_dp},
       .needs = Known::degrees | Known::data | Known::batch,
       .spoils = Known::batch,
       .holds =
           [](const RuleCase& c) {
             return c.work.global_batch == 0 ||
                    c.work.global_batch % (c.l.micro_batch * c.l.logical_dp) == 0;
           },
       .message = batch_message},
      {.id = "batch.accumulation",
       .whose = Whose::any,
       .keys = {accumulation, global_batch, micro_batch},
       .needs = Known::degrees | Known::data | Known::batch,
       .spoils = Known::batch,
       .holds =
           [](const RuleCase& c) {
             return c.l.accumulation >= 1 &&
                    (c.work.global_batch == 0 || c.l.global_batch() == c.work.global_batch);
           },
       .message =
           [](const RuleCase& c) {
             return fmt::format("{} = {}: with {} = {} and {} workers the batch is {}, not {}",
                                c.name(accumulation), c.l.accumulation, c.name(micro_batch),
                                c.l.micro_batch, c.l.logical_dp, c.l.global_batch(),
                                c.work.global_batch);
           }},
      {.id = "batch.micro_batches",
       .whose = Whose::any,
       .keys = {global_batch, micro_batch, logical_dp},
       .needs = Known::degrees | Known::data | Known::batch,
       .spoils = Known::batch,
       .holds = [](const RuleCase& c) { return c.l.rank_microbatches() <= max_microbatches; },
       .message =
           [](const RuleCase& c) {
             return fmt::format("{} = {}: {} micro-batches per rank; at most {}",
                                c.name(global_batch), c.l.global_batch(), c.l.rank_microbatches(),
                                max_microbatches);
           }},
      {.id = "batch.activations",
       .whose = Whose::any,
       .keys = {micro_batch, seq_len, global_batch, model},
       .needs = Known::degrees | Known::data | Known::batch,
       .spoils = Known::batch,
       .holds =
           [](const RuleCase& c) {
             return step_activations(c) <= static_cast<double>(max_step_activations);
           },
       .message =
           [](const RuleCase& c) {
             return fmt::format(
                 "{} = {}: {} micro-batches of {} tokens have with this model {:.3g} activations "
                 "in "
                 "a step; at most {:.3g}",
                 c.name(micro_batch), c.l.micro_batch, c.l.rank_microbatches(),
                 c.l.micro_batch * c.work.seq_len, step_activations(c),
                 static_cast<double>(max_step_activations));
           }},
      {.id = "reduce.once",
       .whose = Whose::engine,
       .keys = {reduce, zero_stage, global_batch},
       .needs = Known::degrees | Known::data | Known::batch,
       .spoils = Known::batch,
       .holds =
           [](const RuleCase& c) {
             return !c.l.shards_grads() || !has_several(c) || c.l.reduce == ReduceWhen::each;
           },
       .message =
           [](const RuleCase& c) {
             return fmt::format(
                 "{} = once: with {} = {} and {} micro-batches per worker gradients are summed "
                 "after "
                 "each, because an unsharded gradient exists only during its layer's backward; "
                 "nearest: each, or {} = 1",
                 c.name(reduce), c.name(zero_stage), c.l.zero_stage, c.l.accumulation,
                 c.name(zero_stage));
           }},
      {.id = "inference.one_rank",
       .whose = Whose::engine,
       .keys = {tp, pp, dp_replicate, dp_shard, logical_dp, accumulation},
       .needs = Known::degrees | Known::data | Known::batch,
       .holds =
           [](const RuleCase& c) {
             return !c.work.inference ||
                    (c.l.ranks() == 1 && c.l.has_one_stage() && c.l.rank_microbatches() == 1);
           },
       .message =
           [](const RuleCase& c) {
             return fmt::format(
                 "inference runs one micro-batch on one rank in one stage, but this layout has {} "
                 "ranks, {} stages per rank and {} micro-batches",
                 c.l.ranks(), chunks_of(c.l), c.l.rank_microbatches());
           }},
  };
}

}  // namespace trireme::spec
