// SPDX-License-Identifier: Apache-2.0
// The parts of a tokenizer.json, read from their JSON. All throw ConfigError with file, JSON path,
// what was found and what is supported.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "text/bpe/bpe_model.h"
#include "text/hf/json_value.h"
#include "text/hf/tokenizer_json.h"
#include "text/pipeline/added_tokens.h"
#include "text/pipeline/decoder.h"
#include "text/pipeline/normalizer.h"
#include "text/pipeline/pre_tokenizer.h"

namespace trireme::text {

// {"String": "x"} or {"Regex": "x"}
std::unique_ptr<Pattern> read_pattern(const JsonValue& json);

std::unique_ptr<Normalizer> read_normalizer(const JsonValue& json);

struct PreTokenizerPart {
  std::unique_ptr<PreTokenizer> part;  // nullptr: the text is one piece
  // The last step is ByteLevel and leaves the bytes as they are: the model takes bytes.
  bool leaves_bytes = false;
};
// `may_leave_bytes`: the model can take bytes.
PreTokenizerPart read_pre_tokenizer(const JsonValue& json, bool may_leave_bytes);

std::vector<std::unique_ptr<DecoderPart>> read_decoder(const JsonValue& json);

// What stands before and after a text.
struct TemplateIds {
  std::vector<int32_t> before;
  std::vector<int32_t> after;
};
TemplateIds read_post_processor(const JsonValue& json);

// `tables` stands for the keys vocab and merges, if it is set.
std::unique_ptr<BpeModel> read_bpe_model(const JsonValue& json,
                                         const std::optional<ModelTables>& tables);

// Tokens in the order of the file, with the ids that `tokenizers` gives them.
std::vector<AddedToken> read_added_tokens(const JsonValue& json,
                                          const BpeModel::Vocabulary& vocabulary);

}  // namespace trireme::text
