// SPDX-License-Identifier: Apache-2.0
// A data set of tokens: one long stream with document borders, independent of the file format.
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

// Tokens are read in place (memory-mapped); opening reads only header and index (text is read
// completely, to check that it is UTF-8). All calls are const and any thread may call.
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
  // Reads tokens [begin, begin + out.size()). Throws IoError if one is negative or above 2^31 - 1.
  // REQUIRES: the range is in the stream.
  void read(int64_t begin, std::span<int32_t> out) const { parts_.tokens.read(begin, out); }
  // Document starts. Without an index, count(), start() and at() read the whole stream once.
  const DocumentIndex& documents() const { return *parts_.documents; }

  TokenFormat format() const { return parts_.format; }
  TokenType type() const { return parts_.tokens.type; }
  const std::string& name() const { return parts_.tokens.name; }  // of the file, for messages
  const std::vector<MappedFile>& files() const { return parts_.files; }
  std::string description() const;  // "kjv.bin: 4401234 tokens (megatron, u16)"
  // Returns MappedFile::changed() of all files, separated by "; ".
  std::string changed() const;

 private:
  Parts parts_;
};

struct OpenOptions {
  TokenFormat format = TokenFormat::automatic;
  // Type of the tokens of a file without header: "u16" or "u32". Empty: as the manifest beside the
  // file says; without one, such a file is refused.
  std::string type;
  // Ends each document in formats without an index; -1: the file is one document.
  int32_t end_of_document = -1;
  // Text: accept bytes that are not UTF-8, and take all of them.
  bool raw_bytes = false;
};

// Opens a data set, named by its file or by the prefix of .bin. `automatic` detects the format: a
// Megatron pair (`path` may also end in .idx), llm.c's magic number, a name that ends in .txt,
// otherwise bare tokens if `type` is given or a manifest names it. Text has one token per byte,
// without a byte-order mark at its beginning. Throws IoError about the file, ConfigError about the
// options and for a data set that does not exist.
std::unique_ptr<TokenData> open_tokens(const std::filesystem::path& path, const OpenOptions&);

std::unique_ptr<TokenData> tokens_in_memory(std::vector<int32_t> tokens, int32_t end_of_document);

// Returns a number that changes with the content but not with location, format or type: a hash of
// the token count and, in long streams, of evenly spaced samples.
uint64_t fingerprint(const TokenData&);

// Called periodically during a pass over all tokens, on the thread that started the pass.
using ScanProgress = std::function<void(int64_t tokens_done, int64_t tokens_total)>;

}  // namespace trireme::data
