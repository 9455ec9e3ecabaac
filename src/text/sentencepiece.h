// SPDX-License-Identifier: Apache-2.0
// Tokenizers of SentencePiece, unigram and BPE. In a build without the library the function throws.
#pragma once

#include <filesystem>
#include <memory>

#include "text/tokenizer.h"

namespace trireme::text {

// add_special puts the model's bos in front of a text, if the model has one.
std::unique_ptr<Tokenizer> open_sentencepiece(const std::filesystem::path& model);

}  // namespace trireme::text
