// SPDX-License-Identifier: Apache-2.0
// Mixtures of experts in a Hugging Face config.json: the keys of model_type mixtral, qwen3_moe and
// olmoe that other models do not have.
#pragma once

#include <string_view>

#include "base/text/json_fwd.h"
#include "config/files/hf_reader.h"
#include "spec/model.h"

namespace trireme::config {

// Reads experts, q/k norms and clip_qkv of a model whose other keys have been read.
void read_experts(HfReader& in, std::string_view type, spec::ModelDims&);

// Returns the model_type of a model of family llama that is written. Throws ConfigError if no
// supported type computes the same function.
std::string_view hf_type_of(const spec::ModelDims&);

// Adds the keys of experts. REQUIRES: `type` is that of hf_type_of() and has experts.
void write_experts(const spec::ModelDims&, std::string_view type, base::Json&);

}  // namespace trireme::config
