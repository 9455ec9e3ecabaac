// SPDX-License-Identifier: Apache-2.0
// The CPU back end: Trireme's kernels compute everything, and only bf16 attention needs scratch.
#include "spec/facts/backend.h"

namespace trireme::spec {
namespace {

bool cpu_fuses_attention(const AttentionShape&) { return false; }

AttentionCall whole_cpu_attention(const Backend&, const AttentionShape& s) {
  return {s.sequences, s.kv_heads};
}

// dK and dV in fp32.
base::TensorSpec cpu_attention_workspace(const Backend&, const AttentionShape& s) {
  if (s.dtype == base::DType::f32) return {};
  return {{s.tokens() * 2 * s.kv_heads * s.head_dim}, base::DType::f32};
}

base::TensorSpec cpu_embedding_workspace(int64_t, int64_t) { return {}; }

base::TensorSpec cpu_attention_cached_workspace(const CachedAttentionShape&) { return {}; }

// dK and dV in fp32.
base::TensorSpec cpu_attention_ranges_workspace(const Backend&, const AttentionRangesShape& s) {
  if (s.grad_dtype == base::DType::f32) return {};
  return {{s.keys * 2 * s.kv_heads * s.head_dim}, base::DType::f32};
}

}  // namespace

const ScratchRules cpu_scratch = {cpu_fuses_attention,
                                  whole_cpu_attention,
                                  cpu_attention_workspace,
                                  cpu_embedding_workspace,
                                  cpu_attention_cached_workspace,
                                  cpu_attention_ranges_workspace};

Backend cpu_backend() { return {}; }

}  // namespace trireme::spec
