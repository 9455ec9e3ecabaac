// SPDX-License-Identifier: Apache-2.0
// Models in the words of Hugging Face's config.json: model_type gpt2, llama, mistral, qwen2 and
// qwen3.
#pragma once

#include <string>

#include "base/dtype.h"
#include "base/text/json_fwd.h"
#include "spec/model.h"

namespace trireme::config {

// Reads old files (rope_theta and rope_scaling at top level) and new ones (rope_parameters); keys
// that are absent mean what transformers takes for them. What only concerns training elsewhere
// (dropout) or storage (dtype, torch_dtype) is ignored; what would change the function and is not
// supported is refused. Throws ConfigError that names every such key at once.
//
// A mistral is the Llama of the same sizes, and is written as one. With a sliding window it is that
// Llama for sequences up to the window, so max_seq is the smaller of the window and
// max_position_embeddings: longer sequences are refused where a sequence length is asked for.
spec::ModelDims dims_from_hf(const base::Json& json, const std::string& name);

// A config.json that old and new transformers load and dims_from_hf reads back to the same model.
// `dtype` is that of the weights beside it, f32 or bf16. Throws ConfigError for a model that no
// supported model_type describes.
base::Json hf_config_of(const spec::ModelDims& dims, base::DType dtype);

}  // namespace trireme::config
