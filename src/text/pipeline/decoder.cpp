// SPDX-License-Identifier: Apache-2.0
#include "text/pipeline/decoder.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "text/bpe/byte_alphabet.h"
#include "text/unicode/utf8.h"

namespace trireme::text {

namespace {

using Tokens = std::vector<std::string>;

// A part that changes every token by itself.
class TokenStage : public DecodeStage {
 public:
  void push(std::string token, Tokens& out) final {
    out.push_back(changed(std::move(token), is_first_));
    is_first_ = false;
  }

 private:
  virtual std::string changed(std::string token, bool is_first) = 0;
  bool is_first_ = true;
};

// Holds the parts of one token back until all are there, then hands them to `inner` as one.
class HoldStage final : public DecodeStage {
 public:
  explicit HoldStage(std::unique_ptr<DecodeStage> inner) : inner_(std::move(inner)) {}
  void push(std::string token, Tokens& /*out*/) override { held_ += token; }
  void finish(Tokens& out) override {
    inner_->push(std::move(held_), out);
    inner_->finish(out);
  }

 private:
  std::unique_ptr<DecodeStage> inner_;
  std::string held_;
};

std::unique_ptr<DecodeStage> held_if(bool is_held, std::unique_ptr<DecodeStage> stage) {
  if (!is_held) return stage;
  return std::make_unique<HoldStage>(std::move(stage));
}

class ByteLevelStage final : public DecodeStage {
 public:
  void push(std::string token, Tokens& out) override {
    const auto bytes = bytes_of_token(token);
    std::string text;
    utf8_.push(bytes ? *bytes : token, text);
    if (!text.empty()) out.push_back(std::move(text));
  }
  void finish(Tokens& out) override {
    std::string text;
    utf8_.finish(text);
    if (!text.empty()) out.push_back(std::move(text));
  }

 private:
  Utf8Stream utf8_;
};

// <0xE5> and the like stand for a byte. A run of them is text if all of it is valid UTF-8,
// otherwise as many U+FFFD as there are bytes.
class ByteFallbackStage final : public DecodeStage {
 public:
  void push(std::string token, Tokens& out) override {
    if (const auto byte = byte_of(token)) {
      bytes_ += *byte;
      return;
    }
    finish(out);
    out.push_back(std::move(token));
  }
  void finish(Tokens& out) override {
    if (bytes_.empty()) return;
    if (is_valid_utf8(bytes_)) {
      out.push_back(bytes_);
    } else {
      for (size_t i = 0; i < bytes_.size(); ++i) out.emplace_back(replacement_character);
    }
    bytes_.clear();
  }

 private:
  static std::optional<char> byte_of(std::string_view token) {
    if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return std::nullopt;
    int value = 0;
    for (const char c : token.substr(3, 2)) {
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                               : -1;
      if (digit < 0) return std::nullopt;
      value = value * 16 + digit;
    }
    return static_cast<char>(value);
  }

  std::string bytes_;
};

class PassStage final : public DecodeStage {
 public:
  void push(std::string token, Tokens& out) override { out.push_back(std::move(token)); }
};

class StripStage final : public TokenStage {
 public:
  explicit StripStage(StripDecoderOptions options) : options_(options) {}

 private:
  std::string changed(std::string token, bool /*is_first*/) override {
    std::string_view text = token;
    for (int64_t i = 0; i < options_.start && !text.empty(); ++i) {
      const CodePoint point = code_point_at(text.data());
      if (point.value != options_.content) break;
      text.remove_prefix(point.bytes);
    }
    for (int64_t i = 0; i < options_.stop && !text.empty(); ++i) {
      const CodePoint point = code_point_before(text.data() + text.size());
      if (point.value != options_.content) break;
      text.remove_suffix(point.bytes);
    }
    return std::string(text);
  }

  StripDecoderOptions options_;
};

// Strips the start of one token that arrives in parts.
class StripStartStage final : public DecodeStage {
 public:
  explicit StripStartStage(StripDecoderOptions options) : options_(options) {}
  void push(std::string token, Tokens& out) override {
    std::string_view text = token;
    while (options_.start > 0 && !text.empty()) {
      const CodePoint point = code_point_at(text.data());
      if (point.value != options_.content) {
        options_.start = 0;
        break;
      }
      text.remove_prefix(point.bytes);
      --options_.start;
    }
    if (!text.empty()) out.emplace_back(text);
  }

 private:
  StripDecoderOptions options_;
};

class ReplaceStage final : public TokenStage {
 public:
  ReplaceStage(const Pattern& pattern, const std::string& content)
      : pattern_(pattern), content_(content) {}

 private:
  std::string changed(std::string token, bool /*is_first*/) override {
    std::vector<Span> spans;
    if (!token.empty()) pattern_.find(token, spans);
    std::string text;
    for (const Span& span : spans) {
      text += span.is_match ? content_ : token.substr(span.begin, span.end - span.begin);
    }
    return text;
  }

  const Pattern& pattern_;
  const std::string& content_;
};

class MetaspaceStage final : public DecodeStage {
 public:
  MetaspaceStage(const std::string& mark, bool drops_first, bool is_fused)
      : mark_(mark), drops_(drops_first), is_fused_(is_fused) {}
  void push(std::string token, Tokens& out) override {
    std::string text;
    size_t done = 0;
    for (size_t at = token.find(mark_); at != std::string::npos; at = token.find(mark_, done)) {
      text += token.substr(done, at - done);
      if (!drops_) text += ' ';
      done = at + mark_.size();
    }
    text += token.substr(done);
    if (!is_fused_) drops_ = false;
    out.push_back(std::move(text));
  }

 private:
  const std::string& mark_;
  bool drops_;
  bool is_fused_;
};

class JoinStage final : public TokenStage {
  std::string changed(std::string token, bool is_first) override {
    return is_first ? token : " " + token;
  }
};

class ByteLevelDecoder final : public DecoderPart {
 public:
  std::unique_ptr<DecodeStage> start(bool is_fused) const override {
    return held_if(is_fused, std::make_unique<ByteLevelStage>());
  }
  bool fuses() const override { return true; }
};

class ByteFallbackDecoder final : public DecoderPart {
 public:
  std::unique_ptr<DecodeStage> start(bool is_fused) const override {
    return held_if(is_fused, std::make_unique<ByteFallbackStage>());
  }
};

class FuseDecoder final : public DecoderPart {
 public:
  std::unique_ptr<DecodeStage> start(bool /*is_fused*/) const override {
    return std::make_unique<PassStage>();
  }
  bool fuses() const override { return true; }
};

class StripDecoder final : public DecoderPart {
 public:
  explicit StripDecoder(StripDecoderOptions options) : options_(options) {}
  std::unique_ptr<DecodeStage> start(bool is_fused) const override {
    if (is_fused && options_.stop == 0) return std::make_unique<StripStartStage>(options_);
    return held_if(is_fused, std::make_unique<StripStage>(options_));
  }

 private:
  StripDecoderOptions options_;
};

class ReplaceDecoder final : public DecoderPart {
 public:
  ReplaceDecoder(std::unique_ptr<Pattern> pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  std::unique_ptr<DecodeStage> start(bool is_fused) const override {
    return held_if(is_fused, std::make_unique<ReplaceStage>(*pattern_, content_));
  }

 private:
  std::unique_ptr<Pattern> pattern_;
  std::string content_;
};

class MetaspaceDecoder final : public DecoderPart {
 public:
  MetaspaceDecoder(std::string mark, bool drops_first)
      : mark_(std::move(mark)), drops_first_(drops_first) {}
  std::unique_ptr<DecodeStage> start(bool is_fused) const override {
    return std::make_unique<MetaspaceStage>(mark_, drops_first_, is_fused);
  }

 private:
  std::string mark_;
  bool drops_first_;
};

class JoinDecoder final : public DecoderPart {
 public:
  std::unique_ptr<DecodeStage> start(bool /*is_fused*/) const override {
    return std::make_unique<JoinStage>();
  }
};

}  // namespace

std::unique_ptr<DecoderPart> byte_level_decoder() { return std::make_unique<ByteLevelDecoder>(); }

std::unique_ptr<DecoderPart> byte_fallback_decoder() {
  return std::make_unique<ByteFallbackDecoder>();
}

std::unique_ptr<DecoderPart> fuse_decoder() { return std::make_unique<FuseDecoder>(); }

std::unique_ptr<DecoderPart> strip_decoder(StripDecoderOptions options) {
  return std::make_unique<StripDecoder>(options);
}

std::unique_ptr<DecoderPart> replace_decoder(std::unique_ptr<Pattern> pattern,
                                             std::string content) {
  return std::make_unique<ReplaceDecoder>(std::move(pattern), std::move(content));
}

std::unique_ptr<DecoderPart> metaspace_decoder(std::string replacement, bool drops_first) {
  return std::make_unique<MetaspaceDecoder>(std::move(replacement), drops_first);
}

std::unique_ptr<DecoderPart> join_with_spaces_decoder() { return std::make_unique<JoinDecoder>(); }

DecodeStream::DecodeStream(const std::vector<std::unique_ptr<DecoderPart>>& parts) {
  bool is_fused = false;
  for (const auto& part : parts) {
    stages_.push_back(part->start(is_fused));
    is_fused = is_fused || part->fuses();
  }
}

void DecodeStream::push(std::string_view token, std::string& text) {
  run_from(0, {std::string(token)}, text);
}

void DecodeStream::finish(std::string& text) {
  for (size_t i = 0; i < stages_.size(); ++i) {
    std::vector<std::string> out;
    stages_[i]->finish(out);
    run_from(i + 1, std::move(out), text);
  }
}

void DecodeStream::run_from(size_t stage, std::vector<std::string> tokens, std::string& text) {
  for (; stage < stages_.size(); ++stage) {
    std::vector<std::string> out;
    for (std::string& token : tokens) stages_[stage]->push(std::move(token), out);
    tokens = std::move(out);
  }
  for (const std::string& token : tokens) text += token;
}

}  // namespace trireme::text
