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

// The body of merge_sums: adds the sums of all ranks, one after the other.
class MergedSums {
 public:
  constexpr MergedSums(int64_t copies, int64_t slices) : copies_(copies), slices_(slices) {}

  // Adds the next rank. REQUIRES: its squares are normalised.
  constexpr void add(const StepSums& part) {
    if (copy_ == 0) is_counted_ = false;
    if (copy_ == 0 && slice_ == 0) {
      samples_ = part.samples;
      sums_.samples += part.samples;
    }
    // The first of the copies that has tokens counts (Records::counted).
    if (!is_counted_ && (part.tokens != 0 || copy_ + 1 == copies_)) {
      sums_.loss += part.loss;
      sums_.tokens += part.tokens;
      is_counted_ = true;
    }
    add_normalised(sums_.squares, part.squares);
    sums_.overflow += part.overflow;
    sums_.unlike += part.unlike + (part.samples != samples_ ? 1 : 0);
    if (++copy_ < copies_) return;
    copy_ = 0;
    if (++slice_ == slices_) slice_ = 0;
  }
  constexpr const StepSums& sums() const { return sums_; }

 private:
  int64_t copies_, slices_;
  int64_t copy_ = 0, slice_ = 0;  // where the next rank is
  bool is_counted_ = false;       // one of the copies so far
  uint64_t samples_ = 0;          // that the first rank of the data rank has
  StepSums sums_ = {};
};

template <int = 0>
constexpr StepSums merged(const Records& parts) {
  MergedSums all(parts.copies, parts.slices);
  for (int64_t rank = 0; rank < parts.count; ++rank) {
    StepSums part = parts.sums(rank);
    normalise(part.squares);
    all.add(part);
  }
  return all.sums();
}

// ---- merge_records, item by item

// The sum over ranks, in their order, of the double at byte `offset` of a record. Values are read
// many at a time: a GPU would otherwise wait for each.
template <int = 0>
constexpr double sum_of_ranks(const Records& parts, int64_t offset) {
  constexpr int64_t at_a_time = 16;
  const std::byte* first = parts.first + offset;
  double sum = 0;
  int64_t rank = 0;
  for (; rank + at_a_time <= parts.count; rank += at_a_time) {
    double values[at_a_time] = {};
    for (int64_t i = 0; i < at_a_time; ++i) {
      values[i] = *reinterpret_cast<const double*>(first + (rank + i) * parts.bytes);
    }
    for (int64_t i = 0; i < at_a_time; ++i) sum += values[i];
  }
  for (; rank < parts.count; ++rank) {
    sum += *reinterpret_cast<const double*>(first + rank * parts.bytes);
  }
  return sum;
}

template <int = 0>
constexpr StepCounts merged_counts(const Records& parts) {
  StepCounts counts = {};
  counts.update_squares = sum_of_ranks(
      parts, static_cast<int64_t>(sizeof(StepSums) + offsetof(StepCounts, update_squares)));
  for (int64_t rank = 0; rank < parts.count; rank += parts.copies * parts.slices) {
    counts.masked += parts.counts(rank).masked;
    counts.padding += parts.counts(rank).padding;
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
  return sum_of_ranks(parts,
                      spec::step_record_bytes(0) + layer * static_cast<int64_t>(sizeof(double)));
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
