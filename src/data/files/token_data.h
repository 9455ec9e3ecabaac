// SPDX-License-Identifier: Apache-2.0
// A data set of tokens: one long stream with document borders, whatever file it lies in.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/files/documents.h"
#include "data/files/mapped_file.h"
#include "data/files/token_array.h"

namespace trireme::data {

enum class TokenFormat : uint8_t { automatic, megatron, llmc, nanogpt, text, memory };

std::string_view name_of(TokenFormat);  // "auto", "megatron", "llmc", "nanogpt", "text", "memory"
// A format of a file, or automatic. Throws ConfigError that lists the names.
TokenFormat token_format_from_name(std::string_view name);

// Tokens are read where they lie (memory-mapped); opening reads only header and index (of text, all
// of it, to see that it is UTF-8). All calls are const and may come from any thread.
class TokenData {
 public:
  struct Parts {
    TokenFormat format = TokenFormat::memory;
    std::vector<MappedFile> files;
    std::vector<int32_t> memory;  // instead of files
    TokenArray tokens;            // a view of the above
    std::unique_ptr<DocumentIndex> documents;
  };
  // For open_tokens() and tokens_in_memory(). REQUIRES: `documents` is set.
  explicit TokenData(Parts parts);

  int64_t tokens() const { return parts_.tokens.size(); }
  // Tokens [begin, begin + out.size()). Throws IoError if one is negative or above 2^31 - 1.
  // REQUIRES: the range lies in the stream.
  void read(int64_t begin, std::span<int32_t> out) const { parts_.tokens.read(begin, out); }
  // Where documents start. Without an index, count(), start() and at() read the whole stream once.
  const DocumentIndex& documents() const { return *parts_.documents; }

  TokenFormat format() const { return parts_.format; }
  TokenType type() const { return parts_.tokens.type; }
  const std::string& name() const { return parts_.tokens.name; }  // of the file, for messages
  const std::vector<MappedFile>& files() const { return parts_.files; }
  std::string description() const;  // "kjv.bin: 4401234 tokens (megatron, u16)"
  // MappedFile::changed() of all files, separated by "; ".
  std::string changed() const;

 private:
  Parts parts_;
};

struct OpenOptions {
  TokenFormat format = TokenFormat::automatic;
  // Of a file without header: "u16" or "u32". Empty: such a file is refused.
  std::string type;
  // Ends each document in formats without an index; -1: the file is one document.
  int32_t end_of_document = -1;
  // Text: take bytes that are not UTF-8 as they are.
  bool raw_bytes = false;
};

// Opens a data set. `automatic` goes by what is there: a Megatron pair (`path` with or without .bin
// or .idx), llm.c's magic, a name that ends in .txt, else bare tokens if `type` is given. Text is
// one token a byte. Throws IoError about the file, ConfigError about the options.
std::unique_ptr<TokenData> open_tokens(const std::filesystem::path& path, const OpenOptions&);

std::unique_ptr<TokenData> tokens_in_memory(std::vector<int32_t> tokens, int32_t end_of_document);

// A number that changes with the content but not with the place, format or type: of the token count
// and, in long streams, of evenly spread samples.
uint64_t fingerprint(const TokenData&);

// Called now and then during a pass over all tokens, on the thread that asked for the pass.
using ScanProgress = std::function<void(int64_t tokens_done, int64_t tokens_total)>;

}  // namespace trireme::data
