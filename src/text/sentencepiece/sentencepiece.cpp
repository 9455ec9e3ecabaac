// SPDX-License-Identifier: Apache-2.0
#include "text/sentencepiece.h"

#include <sentencepiece_processor.h>

#include <fstream>
#include <iterator>

#include "base/error.h"
#include "base/sha256.h"
#include "text/unicode/utf8.h"

namespace trireme::text {

namespace {

void check_status(const sentencepiece::util::Status& status, const std::string& what) {
  if (!status.ok()) throw base::ConfigError(what + ": " + status.ToString());
}

class SentencePieceTokenizer final : public Tokenizer {
 public:
  explicit SentencePieceTokenizer(const std::filesystem::path& model) : name_(model.string()) {
    std::ifstream in(model, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(in), {}};
    if (!in && bytes.empty()) throw base::IoError(name_ + ": cannot be read");
    check_status(processor_.LoadFromSerializedProto(bytes),
                 name_ + ": is not a SentencePiece model");
    const auto known = [](int id) {
      return id < 0 ? std::nullopt : std::optional<int32_t>(static_cast<int32_t>(id));
    };
    special_ids_ = {known(processor_.bos_id()), known(processor_.eos_id()),
                    known(processor_.unk_id()), known(processor_.pad_id())};
    base::Sha256 hash;
    hash.update(std::as_bytes(std::span(bytes)));
    fingerprint_ = hash.hex();
    for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
      const auto file = model.parent_path() / name;
      if (std::filesystem::exists(file)) files_.push_back(file);
    }
    files_.insert(files_.begin(), model);
  }

  std::string decode(std::span<const int32_t> ids, DecodeOptions options) const override {
    std::vector<int> known;
    for (const int32_t id : ids) {
      if (id < 0 || id >= processor_.GetPieceSize()) continue;
      if (options.skip_special && processor_.IsControl(id)) continue;
      known.push_back(id);
    }
    std::string text;
    check_status(processor_.Decode(known, &text), name_ + ": decoding");
    return text;
  }

  std::unique_ptr<StreamingDecoder> streaming_decoder(DecodeOptions options) const override;

  int32_t vocab_size() const override { return processor_.GetPieceSize(); }

  std::optional<std::string> token_of(int32_t id) const override {
    if (id < 0 || id >= processor_.GetPieceSize()) return std::nullopt;
    return processor_.IdToPiece(id);
  }

  std::optional<int32_t> id_of(std::string_view token) const override {
    const int32_t id = processor_.PieceToId(absl::string_view(token.data(), token.size()));
    if (token_of(id) != token) return std::nullopt;  // the library returns unk
    return id;
  }

  bool is_special(int32_t id) const override {
    return id >= 0 && id < processor_.GetPieceSize() && processor_.IsControl(id);
  }

  bool is_byte(int32_t id) const {
    return id >= 0 && id < processor_.GetPieceSize() && processor_.IsByte(id);
  }

 private:
  void encode_valid(std::string_view text, EncodeOptions options,
                    std::vector<int32_t>& ids) const override {
    if (options.add_special && special_ids_.bos) ids.push_back(*special_ids_.bos);
    std::vector<int> made;
    check_status(processor_.Encode(absl::string_view(text.data(), text.size()), &made),
                 name_ + ": encoding");
    ids.insert(ids.end(), made.begin(), made.end());
  }

  std::string name_;
  sentencepiece::SentencePieceProcessor processor_;
};

// Decodes the ids since the last one that was no byte, together with that one, and returns what is
// new: bytes of a code point can be spread over pieces, and the first piece loses its space.
class SentencePieceStream final : public StreamingDecoder {
 public:
  SentencePieceStream(const SentencePieceTokenizer& tokenizer, DecodeOptions options)
      : tokenizer_(tokenizer), options_(options) {}

  std::string push(int32_t id) override {
    if (tokenizer_.is_special(id)) return "";  // control pieces have no text
    ids_.push_back(id);
    if (tokenizer_.is_byte(id)) return "";  // the code point may not be complete
    return take(id);
  }

  std::string finish() override { return take(-1); }

 private:
  std::string take(int32_t anchor) {
    const std::string text = tokenizer_.decode(ids_, options_);
    std::string fresh = text.substr(std::min(text.size(), shown_.size()));
    ids_.clear();
    shown_.clear();
    if (anchor >= 0) {
      // Two anchors, since the first piece of a text loses its space.
      ids_ = {anchor, anchor};
      shown_ = tokenizer_.decode(ids_, options_);
    }
    return fresh;
  }

  const SentencePieceTokenizer& tokenizer_;
  DecodeOptions options_;
  std::vector<int32_t> ids_;
  std::string shown_;
};

std::unique_ptr<StreamingDecoder> SentencePieceTokenizer::streaming_decoder(
    DecodeOptions options) const {
  return std::make_unique<SentencePieceStream>(*this, options);
}

}  // namespace

std::unique_ptr<Tokenizer> open_sentencepiece(const std::filesystem::path& model) {
  return std::make_unique<SentencePieceTokenizer>(model);
}

}  // namespace trireme::text
