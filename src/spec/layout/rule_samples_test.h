// SPDX-License-Identifier: Apache-2.0
// For every rule one layout that breaks it and no other rule.
#pragma once

#include <string>
#include <vector>

#include "spec/layout/rules.h"

namespace trireme::spec {

struct BrokenSample {
  std::string id;
  Layout asked;
  Workload work = {.seq_len = 16};
  int64_t ranks = 0;
  // Differences from the default model of the samples.
  bool tied = true;
  int64_t vocab = 96;
  int64_t experts = 0;
  bool whole_qk_norm = false;
};

// Six blocks of width 64 with 8 heads, 4 of them for keys and values, ffn 96, sequences up to 32.
inline ModelDims sample_dims(const BrokenSample& sample) {
  return {.name = "sample",
          .family = Family::llama,
          .layers = 6,
          .hidden = 64,
          .heads = 8,
          .kv_heads = 4,
          .ffn = 96,
          .vocab = sample.vocab,
          .max_seq = 32,
          .tied_head = sample.tied,
          .qk_norm = sample.whole_qk_norm,
          .qk_norm_whole = sample.whole_qk_norm};
}
constexpr int64_t sample_expert_ffn = 32;
inline ModelSizes sample_sizes(const BrokenSample& sample) {
  ModelSizes sizes = sizes_of(make_model(sample_dims(sample)));
  sizes.experts = sample.experts;
  if (sample.experts > 0) sizes.expert_ffn = sample_expert_ffn;
  return sizes;
}

inline Layout with_schedule(Layout layout, const std::string& text) {
  layout.custom_schedule = schedule::from_text(text).value();
  return layout;
}

inline std::vector<BrokenSample> broken_samples() {
  const std::string good = "0F0 0F1 0BW0 0BW1\n1F0 1BW0 1F1 1BW1\n";
  return {
      {"degree.range", {.tp = 0}},
      {"degree.product", {.dp_replicate = 2}, {.seq_len = 16}, 3},
      {"degree.one_rest",
       {.dp_replicate = -1, .dp_shard = -1, .zero_stage = -1},
       {.seq_len = 16},
       2},
      {"ep.divides", {.dp_replicate = 2, .ep = 2}},
      {.id = "etp.divides", .asked = {.dp_replicate = 3, .etp = 3}, .experts = 4},
      {.id = "ep.ranks", .asked = {.dp_replicate = 3, .ep = 2}, .experts = 4},
      {.id = "ep.sequence", .asked = {.tp = 2}, .experts = 4},
      {.id = "ep.ffn_rows", .asked = {.ffn_rows = 4}, .experts = 4},
      {.id = "row_budget.range", .asked = {.row_budget = 0.5}, .experts = 4},
      {.id = "expert_capacity.range", .asked = {.expert_capacity = -1}, .experts = 4},
      {"placement.engine", {.pp = 2, .dp_replicate = 2, .placement = Placement::pp_inside}},
      {"tp.divides", {.tp = 3}},
      {"tp.kv_heads", {.tp = 8}},
      {.id = "tp.vocab", .asked = {.tp = 4}, .vocab = 5},
      {.id = "tp.qk_norm", .asked = {.tp = 2}, .whole_qk_norm = true},
      {"sp.tokens", {.tp = 4, .sequence_parallel = true}, {.seq_len = 15}},
      {"sp.ffn_rows", {.tp = 4, .sequence_parallel = true, .ffn_rows = 3}},
      {"cp.ulysses", {.cp = 4, .context_kind = ContextKind::ulysses_gather, .ulysses = 3}},
      {"cp.heads", {.cp = 3, .context_kind = ContextKind::ulysses}, {.seq_len = 18}},
      {"cp.slices",
       {.cp = 2, .context_kind = ContextKind::ring, .context_slices = ContextSlices::blocks}},
      {"cp.seq_len", {.cp = 2}, {.seq_len = 18}},
      {"batch.micro_batch", {.micro_batch = 0}},
      {"seq_len.range", {}, {.seq_len = 33}},
      {"batch.tokens", {.micro_batch = int64_t{1} << 31}, {.seq_len = 16}},
      {"dp.count", {.dp_replicate = 1 << 16, .dp_shard = 2, .zero_stage = 1}},
      {"zero.stage", {.dp_shard = 2, .zero_stage = 0}},
      {"logical_dp.multiple", {.dp_replicate = 2, .logical_dp = 3}},
      {"batch.divides", {.dp_replicate = 2}, {.seq_len = 16, .global_batch = 3}},
      {"batch.accumulation", {.accumulation = 2}, {.seq_len = 16, .global_batch = 3}},
      {"batch.micro_batches", {.accumulation = (1 << 20) + 1}},
      {"batch.activations",
       {.micro_batch = int64_t{1} << 26, .accumulation = 1 << 20},
       {.seq_len = 16}},
      {"reduce.once",
       {.dp_shard = 2, .zero_stage = 2, .accumulation = 2, .reduce = ReduceWhen::once}},
      {"inference.one_rank", {.dp_replicate = 2}, {.seq_len = 16, .inference = true}},
      {"precision.engine", {.precision = Precision::fp4}},
      {"precision.grain", {.precision = Precision::fp8_block}},
      {"precision.tiles", {.ffn_rows = 4, .precision = Precision::fp8}},
      {"precision.muon", {.precision = Precision::fp8, .optimizer = OptimizerKind::muon}},
      {"precision.blocks", {.precision = Precision::fp8, .bf16_blocks = {6}}},
      {"precision.gradients", {.precision = Precision::fp16, .grad_dtype = base::DType::bf16}},
      {"grad_dtype.kind", {.grad_dtype = base::DType::i32}},
      {"reduce_dtype.kind", {.reduce_dtype = base::DType::i32}},
      {"master_dtype.kind", {.precision = Precision::fp32, .master_dtype = base::DType::u16}},
      {"prefetch.range", {.prefetch = -1}},
      {"send_buffers.range", {.send_buffers = 0}},
      {"head_chunk_rows.range", {.head_chunk_rows = -1}},
      {"ffn_rows.range", {.ffn_rows = -1}},
      {"schedule.lanes", {.pp = 2, .schedule = schedule::Kind::dualpipe, .accumulation = 4}},
      {"schedule.chunks", {.pp = 2, .chunks = 2}},
      {"schedule.custom_ranks", with_schedule({.pp = 3, .accumulation = 2}, good)},
      {"schedule.custom_lanes",
       with_schedule({.pp = 2, .accumulation = 2}, "0F0 1F1 0BW0 1BW1\n1F0 1BW0 0F1 0BW1\n")},
      {"schedule.custom_fault",
       with_schedule({.pp = 2, .accumulation = 2}, "0F0 0F1 0BW0 0BW1\n1F0 1F1 1BW0\n")},
      {"schedule.custom_recompute",
       with_schedule({.pp = 2, .accumulation = 1}, "0F0 0BW0\n1F0 1R0 1BW0\n")},
      {"schedule.custom_sends",
       with_schedule({.pp = 2, .accumulation = 2},
                     "0F0 0F1 0SendY0>1 0SendY1>1 0RecvDy0<1 0BW0 0RecvDy1<1 0BW1\n"
                     "1RecvX0<0 1F0 1BW0 1SendDx0>0 1RecvX1<0 1F1 1BW1 1SendDx1>0\n")},
      {"schedule.custom_micro_batches", with_schedule({.pp = 2, .accumulation = 3}, good)},
      {"pp.stages", {.pp = 16}},
      {"pp.first_layers", {.pp = 2, .first_layers = {0, 0}}},
      {"schedule.micro_batches",
       {.pp = 2, .schedule = schedule::Kind::dualpipe_v, .accumulation = 3}},
      {"zero.split_backward",
       {.pp = 2,
        .dp_shard = 2,
        .zero_stage = 2,
        .schedule = schedule::Kind::zb_h1,
        .accumulation = 4}},
      {"zero.order",
       {.pp = 2,
        .dp_shard = 2,
        .zero_stage = 2,
        .schedule = schedule::Kind::gpipe,
        .accumulation = 4}},
      {"reduce.order",
       {.pp = 2, .schedule = schedule::Kind::gpipe, .accumulation = 4, .reduce = ReduceWhen::each}},
      {"reduce.tied_order",
       {.pp = 2, .schedule = schedule::Kind::zb_v, .accumulation = 4, .logical_dp = 2}},
      {"zero.tied_stages",
       with_schedule({.pp = 1, .dp_shard = 2, .zero_stage = 3, .accumulation = 1},
                     "0F0 1F0 1BW0 0BW0\n")},
      {.id = "zero.pairs",
       .asked = with_schedule(
           {.pp = 2, .dp_shard = 2, .zero_stage = 3, .accumulation = 2, .reshard = Reshard::always},
           "0F0 0F1&0BW0 0BW1\n1F0 1BW0 1F1 1BW1\n"),
       .tied = false},
  };
}

}  // namespace trireme::spec
