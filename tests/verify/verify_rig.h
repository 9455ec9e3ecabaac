// SPDX-License-Identifier: Apache-2.0
// Small jobs for verify, and a query of its report.
#pragma once

#include <algorithm>
#include <string>

#include "tests/engine/rig.h"
#include "train/verify/verify.h"

namespace trireme::tests {

// A model whose number of heads is even.
inline spec::ModelDims even_gpt2() {
  spec::ModelDims dims = tiny_gpt2();
  dims.heads = 4;
  return dims;
}

// Eight query heads, which cp can exchange in many ways.
inline spec::ModelDims with_heads(spec::ModelDims dims, int64_t kv_heads) {
  dims.heads = 8;
  dims.head_dim = 4;
  dims.kv_heads = kv_heads;
  dims.max_seq = 48;
  return dims;
}

// Six blocks: with embedding and head, eight layers.
inline spec::ModelDims deep(spec::ModelDims dims) {
  dims.layers = 6;
  return dims;
}

struct SmallJob {
  spec::ModelDims dims = tiny_llama();
  int dp = 1, zero = 1, stage = 0, tp = 1;
  bool sequence_parallel = false;
  std::string recipe = "fp32";
  base::DType grad = base::DType::f32, reduce_dtype = base::DType::f32;
  int logical_dp = 0;  // 0: dp * zero
  int microbatches = 1;
  spec::ReduceWhen reduce = spec::ReduceWhen::once;
  spec::Recompute recompute = spec::Recompute::none;
  bool document_mask = false;
  int prefetch = 1;
  bool prefetch_after = false;
  double deadline_s = 30;
  int pp = 1;
  std::string schedule = "1f1b";
  int chunks = 0;
  std::vector<int> cut = {};  // empty: balanced
  bool keep_params = false;
  int send_buffers = 2;
  int cp = 1;
  spec::ContextKind kind = spec::ContextKind::gather;
  spec::ContextSlices slices = spec::ContextSlices::zigzag;
  int ulysses = 0;  // 0: the default of the kind
  int64_t seq_len = 8, sequences = 1;
  int ep = 1, etp = 1;
  double expert_capacity = 0;
};

inline train::VerifyJob job_of(const SmallJob& s) {
  train::VerifyJob job;
  job.dims = s.dims;
  job.work = {.seq_len = s.seq_len, .document_mask = s.document_mask};
  job.layout = {.tp = s.tp,
                .cp = s.cp,
                .pp = s.pp,
                .dp_replicate = s.dp,
                .dp_shard = s.zero,
                .ep = s.ep,
                .etp = s.etp,
                .zero_stage = s.stage,
                .sequence_parallel = s.sequence_parallel,
                .context_kind = s.kind,
                .context_slices = s.slices,
                .ulysses = s.ulysses,
                .expert_capacity = s.expert_capacity,
                .schedule = *schedule::kind_from_name(s.schedule),
                .chunks = s.chunks,
                .first_layers = s.cut,
                .send_buffers = s.send_buffers,
                .micro_batch = s.sequences,
                .accumulation = s.microbatches,
                .logical_dp = s.logical_dp,
                .reduce = s.reduce,
                .recompute = s.recompute,
                .precision = *spec::precision_from_name(s.recipe),
                .grad_dtype = s.grad,
                .reduce_dtype = s.reduce_dtype,
                .reshard = s.keep_params ? spec::Reshard::never : spec::Reshard::always,
                .prefetch = s.prefetch,
                .prefetch_after = s.prefetch_after};
  job.system.device = "cpu";
  job.deadline_s = s.deadline_s;
  return job;
}

inline bool failed(const train::VerifyReport& report, const std::string& check) {
  return std::any_of(report.checks.begin(), report.checks.end(),
                     [&](const auto& c) { return c.name == check && !c.ok; });
}

}  // namespace trireme::tests
