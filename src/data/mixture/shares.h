// SPDX-License-Identifier: Apache-2.0
// Exact shares of a mixture: integers in the proportion of the weights that a user wrote.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace trireme::data {

inline constexpr int max_mixture_sources = 4096;
// Smaller shares would make the blocks of ProportionalOrder, and the time to find a position, long.
inline constexpr double min_mixture_share = 1e-4;

// Returns positive integers with a sum of about 10^14 at most. Decimal fractions and integers of up
// to 13 digits are represented exactly, other weights with an error below 10^-13 of the sum: one
// sample in 10^13. Throws ConfigError that names the source (`names`, by
// index) if a weight is not positive and finite, or has less than min_mixture_share of the sum.
std::vector<int64_t> integer_shares(std::span<const double> weights,
                                    std::span<const std::string> names);

}  // namespace trireme::data
