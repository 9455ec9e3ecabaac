// SPDX-License-Identifier: Apache-2.0
#include "spec/facts/rope.h"

#include <cmath>
#include <numbers>

#include "base/check.h"

namespace trireme::spec {
namespace {

double scaled(double frequency, const RopeScaling& s) {
  const double wavelength = 2 * std::numbers::pi / frequency;
  const auto original = static_cast<double>(s.original_max_position);
  if (wavelength < original / s.high_freq_factor) return frequency;
  if (wavelength > original / s.low_freq_factor) return frequency / s.factor;
  const double blend =
      (original / wavelength - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
  return (1 - blend) * frequency / s.factor + blend * frequency;
}

}  // namespace

std::vector<double> rope_frequencies(const RopeSpec& rope, int64_t head_dim) {
  TRIREME_CHECK(head_dim > 0 && head_dim % 2 == 0, "head_dim {}", head_dim);
  std::vector<double> frequencies;
  for (int64_t i = 0; i < head_dim / 2; ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(head_dim);
    const double frequency = std::pow(rope.theta, exponent);
    frequencies.push_back(rope.scaling ? scaled(frequency, *rope.scaling) : frequency);
  }
  return frequencies;
}

std::vector<float> rope_table(const RopeSpec& rope, int64_t head_dim, int64_t positions) {
  const std::vector<double> frequencies = rope_frequencies(rope, head_dim);
  std::vector<float> table;
  table.reserve(static_cast<size_t>(positions * head_dim));
  for (int64_t position = 0; position < positions; ++position) {
    for (const double f : frequencies) {
      table.push_back(static_cast<float>(std::cos(static_cast<double>(position) * f)));
    }
    for (const double f : frequencies) {
      table.push_back(static_cast<float>(std::sin(static_cast<double>(position) * f)));
    }
  }
  return table;
}

}  // namespace trireme::spec
