// SPDX-License-Identifier: Apache-2.0
#include "data/clean/near/bands.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cmath>
#include <limits>

#include "base/check.h"

namespace trireme::data {
namespace {

// Simpson's rule with 64 intervals; the integrand is a polynomial, and the result only ranks.
double area_below(const Bands& bands, double threshold) {
  constexpr int intervals = 64;
  double sum = 0;
  for (int i = 0; i <= intervals; ++i) {
    const double weight = i == 0 || i == intervals ? 1 : (i % 2 == 1 ? 4 : 2);
    sum += weight * detection(bands, threshold * i / intervals);
  }
  return sum * threshold / intervals / 3;
}

}  // namespace

double detection(const Bands& bands, double jaccard) {
  return 1 - std::pow(1 - std::pow(jaccard, bands.rows), bands.bands);
}

Bands choose_bands(int permutations, double threshold, double min_recall) {
  TRIREME_CHECK(permutations >= 1 && threshold > 0 && threshold <= 1, "{} permutations, {}",
                permutations, threshold);
  Bands best, fallback;
  double best_area = std::numeric_limits<double>::infinity(), max_recall = -1;
  for (int rows = 1; rows <= permutations; ++rows) {
    for (int count = 1; count * rows <= permutations; ++count) {
      const Bands bands{.bands = count, .rows = rows};
      const double recall = detection(bands, threshold);
      if (recall > max_recall) {
        max_recall = recall;
        fallback = bands;
      }
      if (recall < min_recall) continue;
      const double area = area_below(bands, threshold);
      if (area < best_area) {
        best_area = area;
        best = bands;
      }
      break;  // more bands of as many rows only add candidates
    }
  }
  return best.bands > 0 ? best : fallback;
}

void band_keys(const Bands& bands, std::span<const uint32_t> signature, std::span<uint64_t> keys) {
  const auto rows = static_cast<size_t>(bands.rows);
  TRIREME_CHECK(
      keys.size() == static_cast<size_t>(bands.bands) && keys.size() * rows <= signature.size(),
      "{} keys of {} rows, {} values", keys.size(), rows, signature.size());
  for (size_t band = 0; band < keys.size(); ++band) {
    keys[band] = XXH3_64bits(signature.data() + band * rows, rows * sizeof(uint32_t));
  }
}

}  // namespace trireme::data
