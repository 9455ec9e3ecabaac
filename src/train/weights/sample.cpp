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

int32_t sample(std::span<const float> logits, const SampleOptions& o, uint64_t draw) {
  TRIREME_CHECK(!logits.empty(), "no logits");
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto logit = [&logits](int32_t token) { return logits[static_cast<size_t>(token)]; };
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return logit(a) > logit(b); });
  if (o.temperature == 0) return order.front();
  if (o.top_k > 0 && o.top_k < static_cast<int64_t>(order.size())) {
    order.resize(static_cast<size_t>(o.top_k));
  }
  std::vector<double> weights;
  double sum = 0;
  for (const int32_t token : order) {
    weights.push_back(
        std::exp(static_cast<double>(logit(token) - logit(order.front())) / o.temperature));
    sum += weights.back();
  }
  double kept = 0;
  size_t count = 0;
  while (count < weights.size() && (count == 0 || kept < o.top_p * sum)) kept += weights[count++];

  double u = base::rng_uniform(base::rng_key(o.seed, "sample"), draw) * kept;
  for (size_t i = 0; i + 1 < count; ++i) {
    u -= weights[i];
    if (u < 0) return order[i];
  }
  return order[count - 1];
}

}  // namespace trireme::train
