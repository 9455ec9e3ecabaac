// SPDX-License-Identifier: Apache-2.0
// Models as files: a TOML file of sizes (configs/models/*.toml), or a Hugging Face config.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/json_fwd.h"
#include "config/document.h"
#include "config/files/moe_keys.h"
#include "config/schema.h"
#include "spec/model.h"

namespace trireme::config {

// The keys of a model file, as fields for the schema.
struct ModelKeys {
  std::string name, family;
  int64_t layers = 0, hidden = 0, heads = 0, kv_heads = 0, head_dim = 0, ffn = 0, vocab = 0;
  int64_t max_seq = 0;
  double norm_eps = 1e-5;
  bool tied_head = true, qkv_bias = false, qk_norm = false, qk_norm_whole = false;
  double qk_norm_eps = 0;  // 0: norm_eps
  double clip_qkv = 0;
  double init_std = 0.02;
  double rope_theta = 10000;
  spec::RopeScaling rope_scaling;
  MoeKeys moe;
};
std::vector<Key> keys_of(ModelKeys&);

// Reads a model by path (it has a slash or ends in .toml or .json, or is a folder with a
// config.json) or by the name of a file `<name>.toml` in the first folder that has it; also accepts
// names of earlier releases. Throws ConfigError that lists every problem with file and line, or
// IoError for a missing file.
spec::ModelDims model_from_file(const std::string& path_or_name,
                                const std::vector<std::filesystem::path>& folders);

// Returns the names that model_from_file finds in the folders, sorted.
std::vector<std::string> model_names(const std::vector<std::filesystem::path>& folders);

struct EarlierName {
  std::string_view name, now;
};
// Returns the names of models in earlier releases, whose naming was less consistent.
const std::vector<EarlierName>& earlier_model_names();

// Convert the keys of a model file to JSON, and back. `where` names the origin in messages.
base::Json to_json(const spec::ModelDims&);
spec::ModelDims dims_from_json(const base::Json&, const std::string& where);
// Reads the entries of a model file, whose sections are "", "rope_scaling" and "moe".
spec::ModelDims dims_from_entries(const std::vector<Entry>& entries, const std::string& where,
                                  const std::string& default_name);

}  // namespace trireme::config
