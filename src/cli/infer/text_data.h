// SPDX-License-Identifier: Apache-2.0
// Text as the data of `eval`: files that go through the model's tokenizer, and the bytes of a data
// set's text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "cli/ckpt/weights_place.h"
#include "cli/shell/args.h"
#include "data/files/token_data.h"
#include "train/generate/text_codec.h"

namespace trireme::cli {

// Returns the codec of --tokenizer, of the tokenizer that lies with the weights, or of bytes; null
// if the model's tokens are not bytes and there is no tokenizer.
std::unique_ptr<train::TextCodec> known_codec(const Args&, const FoundWeights&);

// Returns whether the file is text that encoded_text() reads: by its format or, with `automatic`,
// by its name (.txt, .jsonl, .ndjson, each also compressed). A plain .txt for a model whose tokens
// are bytes is a data set already.
bool is_text_to_encode(const std::filesystem::path& path, data::TokenFormat format,
                       const train::TextCodec& codec);

// Returns the tokens of all documents of a file; each ends with the codec's end-of-text token, if
// it has one. Throws IoError or ConfigError that names file and line.
std::unique_ptr<data::TokenData> encoded_text(const std::filesystem::path& path,
                                              const train::TextCodec& codec);

// Returns the bytes of the text of tokens [1, labels + 1).
int64_t text_bytes(const train::TextCodec&, const data::TokenData&, int64_t labels);

}  // namespace trireme::cli
