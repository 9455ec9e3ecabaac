// SPDX-License-Identifier: Apache-2.0
// Decoder: how a tokenizer.json turns tokens back into text. A decoder is described once
// (DecoderPart) and run any number of times as a stream: tokens go in, text that later tokens
// cannot change comes out. The text of a whole list of tokens is the same stream with its end.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/pipeline/pattern.h"

namespace trireme::text {

// The running state of one part. Tokens that leave it enter the next part.
class DecodeStage {
 public:
  virtual ~DecodeStage() = default;
  virtual void push(std::string token, std::vector<std::string>& out) = 0;
  virtual void finish(std::vector<std::string>& /*out*/) {}
};

class DecoderPart {
 public:
  virtual ~DecoderPart() = default;
  // `is_fused`: the tokens that enter are the parts of one token.
  virtual std::unique_ptr<DecodeStage> start(bool is_fused) const = 0;
  // Is what leaves the parts of one token?
  virtual bool fuses() const { return false; }
};

struct StripDecoderOptions {
  char32_t content;
  int64_t start;
  int64_t stop;
};

std::unique_ptr<DecoderPart> byte_level_decoder();
std::unique_ptr<DecoderPart> byte_fallback_decoder();
std::unique_ptr<DecoderPart> fuse_decoder();
std::unique_ptr<DecoderPart> strip_decoder(StripDecoderOptions options);
std::unique_ptr<DecoderPart> replace_decoder(std::unique_ptr<Pattern> pattern, std::string content);
// `drops_first`: the mark is removed from the first token, where the pre-tokenizer had put it.
std::unique_ptr<DecoderPart> metaspace_decoder(std::string replacement, bool drops_first);
// For a tokenizer without a decoder.
std::unique_ptr<DecoderPart> join_with_spaces_decoder();

// Runs the parts one after the other.
class DecodeStream {
 public:
  explicit DecodeStream(const std::vector<std::unique_ptr<DecoderPart>>& parts);
  void push(std::string_view token, std::string& text);
  void finish(std::string& text);

 private:
  void run_from(size_t stage, std::vector<std::string> tokens, std::string& text);
  std::vector<std::unique_ptr<DecodeStage>> stages_;
};

}  // namespace trireme::text
