// SPDX-License-Identifier: Apache-2.0
// `data convert`: rewrites a data set of tokens in another format.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "data/files/token_data.h"

namespace trireme::data {

struct ConvertOptions {
  std::filesystem::path from;
  OpenOptions open;  // end_of_document finds the documents of formats without an index
  std::filesystem::path to;
  TokenFormat format = TokenFormat::megatron;  // or llmc, nanogpt
  // 0: the largest token + 1, found by a pass over all tokens. convert_set() takes the vocabulary
  // of the manifest first.
  int64_t vocab = 0;
  // Type to store, empty: the smallest for the vocabulary. Megatron: u16, i32; others: u16, u32.
  std::string type;
  ScanProgress progress;  // may be empty
};

struct ConvertReport {
  int64_t tokens = 0, documents = 0, vocab = 0;
  TokenType type = TokenType::u16;
  // Megatron to a format without an index: borders are only those that the tokens show.
  bool loses_borders = false;
};

// Tokens and, if the format has an index, document borders are the same in `to`. The files appear
// complete or not at all. Throws IoError about the files, ConfigError about the options.
ConvertReport convert_tokens(const ConvertOptions&);

}  // namespace trireme::data
