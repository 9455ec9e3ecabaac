// SPDX-License-Identifier: Apache-2.0
#include "train/numerics/drift_plant.h"

#include <fmt/format.h>

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
    } else if (key == "rate") {
      options.rate = number_from<double>(value, part);
    } else {
      throw base::ConfigError(
          fmt::format("drift '{}': must be block, channel, onset or rate with '='", part));
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
  if (options.channel < 0 || options.channel >= block->ffn) {
    throw base::ConfigError(
        fmt::format("drift channel={}: must be from 0 to {}", options.channel, block->ffn - 1));
  }
  const bool is_gated = block->activation == spec::Activation::swiglu;
  const std::string name = spec::name_of_layer(model, layer);
  up_ = name + (is_gated ? ".gate_up.weight" : ".up.weight");
  down_ = name + ".down.weight";
  // The gate's rows come first; the other half is a factor of the activation.
  up_row_ = options.channel + (is_gated ? block->ffn : 0);
  width_ = block->width;
  ffn_ = block->ffn;
}

void DriftPlant::apply(engine::Engine& engine, int64_t step) {
  if (step <= options_.onset) return;
  std::vector<float> up = engine.read_weights(up_), down = engine.read_weights(down_);
  const auto up_at = [&](int64_t i) -> float& {
    return up[static_cast<size_t>(up_row_ * width_ + i)];
  };
  const auto down_at = [&](int64_t i) -> float& {
    return down[static_cast<size_t>(i * ffn_ + options_.channel)];
  };
  if (up_values_.empty()) {
    // A resumed run begins with a channel that has grown already.
    const double before = std::pow(options_.rate, static_cast<double>(step - 1 - options_.onset));
    for (int64_t i = 0; i < width_; ++i) {
      up_values_.push_back(static_cast<float>(up_at(i) / before));
      down_values_.push_back(static_cast<float>(down_at(i) * before));
    }
  }
  const double growth = std::pow(options_.rate, static_cast<double>(step - options_.onset));
  for (int64_t i = 0; i < width_; ++i) {
    up_at(i) = static_cast<float>(up_values_[static_cast<size_t>(i)] * growth);
    down_at(i) = static_cast<float>(down_values_[static_cast<size_t>(i)] / growth);
  }
  engine.write_weights(up_, up);
  engine.write_weights(down_, down);
}

}  // namespace trireme::train
