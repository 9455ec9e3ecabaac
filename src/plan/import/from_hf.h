// SPDX-License-Identifier: Apache-2.0
// A model from a Hugging Face config.json, without batch or layout. model_type gpt2, llama, qwen2
// and qwen3 as config/files/hf_config.h reads them; mixtral, qwen2_moe and qwen3_moe with experts.
#pragma once

#include <cstdint>
#include <string>

#include "base/text/json_fwd.h"
#include "plan/import/described.h"

namespace trireme::plan {

// `seq_len` 0: the model's longest, but at most 8192. Throws ConfigError for a model that is not
// supported or a sequence that is longer than the model's.
Described from_hf(const base::Json& json, const std::string& name, int64_t seq_len);

// A file, or a folder that holds a config.json. Throws IoError if there is none, and ConfigError
// that begins with the path.
Described from_hf_file(const std::string& path, int64_t seq_len);

}  // namespace trireme::plan
