// SPDX-License-Identifier: Apache-2.0
// A tokenizer.json of Hugging Face `tokenizers`, with a BPE model.
#pragma once

#include <filesystem>
#include <memory>

#include "text/tokenizer.h"

namespace trireme::text {

// Also reads tokenizer_config.json and special_tokens_map.json beside the file, for the names of
// the special tokens.
std::unique_ptr<Tokenizer> open_hf_tokenizer(const std::filesystem::path& file);

}  // namespace trireme::text
