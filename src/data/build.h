// SPDX-License-Identifier: Apache-2.0
// `data build`: text to tokens, one per byte.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "data/files/token_data.h"

namespace trireme::data {

struct BuildProgress {
  int64_t bytes_done = 0, bytes_total = 0;  // of the inputs
  int64_t documents = 0, tokens = 0;        // written so far
};

struct BuildOptions {
  // .txt: the file is one document (see split_lines). .jsonl: one object a line, its text under
  // text_key. In this order.
  std::vector<std::filesystem::path> inputs;
  std::filesystem::path output;                // see write_tokens()
  TokenFormat format = TokenFormat::megatron;  // or llmc
  int workers = 1;                             // threads; the bytes written do not depend on it
  // Written after each document; -1: nothing is. Below 256 it is the token of a byte, and that byte
  // is refused in texts unless raw_bytes; 256 adds a token to the vocabulary.
  int32_t end_of_document = 0;
  bool split_lines = false;  // .txt: every line that is not empty is a document, without its end
  bool raw_bytes = false;    // .txt: take bytes that are not UTF-8 as they are
  std::string text_key = "text";
  std::function<void(const BuildProgress&)> progress;  // called on the caller's thread
};

struct BuildReport {
  int64_t documents = 0, tokens = 0, input_bytes = 0;
  int64_t empty_documents = 0;  // left out
  int64_t vocab = 0;            // 256, or end_of_document + 1
  bool operator==(const BuildReport&) const = default;
};

// Memory does not grow with the inputs, apart from their longest line. Throws IoError that names
// the file and the line or byte offset, ConfigError about the options; then nothing is written.
BuildReport build_dataset(const BuildOptions&);

}  // namespace trireme::data
