// SPDX-License-Identifier: Apache-2.0
// Writes data sets, token by token, in constant memory. The files appear complete or not at all.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "data/files/token_data.h"

namespace trireme::data {

// Used from one thread. If destroyed without finish(), it leaves no file. Throws IoError if writing
// fails.
class TokenWriter {
 public:
  virtual ~TokenWriter() = default;

  // Throws ConfigError if a token is not below the vocabulary.
  void write(std::span<const int32_t> tokens);
  // Ends a document: the tokens since the last call, possibly none. No token is added.
  void end_document();
  // Ends a document that is still open and renames the files into place.
  void finish();

  int64_t tokens() const { return tokens_; }
  int64_t documents() const { return documents_; }
  TokenType type() const { return type_; }

 protected:
  TokenWriter(TokenType type, int64_t vocab) : type_(type), vocab_(vocab) {}

 private:
  virtual void store(std::span<const std::byte> stored, int64_t tokens) = 0;
  virtual void store_border() = 0;
  virtual void publish() = 0;

  TokenType type_;
  int64_t vocab_;
  int64_t tokens_ = 0, documents_ = 0;
  bool is_open_ = false, finished_ = false;
  std::vector<std::byte> stored_;
};

struct WriteOptions {
  TokenFormat format = TokenFormat::megatron;  // or llmc, nanogpt
  int64_t vocab = 0;                           // every token is below it; decides the type
  // Megatron: the index counts a sequence's tokens in 32 bits, so longer documents become several.
  int64_t max_sequence_tokens = (int64_t{1} << 31) - 1;
};

// Returns the type that a format stores tokens in. Megatron: u16 below a vocabulary of 65500,
// otherwise i32. llm.c and nanoGPT: u16 up to a vocabulary of 65536, otherwise u32. Throws
// ConfigError for a format that is not written and a vocabulary outside of 1 .. 2^31.
TokenType stored_type(TokenFormat, int64_t vocab);

// Megatron: `path` (without .bin or .idx at its end) becomes path.bin and path.idx. llm.c:
// path.bin, at most 2^31 - 1 tokens. nanoGPT: path.bin without a header. In the last two, document
// borders are only those that the tokens show. Throws ConfigError about the options, IoError if the
// files cannot be created.
std::unique_ptr<TokenWriter> write_tokens(const std::filesystem::path& path, const WriteOptions&);

// Returns the files that write_tokens() creates for `path`.
std::vector<std::filesystem::path> token_files(const std::filesystem::path& path, TokenFormat);

}  // namespace trireme::data
