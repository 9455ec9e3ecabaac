// SPDX-License-Identifier: Apache-2.0
// Sources of decisions: random, or exhaustive enumeration.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/rng.h"

namespace trireme::crashlab {

class Choices {
 public:
  virtual ~Choices() = default;
  // Returns one of 0 ... options - 1.
  virtual uint64_t pick(uint64_t options) = 0;
  // Whether shapes are included that are too many to enumerate.
  virtual bool is_sampling() const = 0;
};

class Dice final : public Choices {
 public:
  explicit Dice(uint64_t seed) : seed_(seed) {}
  uint64_t pick(uint64_t options) override { return base::rng_below(seed_, next_++, options); }
  bool is_sampling() const override { return true; }

 private:
  uint64_t seed_, next_ = 0;
};

// Enumerates all sequences of decisions of a deterministic function, depth first:
//   Every every; do { f(every); } while (every.next());
class Every final : public Choices {
 public:
  uint64_t pick(uint64_t options) override {
    if (at_ == path_.size()) path_.push_back({0, options});
    return path_[at_++].first;
  }
  bool is_sampling() const override { return false; }
  // Returns false when all sequences have been enumerated.
  bool next() {
    at_ = 0;
    while (!path_.empty() && path_.back().first + 1 == path_.back().second) path_.pop_back();
    if (path_.empty()) return false;
    ++path_.back().first;
    return true;
  }

 private:
  std::vector<std::pair<uint64_t, uint64_t>> path_;  // chosen, options
  size_t at_ = 0;
};

}  // namespace trireme::crashlab
