// SPDX-License-Identifier: Apache-2.0
#include "board/series/pyramid.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace trireme::board {

void Extent::add(double value) {
  if (!std::isfinite(value)) {
    ++bad;
    return;
  }
  min = std::min(min, value);
  max = std::max(max, value);
  sum += value;
  ++finite;
}

void Extent::add(const Extent& other) {
  min = std::min(min, other.min);
  max = std::max(max, other.max);
  sum += other.sum;
  finite += other.finite;
  bad += other.bad;
}

void Pyramid::push_back(double value) {
  values_.push_back(value);
  size_t width = leaf;
  for (size_t level = 0; values_.size() % width == 0; ++level, width *= fan_out) add_node(level);
}

// Appends the node of `level` whose last value was just added.
void Pyramid::add_node(size_t level) {
  if (levels_.size() == level) levels_.emplace_back();
  Extent node;
  if (level == 0) {
    for (size_t i = values_.size() - leaf; i < values_.size(); ++i) node.add(values_[i]);
  } else {
    const std::vector<Extent>& below = levels_[level - 1];
    for (size_t i = below.size() - fan_out; i < below.size(); ++i) node.add(below[i]);
  }
  levels_[level].push_back(node);
}

void Pyramid::replace_tail(size_t first, const std::vector<double>& values) {
  TRIREME_CHECK(first <= values_.size(), "value {} of {}", first, values_.size());
  // Nodes that end at or before `first` stay.
  values_.resize(first);
  size_t width = leaf;
  for (std::vector<Extent>& level : levels_) {
    level.resize(std::min(level.size(), first / width));
    width *= fan_out;
  }
  for (const double value : values) push_back(value);
}

Extent Pyramid::extent(size_t begin, size_t end) const {
  TRIREME_CHECK(begin <= end && end <= values_.size(), "values {} to {} of {}", begin, end,
                values_.size());
  Extent sum;
  // Climbs while a node of the next level begins here and ends in the range, otherwise descends.
  size_t at = begin;
  while (at < end) {
    if (at % leaf != 0 || at + leaf > end) {
      sum.add(values_[at++]);
      continue;
    }
    size_t level = 0, width = leaf;
    while (level + 1 < levels_.size() && at % (width * fan_out) == 0 &&
           at + width * fan_out <= end) {
      ++level;
      width *= fan_out;
    }
    sum.add(levels_[level][at / width]);
    at += width;
  }
  return sum;
}

}  // namespace trireme::board
