// SPDX-License-Identifier: Apache-2.0
#include "train/generate/text_codec.h"

#include <fmt/format.h>

#include "base/error.h"

namespace trireme::train {
namespace {

constexpr int32_t end_of_document = 256;  // of a model whose other tokens are bytes
constexpr int64_t byte_vocab = end_of_document + 1;

std::string byte_text(int32_t token) {
  return token >= 0 && token < end_of_document ? std::string(1, static_cast<char>(token)) : "";
}

class ByteDecoder final : public text::StreamingDecoder {
 public:
  std::string push(int32_t id) override { return byte_text(id); }
  std::string finish() override { return {}; }
};

}  // namespace

TextCodec::TextCodec(const std::filesystem::path& tokenizer, int64_t vocab) {
  if (tokenizer.empty()) {
    if (vocab > byte_vocab) {
      throw base::ConfigError(
          fmt::format("the model has a vocabulary of {}, so its tokens are not bytes, and no "
                      "tokenizer lies with its weights; give --tokenizer PATH or token ids",
                      vocab));
    }
    if (vocab == byte_vocab) start_ = eos_ = end_of_document;
    return;
  }
  tokenizer_ = text::open_tokenizer(tokenizer);
  if (tokenizer_->vocab_size() > vocab) {
    throw base::ConfigError(fmt::format(
        "{}: a tokenizer of {} tokens, but the model has a vocabulary of {}; give the tokenizer "
        "that the model was trained with (--tokenizer PATH)",
        tokenizer.string(), tokenizer_->vocab_size(), vocab));
  }
  const text::SpecialIds& special = tokenizer_->special_ids();
  eos_ = special.eos;
  start_ = special.bos ? special.bos : special.eos;
}

std::vector<int32_t> TextCodec::encode(std::string_view text) const {
  return tokenizer_ ? tokenizer_->encode(text) : encode_plain(text);
}

std::vector<int32_t> TextCodec::encode_plain(std::string_view text) const {
  if (tokenizer_) return tokenizer_->encode(text, {.add_special = false});
  std::vector<int32_t> tokens;
  for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
  return tokens;
}

std::string TextCodec::decode(std::span<const int32_t> tokens) const {
  if (tokenizer_) return tokenizer_->decode(tokens);
  std::string text;
  for (const int32_t token : tokens) text += byte_text(token);
  return text;
}

std::unique_ptr<text::StreamingDecoder> TextCodec::streaming_decoder() const {
  if (tokenizer_) return tokenizer_->streaming_decoder();
  return std::make_unique<ByteDecoder>();
}

}  // namespace trireme::train
