// SPDX-License-Identifier: Apache-2.0
// Models as Hugging Face's config.json: model_type gpt2, llama, mistral, qwen2, qwen3, mixtral,
// qwen3_moe and olmoe.
#pragma once

#include <string>

#include "base/dtype.h"
#include "base/text/json_fwd.h"
#include "spec/model.h"

namespace trireme::config {

// Reads old files (rope_theta and rope_scaling at top level) and new ones (rope_parameters); absent
// keys have the defaults of transformers. Keys that concern only training (dropout) or storage
// (dtype, torch_dtype) are ignored; unsupported keys that would change the function are refused.
// Throws ConfigError that names every such key at once.
//
// A mistral is the Llama of the same sizes, and is written as one. With a sliding window it equals
// that Llama for sequences up to the window, so max_seq is the smaller of the window and
// max_position_embeddings; training.seq_len may not be longer.
//
// router_aux_loss_coef becomes aux_loss, and back. It is a factor of training, not of the function:
// transformers computes its loss over all layers together and multiplies it by experts_per_token,
// Trireme computes one for every layer. Other terms that balance experts have no key.
spec::ModelDims dims_from_hf(const base::Json& json, const std::string& name);

// Returns a config.json that old and new transformers load and that dims_from_hf reads back to the
// same model. `dtype` is that of the weights beside it, f32 or bf16. Throws ConfigError for a model
// that no supported model_type describes.
base::Json hf_config_of(const spec::ModelDims& dims, base::DType dtype);

}  // namespace trireme::config
