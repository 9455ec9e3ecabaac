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
  // .txt: the file is one document (see split_lines). .jsonl: one object per line, with its text
  // under text_key. Processed in this order.
  std::vector<std::filesystem::path> inputs;
  std::filesystem::path output;                // see write_tokens()
  TokenFormat format = TokenFormat::megatron;  // or llmc
  int workers = 1;                             // threads; the bytes written do not depend on it
  // Written after each document; -1: none. Below 256 it is the token of a byte, and that byte is
  // refused in texts unless raw_bytes; 256 adds a token to the vocabulary.
  int32_t end_of_document = 0;
  bool split_lines = false;  // .txt: every non-empty line is a document, without its line end
  bool raw_bytes = false;    // .txt: accept bytes that are not UTF-8
  std::string text_key = "text";
  std::function<void(const BuildProgress&)> progress;  // called on the caller's thread
};

struct BuildReport {
  int64_t documents = 0, tokens = 0, input_bytes = 0;
  int64_t empty_documents = 0;  // skipped
  int64_t vocab = 0;            // 256, or end_of_document + 1
  bool operator==(const BuildReport&) const = default;
};

// Memory does not grow with the inputs, except for their longest line. Throws IoError that names
// the file and the line or byte offset, or ConfigError about the options; then nothing is written.
BuildReport build_dataset(const BuildOptions&);

}  // namespace trireme::data
