// SPDX-License-Identifier: Apache-2.0
// The CUDA back end: cuDNN computes attention of the shapes that it has kernels for, and
// embedding_backward sorts its tokens.
#include "spec/facts/backend.h"

#include <algorithm>

namespace trireme::spec {
namespace {

constexpr int64_t f32_bytes = 4;

base::TensorSpec flat_f32(int64_t bytes) {
  return {{(bytes + f32_bytes - 1) / f32_bytes}, base::DType::f32};
}

// cuDNN has no kernel for fp32, borders of documents and other head sizes.
bool cudnn_fuses_attention(const AttentionShape& s) {
  return base::is_real(s.dtype) && s.dtype != base::DType::f32 && !s.has_documents &&
         s.seq_len >= 64 && (s.head_dim == 64 || s.head_dim == 128);
}

// Returns the bytes that cuDNN's backward needs for one call, beside delta and the sum of dQ that
// the caller passes. With grouped queries it keeps dK and dV of all query heads in 16
// bits; deterministic sums of dQ keep the whole matrix of dS in 16 bits, its sides padded.
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

AttentionCall cudnn_attention_call(const Backend& backend, const AttentionShape& s) {
  AttentionCall call{s.sequences, s.kv_heads};
  if (!backend.deterministic || !cudnn_fuses_attention(s)) return call;
  // Halve the sequences, then the heads, down to one of each.
  while (cudnn_bytes(s, call, true) > backend.attention_bytes) {
    int64_t& part = call.sequences > 1 ? call.sequences : call.kv_heads;
    if (part == 1) break;
    part = (part + 1) / 2;
  }
  return call;
}

// The backward of documents: delta, lse in another order, the sum of dQ, with rows as wide as those
// of q, k and v in one tensor, and with grouped queries dK and dV of all query heads in such rows.
int64_t document_bytes(const AttentionShape& s) {
  const int64_t delta = base::round_up(f32_bytes * s.tokens() * s.heads, base::grain_bytes);
  const int64_t width = (s.heads + 2 * s.kv_heads) * s.head_dim;
  const int64_t group = s.heads / s.kv_heads;
  const int64_t calls_of_row = width / (2 * s.kv_heads * s.head_dim);
  const int64_t parts = group == 1 ? 0 : (group + calls_of_row - 1) / calls_of_row;
  return 2 * delta + base::round_up(f32_bytes * s.tokens() * width, base::grain_bytes) +
         parts * base::round_up(2 * s.tokens() * width, base::grain_bytes);
}

base::TensorSpec cuda_attention_workspace(const Backend& backend, const AttentionShape& s) {
  const int64_t delta = f32_bytes * s.tokens() * s.heads;
  const bool has_tensor_cores =
      s.dtype == base::DType::bf16 && (s.head_dim == 64 || s.head_dim == 128);
  if (s.has_documents && has_tensor_cores && !backend.deterministic) {
    return flat_f32(document_bytes(s));
  }
  if (!cudnn_fuses_attention(s)) return flat_f32(delta);
  const int64_t delta_bytes = base::round_up(delta, base::grain_bytes);
  const int64_t dq_sum = backend.deterministic ? 0 : delta_bytes * s.head_dim;
  const int64_t cudnn = delta_bytes + dq_sum +
                        cudnn_bytes(s, cudnn_attention_call(backend, s), backend.deterministic);
  const bool is_flash = may_be_flash(backend.deterministic, s.head_dim, s.seq_len);
  return flat_f32(is_flash ? std::max(cudnn, flash_scratch(s).bytes()) : cudnn);
}

// Two arrays of (row, token) keys for the merge sort, and two partial rows for every block of
// sorted tokens: of the run that enters from the left, and of the one that leaves to the right.
base::TensorSpec cuda_embedding_workspace(int64_t tokens, int64_t width) {
  const int64_t blocks = (tokens + embedding_block - 1) / embedding_block;
  return {{base::round_up(2 * 8 * tokens, base::grain_bytes) + 2 * f32_bytes * blocks * width},
          base::DType::u8};
}

// For every row, head and split: the highest score, the sum of exponentials and the weighted sum
// of values.
base::TensorSpec cuda_attention_cached_workspace(const CachedAttentionShape& s) {
  const int64_t splits = cached_splits(s.max_length);
  if (splits == 1) return {};
  return {{s.rows * s.heads * splits * (s.head_dim + 2)}, base::DType::f32};
}

// As cudnn_bytes(), for `call` of queries over all keys.
int64_t cudnn_ranges_bytes(const Backend& backend, const AttentionRangesShape& s,
                           const AttentionRangesCall& call) {
  const int64_t heads = call.kv_heads * (s.heads / s.kv_heads);
  int64_t bytes = base::grain_bytes;
  if (s.heads != s.kv_heads) bytes += 2 * 2 * heads * s.keys * s.head_dim;
  if (backend.deterministic) {
    bytes += 2 * heads * base::round_up(call.rows, 64) * base::round_up(s.keys, 128);
  }
  return bytes;
}

// delta; the fp32 sum of dQ unless deterministic; dQ, dK and dV in bf16, as cuDNN writes them; fp32
// sums of dK and dV over chunks if their result is bf16; cuDNN's own scratch.
base::TensorSpec cuda_attention_ranges_workspace(const Backend& backend,
                                                 const AttentionRangesShape& s) {
  const int64_t delta = f32_bytes * s.rows * s.heads;
  if (!cuda_fuses_ranges(s)) return flat_f32(delta);
  const int64_t delta_bytes = base::round_up(delta, base::grain_bytes);
  const AttentionRangesCall call = cuda_ranges_call(backend, s);
  const int64_t dq = delta_bytes * s.head_dim;
  const int64_t dkv = base::round_up(2 * s.keys * call.kv_heads * s.head_dim, base::grain_bytes);
  const int64_t sums = f32_bytes * s.keys * s.kv_heads * s.head_dim;
  return flat_f32(delta_bytes + (backend.deterministic ? 0 : dq) + dq / 2 + 2 * dkv +
                  (s.grad_dtype == base::DType::f32 ? 0 : 2 * sums) +
                  cudnn_ranges_bytes(backend, s, call));
}

}  // namespace

FlashScratch flash_scratch(const AttentionShape& s) {
  const int64_t padded = base::round_up(s.seq_len, flash_tile_keys), heads = s.sequences * s.heads;
  const int64_t tiles = heads * (padded / flash_tile_queries(s.head_dim));
  return {.rows = base::round_up(f32_bytes * heads * padded, base::grain_bytes),
          .dq = f32_bytes * heads * padded * s.head_dim,
          .turns = base::round_up(f32_bytes * (2 * tiles + 1), base::grain_bytes)};
}

bool cuda_fuses_ranges(const AttentionRangesShape& s) {
  return s.dtype == base::DType::bf16 && (s.head_dim == 64 || s.head_dim == 128);
}

AttentionRangesCall cuda_ranges_call(const Backend& backend, const AttentionRangesShape& s) {
  AttentionRangesCall call{s.rows, s.kv_heads};
  // Halve the heads down to one, then the rows, of which only deterministic sums take memory.
  while (cudnn_ranges_bytes(backend, s, call) > backend.attention_bytes) {
    if (call.kv_heads > 1) {
      call.kv_heads = (call.kv_heads + 1) / 2;
    } else if (backend.deterministic && call.rows > 128) {
      call.rows = base::round_up((call.rows + 1) / 2, 64);
    } else {
      break;
    }
  }
  return call;
}

const ScratchRules cuda_scratch = {
    cudnn_fuses_attention,           cudnn_attention_call,
    cuda_attention_workspace,        cuda_embedding_workspace,
    cuda_attention_cached_workspace, cuda_attention_ranges_workspace};

Backend cuda_backend(bool deterministic) {
  return {.name = "cuda",
          .deterministic = deterministic,
          .stream_workspace_bytes = 64 << 20,
          .logits_bytes = int64_t{2} << 30,
          .attention_bytes = int64_t{2304} << 20,
          .row_grain = 64,
          .expert_tile = 128,
          .scratch = &cuda_scratch};
}

}  // namespace trireme::spec
