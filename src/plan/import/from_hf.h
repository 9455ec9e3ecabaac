// SPDX-License-Identifier: Apache-2.0
// Reads a model, without batch or layout, from a Hugging Face config.json. model_type may be gpt2,
// llama, mistral, qwen2, qwen3 and, with experts, mixtral, qwen3_moe and olmoe, as
// config/files/hf_config.h reads them, or qwen2_moe, which the engine cannot train.
#pragma once

#include <cstdint>
#include <string>

#include "base/text/json_fwd.h"
#include "plan/import/described.h"

namespace trireme::plan {

// `seq_len` 0 means the model's maximum, but at most 8192. Throws ConfigError if the model is not
// supported or if seq_len exceeds the model's maximum.
Described from_hf(const base::Json& json, const std::string& name, int64_t seq_len);

// Reads a file, or the config.json of a folder. Throws IoError if it does not exist, and
// ConfigError that begins with the path.
Described from_hf_file(const std::string& path, int64_t seq_len);

}  // namespace trireme::plan
