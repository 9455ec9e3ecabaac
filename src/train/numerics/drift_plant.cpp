// SPDX-License-Identifier: Apache-2.0
#include "train/numerics/drift_plant.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "spec/facts/facts.h"

namespace trireme::train {
namespace {

template <typename T>
T number_from(std::string_view text, std::string_view part) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw base::ConfigError(fmt::format("drift '{}': '{}' is not a number", part, text));
  }
  return value;
}

}  // namespace

DriftOptions drift_options_from(std::string_view text) {
  DriftOptions options;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), part.size() + 1));
    const size_t equals = part.find('=');
    const std::string_view key = part.substr(0, equals);
    const std::string_view value =
        equals == std::string_view::npos ? std::string_view() : part.substr(equals + 1);
    if (key == "block") {
      options.block = number_from<int>(value, part);
    } else if (key == "channel") {
      options.channel = number_from<int64_t>(value, part);
    } else if (key == "onset") {
      options.onset = number_from<int64_t>(value, part);
    } else if (key == "end") {
      options.end = number_from<int64_t>(value, part);
    } else if (key == "rate") {
      options.rate = number_from<double>(value, part);
    } else if (part == "place=act" || part == "place=inputs" || part == "place=both") {
      options.place = value == "act"      ? DriftPlace::act
                      : value == "inputs" ? DriftPlace::inputs
                                          : DriftPlace::both;
    } else {
      throw base::ConfigError(
          fmt::format("drift '{}': must be block=N, channel=N, onset=N, end=N, rate=X or "
                      "place=act, inputs or both",
                      part));
    }
  }
  return options;
}

DriftPlant::DriftPlant(const DriftOptions& options, const spec::ModelSpec& model)
    : options_(options) {
  const int layer = options.block + 1;
  const auto layers = static_cast<int>(model.layers.size());
  const auto* block = options.block >= 0 && layer < layers
                          ? std::get_if<spec::BlockSpec>(&model.layers[static_cast<size_t>(layer)])
                          : nullptr;
  if (block == nullptr || block->moe) {
    throw base::ConfigError(fmt::format(
        "drift block={}: the model has {} blocks; choose one from 0 on, without experts",
        options.block, layers - 2));
  }
  const int64_t channels = std::min(block->ffn, block->width);
  if (options.channel < 0 || options.channel >= channels) {
    throw base::ConfigError(
        fmt::format("drift channel={}: must be from 0 to {}", options.channel, channels - 1));
  }
  const bool is_gated = block->activation == spec::Activation::swiglu;
  const std::string name = spec::name_of_layer(model, layer) + ".";
  const std::string up = name + (is_gated ? "gate_up.weight" : "up.weight");
  const int64_t width = block->width, channel = options.channel;
  if (options.place != DriftPlace::inputs) {
    // The gate's rows come first; the other half is a factor of the activation.
    const int64_t row = channel + (is_gated ? block->ffn : 0);
    add(up, {.first = row * width, .count = width}, 1);
    add(name + "down.weight", {.first = channel, .stride = block->ffn, .count = width}, -1);
  }
  if (options.place == DriftPlace::act) return;
  for (const char* norm : {"norm1.weight", "norm2.weight"}) add(name + norm, {.first = channel}, 1);
  add(name + "qkv.weight", {.first = channel, .stride = width, .count = block->qkv_width()}, -1);
  add(up, {.first = channel, .stride = width, .count = block->up_width()}, -1);
}

void DriftPlant::add(const std::string& name, const Line& line, int power) {
  auto found = std::ranges::find(params_, name, &Grown::name);
  if (found == params_.end()) found = params_.insert(params_.end(), {name, {}, {}});
  for (int64_t i = 0; i < line.count; ++i) found->powers[line.first + i * line.stride] += power;
}

void DriftPlant::apply(engine::Engine& engine, int64_t step) {
  if (step <= options_.onset || step > options_.end) return;
  const auto growth_at = [this](int64_t at) {
    return std::pow(options_.rate, static_cast<double>(at - options_.onset));
  };
  for (Grown& param : params_) {
    std::vector<float> all = engine.read_weights(param.name);
    if (param.values.empty()) {
      // A resumed run begins with a channel that has grown already.
      for (const auto& [element, power] : param.powers) {
        param.values.push_back(static_cast<float>(all[static_cast<size_t>(element)] /
                                                  std::pow(growth_at(step - 1), power)));
      }
    }
    size_t next = 0;
    for (const auto& [element, power] : param.powers) {
      all[static_cast<size_t>(element)] =
          static_cast<float>(param.values[next++] * std::pow(growth_at(step), power));
    }
    engine.write_weights(param.name, all);
  }
}

}  // namespace trireme::train
