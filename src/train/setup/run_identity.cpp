// SPDX-License-Identifier: Apache-2.0
#include "train/setup/run_identity.h"

#include <fmt/core.h>

#include "base/build_id.h"
#include "base/text/json.h"
#include "ckpt/difference.h"

namespace trireme::train {

std::string run_identity(const config::Config& config, const base::Json& data) {
  base::Json keys = config::to_json(config);
  for (const char* key : {"threads", "gpu", "cache_folder", "peak_tflops", "machine", "price_per_hour"}) {
    keys["system"].erase(key);
  }
  for (const char* section : {"metrics", "alerts"}) {  // used by the first rank only
    keys[section].erase("command");
    keys[section].erase("webhook");
  }
  for (const char* section : {"training", "validation"}) {
    keys[section].erase("dataset_path");
    if (const auto sets = keys[section].find("dataset"); sets != keys[section].end()) {
      for (base::Json& set : *sets) set.erase("path");
    }
  }
  keys["training"].erase("tokenizer");  // its fingerprint is part of the data
  return base::Json{{"configuration", keys}, {"data", data}, {"build", base::build_id()}}.dump();
}

std::string identity_difference(const std::string& there, const std::string& here) {
  if (there == here) return "";
  const base::Json first = base::Json::parse(there, nullptr, false);
  const base::Json second = base::Json::parse(here, nullptr, false);
  if (!first.is_object() || !second.is_object()) return "\n  another version of Trireme";
  std::string text;
  for (const ckpt::KeyDifference& key : ckpt::difference(first, second)) {
    const std::string_view prefix = "configuration.";
    const std::string name = key.key.starts_with(prefix) ? key.key.substr(prefix.size()) : key.key;
    text += fmt::format("\n  {}: {} there, {} here", name, key.first.dump(), key.second.dump());
  }
  return text;
}

}  // namespace trireme::train
