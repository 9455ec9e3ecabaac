// SPDX-License-Identifier: Apache-2.0
// Backend: the scratch that a kernel table needs beyond its operands, as numbers and as functions
// of shapes. The planner reads the same description as the kernels, so it needs no device. Each
// back end has a file: cpu_backend.cpp, cuda_backend.cpp.
#pragma once

#include <cstdint>
#include <string>

#include "base/shape.h"

namespace trireme::spec {

// The attention problem of a micro-batch.
struct AttentionShape {
  base::DType dtype = base::DType::f32;
  int64_t sequences = 1, seq_len = 0;  // of equal length, unless has_documents
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  bool has_documents = false;

  int64_t tokens() const { return sequences * seq_len; }
};

// The sequences and key/value heads that one call of attention_backward covers.
struct AttentionCall {
  int64_t sequences = 1, kv_heads = 1;
};

// A call of attention_cached.
struct CachedAttentionShape {
  int64_t rows = 0, heads = 0, head_dim = 0, max_length = 0;
};

// A call of attention_ranges_backward.
struct AttentionRangesShape {
  base::DType dtype = base::DType::f32;       // of q, k and v
  base::DType grad_dtype = base::DType::f32;  // of dk and dv
  int64_t rows = 0, keys = 0;                 // of queries, of keys
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
};

// The query rows and key/value heads that one call of cuDNN covers of attention_ranges_backward.
struct AttentionRangesCall {
  int64_t rows = 0, kv_heads = 1;
};

struct Backend;

// The functions of one back end. The free functions below call them and describe them.
struct ScratchRules {
  bool (*attention_is_fused)(const AttentionShape&);
  AttentionCall (*attention_call)(const Backend&, const AttentionShape&);
  base::TensorSpec (*attention_workspace)(const Backend&, const AttentionShape&);
  base::TensorSpec (*embedding_workspace)(int64_t tokens, int64_t width);
  base::TensorSpec (*attention_cached_workspace)(const CachedAttentionShape&);
  base::TensorSpec (*attention_ranges_workspace)(const Backend&, const AttentionRangesShape&);
};
extern const ScratchRules cpu_scratch, cuda_scratch;

struct Backend {
  std::string name = "cpu";  // cpu or cuda
  bool deterministic = true;
  int64_t stream_workspace_bytes = 0;  // of the compute stream, for libraries
  int64_t logits_bytes = 8 << 20;      // target size of a chunk of logits
  int64_t attention_bytes = 0;         // limit of one call of deterministic attention
  int64_t row_grain = 1;               // elements: rows of logits start at its multiples
  int64_t expert_tile = 1;             // rows: groups of an expert's rows start at its multiples
  const ScratchRules* scratch = &cpu_scratch;

  bool operator==(const Backend&) const = default;
};
Backend cpu_backend();
Backend cuda_backend(bool deterministic);

// Returns an empty shape if the back end needs none.
base::TensorSpec stream_workspace_spec(const Backend&);

// Does the back end's library (cuDNN) compute attention of this shape? Otherwise Trireme's kernel
// does.
bool attention_is_fused(const Backend&, const AttentionShape&);

// Returns what one call of attention_backward covers: all sequences and heads, except where
// deterministic sums need memory that grows with the square of the length.
AttentionCall attention_call(const Backend&, const AttentionShape&);

// Scratch of attention_backward: flat f32, or nothing (empty shape).
base::TensorSpec attention_workspace(const Backend&, const AttentionShape&);

// Is Trireme's attention_backward for Hopper GPUs, which is deterministic, as fast as any of
// cuDNN's? Measured on an H200, heads of 128: 18 % faster at 1,024 tokens, 2 % at 4,096, 7 % slower
// at 8,192.
constexpr bool is_flash_fastest(int64_t head_dim, int64_t seq_len) {
  return head_dim == 64 || seq_len <= 4096;
}
// On CUDA: may it run instead of cuDNN's?
constexpr bool may_be_flash(bool deterministic, int64_t head_dim, int64_t seq_len) {
  return deterministic || is_flash_fastest(head_dim, seq_len);
}
// Its scratch, in bytes: rows of lse and as many of delta, the sum of dQ in fp32, and how many
// parts of each tile have been added.
struct FlashScratch {
  int64_t rows = 0, dq = 0, turns = 0;
  int64_t bytes() const { return 2 * rows + dq + turns; }
};
constexpr int64_t flash_tile_keys = 128;
constexpr int64_t flash_tile_queries(int64_t head_dim) { return head_dim == 64 ? 128 : 64; }
FlashScratch flash_scratch(const AttentionShape&);

// On CUDA: does cuDNN compute attention_ranges_* of this shape if the host knows the ranges, and in
// which calls?
bool cuda_fuses_ranges(const AttentionRangesShape&);
AttentionRangesCall cuda_ranges_call(const Backend&, const AttentionRangesShape&);

// Scratch of attention_ranges_backward: flat f32, or nothing (empty shape).
base::TensorSpec attention_ranges_workspace(const Backend&, const AttentionRangesShape&);

// Scratch of attention_cached: flat f32, or nothing (empty shape).
base::TensorSpec attention_cached_workspace(const Backend&, const CachedAttentionShape&);

// Cached tokens that one thread block of the CUDA attention_cached reads. It depends on max_length
// only, so that the order of sums does not depend on the batch. A step waits for the longest chain
// of dependent reads, so ranges are short; the results of at most 64 are merged.
constexpr int64_t max_cached_splits = 64;
constexpr int64_t cached_split_tokens(int64_t max_length) {
  const int64_t part = (max_length + max_cached_splits - 1) / max_cached_splits;
  return (part + 31) / 32 * 32;
}
constexpr int64_t cached_splits(int64_t max_length) {
  const int64_t tokens = cached_split_tokens(max_length);
  return (max_length + tokens - 1) / tokens;
}

// Sorted tokens whose gradients one thread block of the CUDA embedding_backward sums.
constexpr int64_t embedding_block = 32;

// Scratch of embedding_backward over `tokens` rows of `width`: flat u8, or nothing (empty shape).
base::TensorSpec embedding_workspace(const Backend&, int64_t tokens, int64_t width);

}  // namespace trireme::spec
