// SPDX-License-Identifier: Apache-2.0
// TextCodec: the text of a model's tokens, by its tokenizer or, for a model whose tokens are bytes,
// byte by byte.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace trireme::train {

class TextCodec {
 public:
  // An empty path selects bytes. Throws IoError or ConfigError, also if the tokenizer has more
  // tokens than the model's vocabulary or, without a tokenizer, if the model's tokens are not
  // bytes (a vocabulary above 257: 256 bytes and an end-of-document token).
  TextCodec(const std::filesystem::path& tokenizer, int64_t vocab);

  // The tokens of a text as a model reads it, with the tokenizer's first token if it has one.
  std::vector<int32_t> encode(std::string_view text) const;
  // Without special tokens around the text.
  std::vector<int32_t> encode_plain(std::string_view text) const;
  std::string decode(std::span<const int32_t> tokens) const;
  std::unique_ptr<text::StreamingDecoder> streaming_decoder() const;

  std::optional<int32_t> eos() const { return eos_; }
  // The token before a text without context: the tokenizer's bos, otherwise its eos.
  std::optional<int32_t> start() const { return start_; }
  bool is_bytes() const { return tokenizer_ == nullptr; }
  const text::Tokenizer* tokenizer() const { return tokenizer_.get(); }

 private:
  std::unique_ptr<text::Tokenizer> tokenizer_;  // null: bytes
  std::optional<int32_t> eos_, start_;
};

}  // namespace trireme::train
