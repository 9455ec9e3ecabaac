// SPDX-License-Identifier: Apache-2.0
// Shapes on which facts() and the kernels of every back end must agree: statistics, partial sums
// and grains. backend.h describes the scratch that depends on the back end.
#pragma once

#include <cstdint>

#include "base/shape.h"

namespace trireme::spec {

enum class NormKind : uint8_t { rms, layer };

// Statistics kept per row: rms {1 / rms}, layer {mean, 1 / deviation}.
constexpr int64_t norm_stats(NormKind kind) { return kind == NormKind::rms ? 1 : 2; }

// Rows whose weight gradients form one partial sum; the partial sums are added in a fixed order.
constexpr int64_t norm_rows_per_partial = 32;
constexpr int64_t norm_partials(int64_t rows) {
  return (rows + norm_rows_per_partial - 1) / norm_rows_per_partial;
}

// Scratch of norm_backward over `rows` rows of `width`: a row of partial sums contains those of the
// weight's gradient, then of the bias's (layer), then of dresidual if `sums_dresidual`.
base::TensorSpec norm_backward_partials(NormKind, int64_t rows, int64_t width, bool sums_dresidual);

// Parameters start, and shards are cut, at multiples of this many elements of a bucket; the
// gradient norm adds up blocks of this size. 128 bf16 elements are one grain of memory.
constexpr int64_t shard_grain_elements = 128;

// A rank's rows of the vocabulary are padded to a multiple of this: 16 bytes of bf16, without which
// matrix products with that dimension are slow.
constexpr int64_t vocab_grain = 8;

// Device memory of the end of a step: kernels::StepSums, StepCounts, StepState, WideSum and
// DataLoss.
constexpr int64_t step_sums_bytes = 112;
constexpr int64_t step_counts_bytes = 24;
constexpr int64_t step_state_bytes = 160;
constexpr int64_t wide_sum_bytes = 72;
constexpr int64_t data_loss_bytes = 16;
// What comes with the micro-batches of a step: the end of StepSums and the beginning of StepCounts
// (samples, masked and padding tokens).
constexpr int64_t batch_counts_bytes = 24;

// The record that a rank sends to all others when it closes a step: StepSums, StepCounts, and for
// each layer of the model the squares of its gradient (f64).
constexpr int64_t step_record_bytes(int64_t layers) {
  return step_sums_bytes + step_counts_bytes + layers * int64_t{sizeof(double)};
}
// What the records of all ranks contain together: StepCounts, one DataLoss for each data rank, and
// the squares by layer (f64).
constexpr int64_t step_totals_bytes(int64_t layers, int64_t data_ranks) {
  return step_counts_bytes + data_ranks * data_loss_bytes + layers * int64_t{sizeof(double)};
}

}  // namespace trireme::spec
