// SPDX-License-Identifier: Apache-2.0
// The bodies of the ops merge_sums, add_layers and merge_records, shared by all back ends: what a
// rank's record of a step contains (spec::step_record_bytes), and what the records of all ranks
// add up to. Every sum has one order, so all back ends have the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/step_state.h"
#include "kernels/wide_sum.h"

namespace trireme::kernels {

constexpr int64_t layers_of_record(int64_t bytes) {
  return (bytes - spec::step_record_bytes(0)) / static_cast<int64_t>(sizeof(double));
}

// Records of several ranks, one after the other. Templates, since a compiler checks only when one
// is evaluated at compile time that a constexpr function casts no pointers.
struct Records {
  const std::byte* first = nullptr;
  int64_t bytes = 0;  // of one record
  int64_t count = 0;
  int64_t copies = 1, slices = 1;  // MergeSumsArgs

  template <int = 0>
  constexpr const StepSums& sums(int64_t rank) const {
    return *reinterpret_cast<const StepSums*>(first + rank * bytes);
  }
  template <int = 0>
  constexpr const StepCounts& counts(int64_t rank) const {
    return *reinterpret_cast<const StepCounts*>(first + rank * bytes + sizeof(StepSums));
  }
  template <int = 0>
  constexpr double squares(int64_t rank, int64_t layer) const {
    return reinterpret_cast<const double*>(first + rank * bytes +
                                           spec::step_record_bytes(0))[layer];
  }
  constexpr int64_t data_ranks() const { return count / (copies * slices); }
  // Returns the rank whose loss and tokens count among the copies from `group` on: the first that
  // has tokens.
  template <int = 0>
  constexpr int64_t counted(int64_t group) const {
    int64_t rank = group;
    while (rank + 1 < group + copies && sums(rank).tokens == 0) ++rank;
    return rank;
  }
};

// The body of merge_sums.
template <int = 0>
constexpr StepSums merged(const Records& parts) {
  StepSums sums = {};
  for (int64_t first = 0; first < parts.count; first += parts.copies) {
    const int64_t counted = parts.counted(first);
    sums.loss += parts.sums(counted).loss;
    sums.tokens += parts.sums(counted).tokens;
    const int64_t sample = first - first % (parts.copies * parts.slices);
    if (first == sample) sums.samples += parts.sums(first).samples;
    for (int64_t i = first; i < first + parts.copies; ++i) {
      const StepSums& part = parts.sums(i);
      add_part(sums.squares, part.squares);
      sums.overflow += part.overflow;
      sums.unlike += part.unlike + (part.samples != parts.sums(sample).samples ? 1 : 0);
    }
  }
  return sums;
}

// ---- merge_records, item by item
template <int = 0>
constexpr StepCounts merged_counts(const Records& parts) {
  StepCounts counts = {};
  for (int64_t rank = 0; rank < parts.count; ++rank) {
    const StepCounts& part = parts.counts(rank);
    counts.update_squares += part.update_squares;
    if (rank % (parts.copies * parts.slices) != 0) continue;
    counts.masked += part.masked;
    counts.padding += part.padding;
  }
  return counts;
}

template <int = 0>
constexpr DataLoss merged_loss(const Records& parts, int64_t data_rank) {
  DataLoss loss = {};
  for (int64_t slice = 0; slice < parts.slices; ++slice) {
    const StepSums& part =
        parts.sums(parts.counted((data_rank * parts.slices + slice) * parts.copies));
    loss.loss += part.loss;
    loss.tokens += part.tokens;
  }
  return loss;
}

template <int = 0>
constexpr double merged_squares(const Records& parts, int64_t layer) {
  double sum = 0;
  for (int64_t rank = 0; rank < parts.count; ++rank) sum += parts.squares(rank, layer);
  return sum;
}

// ---- where the totals are (spec::step_totals_bytes)
struct Totals {
  StepCounts* counts;
  DataLoss* losses;  // by data rank
  double* squares;   // by layer
};
template <int = 0>
constexpr Totals totals_at(std::byte* data, int64_t data_ranks) {
  std::byte* losses = data + sizeof(StepCounts);
  return {reinterpret_cast<StepCounts*>(data), reinterpret_cast<DataLoss*>(losses),
          reinterpret_cast<double*>(losses + data_ranks * spec::data_loss_bytes)};
}

}  // namespace trireme::kernels
