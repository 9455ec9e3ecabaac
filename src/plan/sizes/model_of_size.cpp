// SPDX-License-Identifier: Apache-2.0
#include "plan/sizes/model_of_size.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "base/check.h"

namespace trireme::plan {
namespace {

constexpr int64_t head_dim = 128, width_by_depth = 128;
// Query heads, in steps that tp can split.
constexpr auto head_counts =
    std::to_array<int64_t>({2,  3,  4,  5,  6,  7,  8,  10, 12,  14,  16,  18,  20,  24, 28,
                            32, 36, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256});

double real(int64_t value) { return static_cast<double>(value); }

int64_t parameters_of(const spec::ModelDims& dims) {
  return spec::parameter_count(spec::make_model(dims));
}

struct Sized {
  spec::ModelDims dims;
  double parameters = 0;
};

Sized with_heads(int64_t heads, double parameters, int64_t max_seq) {
  constexpr double large_vocabulary = 1e9, separate_head = 4e9;
  const int64_t hidden = heads * head_dim;
  int64_t groups = std::max<int64_t>(1, heads / 4);
  while (heads % groups != 0) --groups;
  constexpr int64_t grain = 256;
  spec::ModelDims dims{.family = spec::Family::llama,
                       .layers = 1,
                       .hidden = hidden,
                       .heads = heads,
                       .kv_heads = groups,
                       .head_dim = head_dim,
                       .ffn = (hidden * 7 / 2 + grain - 1) / grain * grain,
                       .vocab = parameters < large_vocabulary ? 32768 : 128256,
                       .max_seq = max_seq,
                       .tied_head = parameters < separate_head,
                       .rope = {.theta = 500000}};
  const double one = real(parameters_of(dims));
  dims.layers = 2;
  const double block = real(parameters_of(dims)) - one;
  // Far from the proportions there would be millions of layers, or none.
  const double depth = real(hidden / width_by_depth);
  dims.layers = static_cast<int>(
      std::clamp(std::round((parameters - one) / block + 1), 1.0, std::ceil(4 * depth)));
  return {dims, one + (dims.layers - 1) * block};
}

}  // namespace

spec::ModelDims model_of_size(double parameters, int64_t max_seq) {
  TRIREME_CHECK(parameters >= min_model_parameters && parameters <= max_model_parameters,
                "{} parameters", parameters);
  std::optional<spec::ModelDims> best;
  double least = 0;
  for (const int64_t heads : head_counts) {
    const auto [dims, size] = with_heads(heads, parameters, max_seq);
    // How far depth and size are from the wanted ones, as ratios; the size counts more.
    const double depth = std::log(real(dims.layers) * width_by_depth / real(dims.hidden));
    const double error = std::abs(depth) + 20 * std::abs(std::log(size / parameters));
    if (best && error >= least) continue;
    best = dims;
    least = error;
  }
  const double found = real(parameters_of(*best));
  best->name = found < 1e9 ? fmt::format("llama-{:.3g}m", found / 1e6)
                           : fmt::format("llama-{:.3g}b", found / 1e9);
  return *best;
}

double batch_tokens_for(double parameters, double run_tokens) {
  double tokens = 1 << 22;
  if (parameters < 20e9) tokens = 1 << 21;
  if (parameters < 4e9) tokens = 1 << 20;
  if (parameters < 1e9) tokens = 1 << 19;
  constexpr double min_steps = 1000, min_batch = 1 << 13;
  while (tokens > min_batch && run_tokens / tokens < min_steps) tokens /= 2;
  return tokens;
}

}  // namespace trireme::plan
