// SPDX-License-Identifier: Apache-2.0
#include "spec/facts/op_shapes.h"

#include <algorithm>

namespace trireme::spec {
namespace {

constexpr int64_t f32_bytes = 4;

base::TensorSpec flat_f32(int64_t bytes) {
  return {{(bytes + f32_bytes - 1) / f32_bytes}, base::DType::f32};
}

// What cuDNN's backward asks for one call, beside delta and the sum of dQ that we hand it. With
// grouped queries dK and dV of all query heads are kept in bf16; deterministic sums of dQ keep the
// whole matrix of dS in bf16, its sides padded.
int64_t cudnn_bytes(const AttentionShape& s, const AttentionCall& call, bool deterministic) {
  const int64_t heads = call.kv_heads * (s.heads / s.kv_heads);
  const int64_t rows = call.sequences * heads * s.seq_len;
  int64_t bytes = base::grain_bytes;
  if (s.heads != s.kv_heads) bytes += 2 * 2 * rows * s.head_dim;
  if (deterministic) {
    bytes +=
        2 * call.sequences * heads * base::round_up(s.seq_len, 64) * base::round_up(s.seq_len, 128);
  }
  return bytes;
}

}  // namespace

base::TensorSpec norm_backward_partials(NormKind kind, int64_t rows, int64_t width,
                                        bool sums_dresidual) {
  const int64_t sums = norm_stats(kind) + (sums_dresidual ? 1 : 0);
  return {{norm_partials(rows), width * sums}, base::DType::f32};
}

Backend cpu_backend() { return {}; }

Backend cuda_backend(bool deterministic) {
  return {.name = "cuda",
          .deterministic = deterministic,
          .stream_workspace_bytes = 64 << 20,
          .logits_bytes = int64_t{2} << 30,
          .attention_bytes = int64_t{2304} << 20,
          .row_grain = 64};
}

base::TensorSpec stream_workspace_spec(const Backend& backend) {
  if (backend.stream_workspace_bytes == 0) return {};
  return {{backend.stream_workspace_bytes}, base::DType::u8};
}

bool attention_is_fused(const Backend& backend, const AttentionShape& s) {
  return backend.name == "cuda" && s.dtype == base::DType::bf16 && !s.has_documents &&
         s.seq_len >= 64 && (s.head_dim == 64 || s.head_dim == 128);
}

AttentionCall attention_call(const Backend& backend, const AttentionShape& s) {
  AttentionCall call{s.sequences, s.kv_heads};
  if (!backend.deterministic || !attention_is_fused(backend, s)) return call;
  // Halve the sequences, then the heads, down to one of each.
  while (cudnn_bytes(s, call, true) > backend.attention_bytes) {
    int64_t& part = call.sequences > 1 ? call.sequences : call.kv_heads;
    if (part == 1) break;
    part = (part + 1) / 2;
  }
  return call;
}

base::TensorSpec attention_workspace(const Backend& backend, const AttentionShape& s) {
  if (backend.name == "cpu") {
    if (s.dtype == base::DType::f32) return {};
    return flat_f32(f32_bytes * s.tokens() * 2 * s.kv_heads * s.head_dim);
  }
  const int64_t delta = f32_bytes * s.tokens() * s.heads;
  if (!attention_is_fused(backend, s)) return flat_f32(delta);
  const int64_t delta_bytes = base::round_up(delta, base::grain_bytes);
  const int64_t dq_sum = backend.deterministic ? 0 : delta_bytes * s.head_dim;
  return flat_f32(delta_bytes + dq_sum +
                  cudnn_bytes(s, attention_call(backend, s), backend.deterministic));
}

base::TensorSpec embedding_workspace(const Backend& backend, int64_t tokens, int64_t width) {
  if (backend.name == "cpu") return {};
  // Two arrays of (row, token) keys for the merge sort, and two partial rows for every block of
  // sorted tokens: of the run that comes in from the left, and of the one that goes out.
  const int64_t blocks = (tokens + embedding_block - 1) / embedding_block;
  return {{base::round_up(2 * 8 * tokens, base::grain_bytes) + 2 * f32_bytes * blocks * width},
          base::DType::u8};
}

}  // namespace trireme::spec
