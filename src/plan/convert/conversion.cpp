// SPDX-License-Identifier: Apache-2.0
#include "plan/convert/conversion.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/text/json.h"
#include "config/config_text.h"
#include "config/layout.h"
#include "config/schema.h"

namespace trireme::plan {
namespace {

constexpr std::string_view data_key = "training.dataset_path";

bool has_data(const config::Config& c) {
  return !c.training.dataset_path.empty() || !c.training.dataset.empty();
}

}  // namespace

void take_job(const Described& d, bool leaves_ranks_open, Conversion& conversion) {
  if (!d.dims) {
    throw base::ConfigError(fmt::format(
        "{}: the model is none of Trireme's families: llama needs RMSNorm, SwiGLU, rotary "
        "positions and no biases of linear layers, gpt2 needs LayerNorm, GELU, learned positions, "
        "biases and tied embeddings",
        conversion.source));
  }
  spec::Layout layout = *d.layout;
  if (layout.precision == Precision::fp4) {
    throw base::ConfigError(fmt::format(
        "{}: products in 4 bits are planned but not trained; choose bf16 or 8 bits in the source",
        conversion.source));
  }
  if (layout.placement != Placement::dp_inside) {
    conversion.changed.emplace_back("ranks along dp are adjacent, those along pp are not");
    layout.placement = Placement::dp_inside;
  }
  config::Config& c = conversion.config;
  config::set_layout(c, spec::opened(layout));
  c.model.name = d.dims->name;
  c.dims = *d.dims;
  c.training.seq_len = d.job.seq_len;
  c.training.global_batch_size = d.job.global_batch;
  if (leaves_ranks_open) {
    const bool is_sharded = layout.zero_stage > 0;
    c.parallelism.data_parallel_replicate_degree = is_sharded ? layout.dp_replicate : -1;
    c.parallelism.data_parallel_shard_degree = is_sharded ? -1 : 1;
  }
  conversion.changed.insert(conversion.changed.end(), d.assumed.begin(), d.assumed.end());
}

void set_origins(std::span<const KeyOrigin> keys, const std::string& program,
                 const std::function<bool(std::string_view)>& was_given, Conversion& conversion) {
  config::Config fresh;
  const std::vector<config::Key> now = config::keys_of(conversion.config);
  const std::vector<config::Key> defaults = config::keys_of(fresh);
  for (const KeyOrigin& origin : keys) {
    std::string text;
    for (const std::string_view setting : origin.settings) {
      if (was_given(setting)) text += fmt::format("{}{}", text.empty() ? "" : ", ", setting);
    }
    const auto key = std::ranges::find(now, origin.key, &config::Key::path);
    const auto same = std::ranges::find(defaults, origin.key, &config::Key::path);
    // Elements of lists and model.dims are no keys of the defaults.
    const bool is_default = key == now.end() || same == defaults.end() ||
                            config::value_json(*key) == config::value_json(*same);
    if (text.empty() && !is_default) text = program + "'s default";
    if (!text.empty()) conversion.origins.emplace(origin.key, text);
  }
}

void drop_others(const std::vector<std::string>& given, std::span<const KeyOrigin> keys,
                 std::span<const DropReason> reasons, Conversion& conversion) {
  for (const std::string& setting : given) {
    const bool is_mapped = std::ranges::any_of(keys, [&](const KeyOrigin& key) {
      return std::ranges::find(key.settings, setting) != key.settings.end();
    });
    if (is_mapped) continue;
    const auto reason = std::ranges::find_if(reasons, [&](const DropReason& one) {
      const bool is_prefix = one.setting.ends_with('.') || one.setting.ends_with('-');
      return is_prefix ? setting.starts_with(one.setting) : setting == one.setting;
    });
    conversion.dropped.push_back(
        {setting,
         std::string(reason == reasons.end() ? "Trireme has no such setting" : reason->reason)});
  }
}

std::string to_toml(const Conversion& conversion) {
  config::WrittenKeys written{.notes = conversion.origins, .dims = conversion.config.dims};
  written.comment = fmt::format(
      "Converted from {}. The comment of a key names the settings that it was made of.\n",
      conversion.source);
  for (const std::string& text : conversion.changed) written.comment += "changed: " + text + "\n";
  for (const Dropped& one : conversion.dropped) {
    written.comment += fmt::format("dropped: {}: {}\n", one.setting, one.reason);
  }
  if (!has_data(conversion.config)) {
    written.notes.emplace(data_key, "fill in, or give --data PATH");
  }
  written.notes.emplace("model.name", "the name of the sizes below");
  return config::toml_text(conversion.config, written);
}

base::Json to_json(const Conversion& conversion) {
  config::Config config = conversion.config;
  base::Json keys = base::Json::object(), dropped = base::Json::object();
  for (const config::Key& key : config::keys_of(config)) {
    const auto origin = conversion.origins.find(key.path());
    if (origin == conversion.origins.end()) continue;
    keys[key.path()] = {{"value", config::value_json(key)}, {"from", origin->second}};
  }
  for (const Dropped& one : conversion.dropped) dropped[one.setting] = one.reason;
  return {{"source", conversion.source},
          {"keys", keys},
          {"changed", conversion.changed},
          {"dropped", dropped}};
}

}  // namespace trireme::plan
