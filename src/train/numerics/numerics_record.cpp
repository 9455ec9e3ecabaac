// SPDX-License-Identifier: Apache-2.0
#include "train/numerics/numerics_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace trireme::train {
namespace {

using spec::Quantized;

constexpr float no_value = std::numeric_limits<float>::quiet_NaN();

std::string block_name(int layer) { return fmt::format("blocks.{}", layer - 1); }

// A column of numerics.bin.
struct Column {
  const char* name;
  bool is_measured;
  double (*value)(const RoleFigures&);
};
constexpr Column columns[] = {
    {"amax_bits", false, [](const RoleFigures& of) { return std::log2(of.amax); }},
    {"flushed_share", true, [](const RoleFigures& of) { return of.flushed; }},
    {"saturated_share", true, [](const RoleFigures& of) { return of.saturated; }},
    {"snr_db", true, [](const RoleFigures& of) { return of.snr_db; }},
    {"headroom_bits", true, [](const RoleFigures& of) { return of.headroom_bits; }},
};

// The block in which a figure of a matrix is worst.
struct WorstTensor {
  int layer = 0;
  Quantized role = Quantized::h1;
  double value = 0;
};
template <typename Value, typename IsWorse>
void keep_worse(WorstTensor& worst, int layer, Quantized role, Value value, IsWorse is_worse) {
  if (worst.layer == 0 || is_worse(value, worst.value)) worst = {layer, role, value};
}

}  // namespace

std::vector<obs::Metric> NumericsMetrics::metrics() const {
  std::vector<obs::Metric> all;
  for (size_t i = 0; i < names.size(); ++i) all.push_back({names[i], values[i]});
  return all;
}

NumericsMetrics numerics_metrics(std::span<const LayerFigures> layers) {
  NumericsMetrics m;
  const auto add = [&m](std::string name, double value) {
    m.names.push_back(std::move(name));
    m.values.push_back(value);
  };
  for (int q = 0; q < spec::quantized_count; ++q) {
    const auto role = static_cast<Quantized>(q);
    const std::string_view name = spec::name_of(role);
    RoleFigures worst{.snr_db = max_snr_db,
                      .headroom_bits = std::numeric_limits<double>::infinity()};
    for (const LayerFigures& layer : layers) {
      const RoleFigures& of = layer[role];
      if (of.amax > 0)
        add(fmt::format("numerics/{}/{}/amax", block_name(layer.layer), name), of.amax);
      if (!of.is_measured) continue;
      worst.is_measured = true;
      worst.flushed = std::max(worst.flushed, of.flushed);
      worst.saturated = std::max(worst.saturated, of.saturated);
      worst.snr_db = std::min(worst.snr_db, of.snr_db);
      worst.headroom_bits = std::min(worst.headroom_bits, of.headroom_bits);
    }
    if (!worst.is_measured) continue;
    add(fmt::format("numerics/{}/flushed", name), worst.flushed);
    add(fmt::format("numerics/{}/saturated", name), worst.saturated);
    add(fmt::format("numerics/{}/snr_db", name), worst.snr_db);
    add(fmt::format("numerics/{}/headroom_bits", name), worst.headroom_bits);
  }
  return m;
}

obs::TableShape numerics_shape(std::span<const int> layers) {
  obs::TableShape shape{.table = "numerics", .rows = {}, .columns = {}, .about = "{}"};
  for (const int layer : layers) {
    for (int q = 0; q < spec::quantized_count; ++q) {
      shape.rows.push_back(
          fmt::format("{} {}", block_name(layer), spec::name_of(static_cast<Quantized>(q))));
    }
  }
  for (const Column& column : columns) shape.columns.emplace_back(column.name);
  return shape;
}

std::vector<float> numerics_values(std::span<const int> layers,
                                   std::span<const LayerFigures> figures) {
  std::vector<float> values;
  for (const int layer : layers) {
    const auto found = std::ranges::find(figures, layer, &LayerFigures::layer);
    for (int q = 0; q < spec::quantized_count; ++q) {
      for (const Column& column : columns) {
        float value = no_value;
        if (found != figures.end()) {
          const RoleFigures& of = (*found)[static_cast<Quantized>(q)];
          const bool is_known = of.amax > 0 && (of.is_measured || !column.is_measured);
          if (is_known) value = static_cast<float>(column.value(of));
        }
        values.push_back(value);
      }
    }
  }
  return values;
}

std::string numerics_line(std::span<const LayerFigures> layers) {
  WorstTensor flushed, saturated, snr;
  for (const LayerFigures& layer : layers) {
    for (int q = 0; q < spec::quantized_count; ++q) {
      const auto role = static_cast<Quantized>(q);
      const RoleFigures& of = layer[role];
      if (!of.is_measured || of.amax <= 0) continue;
      keep_worse(flushed, layer.layer, role, of.flushed, std::greater<>());
      keep_worse(saturated, layer.layer, role, of.saturated, std::greater<>());
      keep_worse(snr, layer.layer, role, of.snr_db, std::less<>());
    }
  }
  if (snr.layer == 0) return "";
  const auto name = [](const WorstTensor& of) {
    return fmt::format("{} of {}", spec::name_of(of.role), block_name(of.layer));
  };
  std::string text = fmt::format("numerics  lowest SNR {:.1f} dB: {}; most flushed {:.2g} %: {}",
                                 snr.value, name(snr), 100 * flushed.value, name(flushed));
  if (saturated.value > 0) {
    text += fmt::format("; most saturated {:.2g} %: {}", 100 * saturated.value, name(saturated));
  }
  return text;
}

}  // namespace trireme::train
