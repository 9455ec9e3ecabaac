// SPDX-License-Identifier: Apache-2.0
// Pyramid: minimum, maximum, sum and number of non-finite values of any range of a growing list, in
// logarithmic time. Level k has one node for 16 * 4^k values. Every answer is that of a loop over
// the range, so a spike of one step is in the answer for every range that contains it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace trireme::board {

// What is known of a range of values. Without a finite value `min` is above `max`.
struct Extent {
  double min = std::numeric_limits<double>::infinity();
  double max = -std::numeric_limits<double>::infinity();
  double sum = 0;  // of the finite values
  int64_t finite = 0;
  int64_t bad = 0;  // NaN and infinities

  void add(double value);
  void add(const Extent& other);
  bool operator==(const Extent&) const = default;
};

class Pyramid {
 public:
  void push_back(double value);
  size_t size() const { return values_.size(); }
  double operator[](size_t index) const { return values_[index]; }
  const std::vector<double>& values() const { return values_; }

  // Replaces the values from `first` on. REQUIRES: first <= size().
  void replace_tail(size_t first, const std::vector<double>& values);

  // Returns the extent of [begin, end). REQUIRES: begin <= end <= size().
  Extent extent(size_t begin, size_t end) const;

 private:
  static constexpr size_t leaf = 16;    // values of a node of the lowest level
  static constexpr size_t fan_out = 4;  // nodes of a level in a node of the next

  void add_node(size_t level);

  std::vector<double> values_;
  std::vector<std::vector<Extent>> levels_;  // complete nodes only
};

}  // namespace trireme::board
