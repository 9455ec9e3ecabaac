// SPDX-License-Identifier: Apache-2.0
// A tokenizer.json with its two large parts, model.vocab and model.merges, beside the rest: they
// have hundreds of thousands of entries, for which a tree of JSON values takes seconds to build.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/bpe/bpe_model.h"
#include "text/hf/json_value.h"

namespace trireme::text {

constexpr int64_t max_token_id = (int64_t{1} << 22) - 1;  // tables are indexed by id

struct ModelTables {
  std::vector<std::pair<std::string, int32_t>> vocab;  // sorted; tokens and ids are different
  std::vector<BpeModel::MergeRule> merges;             // in the order of the file
};

struct TokenizerJson {
  SortedJson json;
  // If set, model.vocab and model.merges of `json` are empty. Otherwise they are unusual (wrong
  // types, a token or an id twice), and are part of `json`.
  std::optional<ModelTables> tables;
};

// Throws IoError if the file cannot be read or is not JSON.
TokenizerJson read_tokenizer_json(const std::filesystem::path& file);

// Splits "a b". Returns false unless there is exactly one space.
bool split_merge(std::string_view text, BpeModel::MergeRule& merge);

// Returns the SHA-256 of the content in a canonical form: keys are sorted, merges are pairs, and
// what does not change ids is left out.
std::string fingerprint_of(const TokenizerJson&);

}  // namespace trireme::text
