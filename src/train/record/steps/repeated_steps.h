// SPDX-License-Identifier: Apache-2.0
// RepeatedSteps: a step that is computed again must consume the same samples and give the same
// loss. It compares what steps returned that a run computes twice, because a rank was replaced or
// because it went back to a checkpoint, so that every recovery is a check for silent corruption.
// Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace trireme::train {

class RepeatedSteps {
 public:
  // `is_exact`: sums are taken in a fixed order, so that repeated steps have the same bits.
  // Otherwise losses may differ by the relative tolerance.
  explicit RepeatedSteps(bool is_exact) : is_exact_(is_exact) {}
  static constexpr double tolerance = 1e-3;

  // Results of a step: of all ranks together, and what this rank has consumed.
  struct Result {
    double loss = 0;
    float grad_norm = 0;
    int64_t tokens = 0;
    std::optional<uint64_t> samples;  // TrainBatches::step_hash(); none: not known
  };
  struct Difference {
    std::string text;
    bool is_in_samples = false;  // those of this rank: others may have had the same
  };
  // Records a step. Returns how it differs from the one that was recorded before, for the first
  // such step after begin(): later ones follow from it.
  std::optional<Difference> add(int64_t step, const Result&);
  // Steps may be repeated from here on.
  void begin() { is_reported_ = false; }
  bool is_exact() const { return is_exact_; }

  static constexpr size_t max_steps = 100'000;  // that are remembered: the newest ones

 private:
  bool is_same(const Result& was, const Result& is) const;

  bool is_exact_, is_reported_ = false;
  std::map<int64_t, Result> results_;
};

}  // namespace trireme::train
