// SPDX-License-Identifier: Apache-2.0
#include "data/mixture/shares.h"

#include <fmt/core.h>

#include <cmath>
#include <numeric>

#include "base/check.h"
#include "base/error.h"

namespace trireme::data {
namespace {

using base::ConfigError;

double checked_sum(std::span<const double> weights, std::span<const std::string> names) {
  if (weights.empty() || weights.size() > max_mixture_sources) {
    throw ConfigError(fmt::format("a mixture of {} sources; allowed: 1 .. {}", weights.size(),
                                  max_mixture_sources));
  }
  double sum = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (!(weights[i] > 0 && weights[i] <= 1e15)) {
      throw ConfigError(fmt::format("source '{}': weight {}; allowed: above 0, up to 1e15",
                                    names[i], weights[i]));
    }
    sum += weights[i];
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] >= min_mixture_share * sum) continue;
    throw ConfigError(
        fmt::format("source '{}': weight {} is {:.2g} of the sum of weights {}; allowed: at least "
                    "{}. Raise it, or join small sources to one data set",
                    names[i], weights[i], weights[i] / sum, sum, min_mixture_share));
  }
  return sum;
}

}  // namespace

std::vector<int64_t> integer_shares(std::span<const double> weights,
                                    std::span<const std::string> names) {
  TRIREME_CHECK(weights.size() == names.size(), "{} weights, {} names", weights.size(),
                names.size());
  const double sum = checked_sum(weights, names);
  // A power of ten, so that decimal fractions become integers.
  const double scale = std::pow(10.0, 14 - std::ceil(std::log10(sum)));
  std::vector<int64_t> shares;
  int64_t divisor = 0;
  for (const double weight : weights) {
    shares.push_back(std::llround(weight * scale));
    divisor = std::gcd(divisor, shares.back());
  }
  for (int64_t& share : shares) share /= divisor;
  return shares;
}

}  // namespace trireme::data
