// SPDX-License-Identifier: Apache-2.0
#include "train/numerics/gather_numerics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>

#include "base/check.h"
#include "spec/recipe.h"

namespace trireme::train {
namespace {

// What a rank sends of one layer. Without counts, only the first two are sent.
struct Sent {
  int64_t layer = 0;
  std::array<float, spec::quantized_count> amax{};
  std::array<RoleCounts, spec::quantized_count> counts{};
};
constexpr size_t short_bytes = offsetof(Sent, counts);

// NaN and infinity win, as on the device.
double larger(double a, double b) { return std::isnan(a) || a > b ? a : b; }

}  // namespace

std::vector<LayerFigures> gather_numerics(engine::Engine& engine, Rank& rank,
                                          const spec::ModelSpec& model, bool is_measured) {
  const size_t bytes = is_measured ? sizeof(Sent) : short_bytes;
  std::string mine;
  for (const engine::LayerNumerics& of : engine.numerics()) {
    Sent sent{.layer = of.layer};
    for (size_t q = 0; q < sent.amax.size(); ++q) {
      const engine::RoleNumerics& role = of.by[q];
      sent.amax[q] = static_cast<float>(role.amax);
      sent.counts[q] = {.amax = 0,
                        .values = role.values,
                        .flushed = role.flushed,
                        .saturated = role.saturated,
                        .signal = role.signal,
                        .noise = role.noise};
    }
    mine.append(reinterpret_cast<const char*>(&sent), bytes);
  }
  std::map<int, std::array<RoleCounts, spec::quantized_count>> sums;
  for (const std::string& text : rank.all_gather_texts(mine)) {
    TRIREME_CHECK(text.size() % bytes == 0, "{} bytes of layers with {}", text.size(), bytes);
    for (size_t at = 0; at < text.size(); at += bytes) {
      Sent sent;
      std::memcpy(&sent, text.data() + at, bytes);
      auto& sum = sums[static_cast<int>(sent.layer)];
      for (size_t q = 0; q < sum.size(); ++q) {
        sum[q].amax = larger(sent.amax[q], sum[q].amax);
        sum[q].values += sent.counts[q].values;
        sum[q].flushed += sent.counts[q].flushed;
        sum[q].saturated += sent.counts[q].saturated;
        sum[q].signal += sent.counts[q].signal;
        sum[q].noise += sent.counts[q].noise;
      }
    }
  }
  std::vector<LayerFigures> all;
  for (const auto& [layer, sum] : sums) {
    const spec::Recipe recipe = spec::layer_recipe(engine.plan().recipe, model, layer);
    LayerFigures figures{.layer = layer, .by = {}};
    for (size_t q = 0; q < sum.size(); ++q) {
      const auto role = static_cast<spec::Quantized>(q);
      figures[role] = figures_of(sum[q], recipe.format(role));
    }
    all.push_back(figures);
  }
  return all;
}

}  // namespace trireme::train
