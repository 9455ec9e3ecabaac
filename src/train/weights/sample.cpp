// SPDX-License-Identifier: Apache-2.0
#include "train/weights/sample.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "base/rng.h"

namespace trireme::train {

void check(const SampleOptions& o) {
  if (!(o.temperature >= 0) || !std::isfinite(o.temperature)) {
    throw base::ConfigError(fmt::format("temperature = {}: 0 or above", o.temperature));
  }
  if (o.top_k < 0) throw base::ConfigError(fmt::format("top_k = {}: 0 (all) or above", o.top_k));
  if (!(o.top_p > 0 && o.top_p <= 1)) {
    throw base::ConfigError(fmt::format("top_p = {}: above 0, at most 1", o.top_p));
  }
}

namespace {

// Tokens from the most to the least likely, sorted only as far as they are read.
class Ranking {
 public:
  explicit Ranking(std::span<const float> logits) : logits_(logits), order_(logits.size()) {
    std::iota(order_.begin(), order_.end(), 0);
  }
  int32_t operator[](size_t rank) {
    while (rank >= sorted_) grow();
    return order_[rank];
  }

 private:
  void grow() {
    const auto begin = order_.begin() + static_cast<ptrdiff_t>(sorted_);
    sorted_ = std::min(order_.size(), std::max<size_t>(64, 8 * sorted_));
    const auto end = order_.begin() + static_cast<ptrdiff_t>(sorted_);
    // Among equal logits the lower token is first.
    const auto is_before = [this](int32_t a, int32_t b) {
      const float x = logits_[static_cast<size_t>(a)], y = logits_[static_cast<size_t>(b)];
      return x > y || (x == y && a < b);
    };
    if (end != order_.end()) std::nth_element(begin, end, order_.end(), is_before);
    std::sort(begin, end, is_before);
  }

  std::span<const float> logits_;
  std::vector<int32_t> order_;
  size_t sorted_ = 0;
};

// Returns the first token with the highest logit.
int32_t first_highest(std::span<const float> logits) {
  size_t best = 0;
  bool is_number = true;
  for (size_t i = 0; i < logits.size(); ++i) {
    is_number &= logits[i] == logits[i];
    if (logits[i] > logits[best]) best = i;
  }
  if (!is_number) {
    throw base::ConfigError(
        "the model's logits are not numbers (NaN): its weights are damaged, or its training has "
        "diverged; use an earlier checkpoint");
  }
  return static_cast<int32_t>(best);
}

}  // namespace

int32_t sample(std::span<const float> logits, const SampleOptions& o, uint64_t draw) {
  TRIREME_CHECK(!logits.empty(), "no logits");
  const int32_t best = first_highest(logits);
  if (o.temperature == 0) return best;
  const auto weight = [&](int32_t token) {
    const float difference = logits[static_cast<size_t>(token)] - logits[static_cast<size_t>(best)];
    return std::exp(static_cast<double>(difference) / o.temperature);
  };
  Ranking ranking(logits);
  size_t count = logits.size();
  double sum = 0;
  if (o.top_k > 0 && static_cast<size_t>(o.top_k) < count) {
    count = static_cast<size_t>(o.top_k);
    for (size_t i = 0; i < count; ++i) sum += weight(ranking[i]);
  } else {
    for (size_t i = 0; i < count; ++i) sum += weight(static_cast<int32_t>(i));
  }
  double kept = sum;
  if (o.top_p < 1) {
    const size_t candidates = count;
    kept = 0;
    count = 0;
    while (count < candidates && (count == 0 || kept < o.top_p * sum)) {
      kept += weight(ranking[count++]);
    }
  }
  double u = base::rng_uniform(base::rng_key(o.seed, "sample"), draw) * kept;
  for (size_t i = 0; i + 1 < count; ++i) {
    u -= weight(ranking[i]);
    if (u < 0) return ranking[i];
  }
  return ranking[count - 1];
}

}  // namespace trireme::train
