// SPDX-License-Identifier: Apache-2.0
// Shapes on which facts() and the kernels must agree: statistics that are kept, and scratch that a
// row asks for.
#pragma once

#include <cstdint>
#include <string>

#include "base/shape.h"

namespace trireme::spec {

enum class NormKind : uint8_t { rms, layer };

// Statistics kept per row: rms {1 / rms}, layer {mean, 1 / deviation}.
constexpr int64_t norm_stats(NormKind kind) { return kind == NormKind::rms ? 1 : 2; }

// Rows whose weight gradients are summed together before the fixed-order sum over blocks.
constexpr int64_t norm_rows_per_partial = 32;
constexpr int64_t norm_partials(int64_t rows) {
  return (rows + norm_rows_per_partial - 1) / norm_rows_per_partial;
}

// Scratch of norm_backward over `rows` rows of `width`: a row of partial sums holds those of the
// weight's gradient, then of the bias's (layer), then of dresidual where that sum is asked for.
base::TensorSpec norm_backward_partials(NormKind, int64_t rows, int64_t width, bool sums_dresidual);

// Parameters start, and shards are cut, at multiples of this many elements of a bucket; the
// gradient norm adds up blocks of this size. 128 bf16 elements are one grain of memory.
constexpr int64_t shard_grain_elements = 128;

// A rank's rows of the vocabulary are padded to a multiple of this: 16 bytes of bf16, without which
// matrix products with that dimension are slow.
constexpr int64_t vocab_grain = 8;

// Sorted tokens whose gradients embedding_backward of the cuda back end sums in one go.
constexpr int64_t embedding_block = 32;

// Device memory that closing a step needs: kernels::StepSums and kernels::StepState.
constexpr int64_t step_sums_bytes = 104;
constexpr int64_t step_state_bytes = 120;

// What a kernel table needs beyond its operands.
struct Backend {
  std::string name = "cpu";  // cpu or cuda
  bool deterministic = true;
  int64_t stream_workspace_bytes = 0;  // of the compute stream, for libraries
  int64_t logits_bytes = 8 << 20;      // near which a chunk of logits is kept
  int64_t attention_bytes = 0;         // that one call of deterministic attention may take
  int64_t row_grain = 1;               // elements: rows of logits start at its multiples

  bool operator==(const Backend&) const = default;
};
Backend cpu_backend();
Backend cuda_backend(bool deterministic);

// Empty if the back end needs none.
base::TensorSpec stream_workspace_spec(const Backend&);

// A micro-batch as attention sees it.
struct AttentionShape {
  base::DType dtype = base::DType::f32;
  int64_t sequences = 1, seq_len = 0;  // of equal length, unless has_documents
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  bool has_documents = false;

  int64_t tokens() const { return sequences * seq_len; }
};

// Does cuDNN compute this shape on the cuda back end? Otherwise Trireme's own kernel does: fp32,
// document borders, head sizes that cuDNN has no kernel for.
bool attention_is_fused(const Backend&, const AttentionShape&);

// How many sequences and key/value heads the back end's attention_backward takes at one time: all,
// except where deterministic sums need memory that grows with the square of the length.
struct AttentionCall {
  int64_t sequences = 1, kv_heads = 1;
};
AttentionCall attention_call(const Backend&, const AttentionShape&);

// Scratch of attention_backward: flat f32, or nothing (empty shape).
base::TensorSpec attention_workspace(const Backend&, const AttentionShape&);

// Scratch of embedding_backward over `tokens` rows of `width`: flat u8, or nothing (empty shape).
base::TensorSpec embedding_workspace(const Backend&, int64_t tokens, int64_t width);

}  // namespace trireme::spec
