// SPDX-License-Identifier: Apache-2.0
#include <optional>

#include "base/error.h"
#include "base/text/json.h"
#include "config/files/hf_config.h"
#include "config/files/model_file.h"
#include "memory_file.h"
#include "readers.h"

namespace trireme::fuzz {

// A model that is read can be written as our JSON and, if Hugging Face supports it, as config.json;
// both read back to the same model.
bool read_model(Input input) {
  static const MemoryFile file;
  file.fill(input);
  std::optional<spec::ModelDims> dims;
  try {
    dims = config::model_from_file(file.path().string(), {});
  } catch (const base::Error&) {
    return false;  // refused
  }
  const spec::ModelSpec model = spec::make_model(*dims);
  const auto check_same = [&](const spec::ModelDims& again, const base::Json& json) {
    TRIREME_CHECK(spec::make_model(again) == model, "another model was read back from {}",
                  json.dump());
  };
  const base::Json ours = base::Json::parse(config::to_json(*dims).dump());
  check_same(config::dims_from_json(ours, "read back"), ours);
  base::Json theirs;
  try {
    theirs = config::hf_config_of(*dims, base::DType::f32);
  } catch (const base::ConfigError&) {
    return true;  // Hugging Face has no such model
  }
  check_same(config::dims_from_hf(base::Json::parse(theirs.dump()), dims->name), theirs);
  return true;
}

}  // namespace trireme::fuzz
