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

// Parameters start, and shards are cut, at multiples of this many elements of a bucket; the
// gradient norm adds up blocks of this size. 128 bf16 elements are one grain of memory.
constexpr int64_t shard_grain_elements = 128;

// Device memory that closing a step needs: kernels::StepSums and kernels::StepState.
constexpr int64_t step_sums_bytes = 88;
constexpr int64_t step_state_bytes = 80;

// What a kernel table needs beyond its operands.
struct Backend {
  std::string name = "cpu";
  // Attention's backward adds dk and dv up in fp32 scratch when they are stored in bf16.
  bool attention_needs_f32_sums = true;

  bool operator==(const Backend&) const = default;
};

// Scratch of attention_backward: [T, 2 G K] f32, or nothing (empty shape).
inline base::TensorSpec attention_workspace(const Backend& backend, base::DType dtype,
                                            int64_t tokens, int64_t kv_heads, int64_t head_dim) {
  if (dtype == base::DType::f32 || !backend.attention_needs_f32_sums) return {};
  return {{tokens, 2 * kv_heads * head_dim}, base::DType::f32};
}

}  // namespace trireme::spec
