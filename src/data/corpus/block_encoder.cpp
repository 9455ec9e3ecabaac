// SPDX-License-Identifier: Apache-2.0
#include "data/corpus/block_encoder.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

namespace trireme::data {
namespace {

void encode_bytes(std::string_view text, std::vector<int32_t>& out) {
  const size_t before = out.size();
  out.resize(before + text.size());
  const auto* from = reinterpret_cast<const unsigned char*>(text.data());
  int32_t* to = out.data() + before;
  for (size_t i = 0; i < text.size(); ++i) to[i] = from[i];
}

template <typename Stored>
void store_as(const std::vector<int32_t>& ids, std::vector<std::byte>& out) {
  out.resize(ids.size() * sizeof(Stored));
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto value = static_cast<Stored>(ids[i]);
    std::memcpy(out.data() + i * sizeof(Stored), &value, sizeof(Stored));
  }
}

}  // namespace

BlockEncoder::BlockEncoder(const CorpusOptions& options, TokenType type, int64_t vocab)
    : parser_(options.documents),
      tokenizer_(options.tokenizer),
      encoder_(tokenizer_.make_encoder ? tokenizer_.make_encoder() : Encoder(encode_bytes)),
      has_mask_(!options.documents.completion_field.empty()),
      reserved_byte_(!tokenizer_.make_encoder && !options.documents.raw_bytes &&
                             tokenizer_.end_of_document < 256
                         ? tokenizer_.end_of_document
                         : -1),
      type_(type),
      vocab_(vocab) {}

void BlockEncoder::encode(CorpusBlock& block, const Shard& shard) {
  block.lengths.clear();
  block.rejected.clear();
  block.counts = {};
  ids_.clear();
  mask_.clear();
  parser_.start(block.source, shard);
  while (parser_.next(document_)) {
    const size_t before = ids_.size();
    auto rejection = document_.rejected ? document_.rejected : append(document_);
    if (rejection) {
      ids_.resize(before);
      mask_.resize(has_mask_ ? before : 0);
      ++block.counts.rejected[static_cast<size_t>(rejection->reason)];
      block.rejected.push_back({document_.origin, std::move(*rejection)});
      continue;
    }
    block.lengths.push_back(static_cast<int64_t>(ids_.size() - before));
    ++block.counts.documents;
    block.counts.text_bytes +=
        static_cast<int64_t>(document_.text.size() + document_.completion.value_or("").size());
  }
  block.counts.tokens = static_cast<int64_t>(ids_.size());
  block.counts.blank_lines = parser_.blank_lines();
  block.lines = parser_.lines();
  store(block);
}

std::optional<Rejection> BlockEncoder::append(const Document& document) {
  const size_t before = ids_.size();
  size_t predicted_from = before;
  if (document.is_tokens) {
    ids_.insert(ids_.end(), document.tokens.begin(), document.tokens.end());
  } else {
    if (tokenizer_.begin_of_document >= 0) ids_.push_back(tokenizer_.begin_of_document);
    if (auto rejection = append_text(document.text)) return rejection;
    if (document.completion) {
      predicted_from = ids_.size();
      if (auto rejection = append_text(*document.completion)) return rejection;
    }
    if (tokenizer_.end_of_document >= 0) ids_.push_back(tokenizer_.end_of_document);
  }
  const auto bad = std::find_if(ids_.begin() + static_cast<ptrdiff_t>(before), ids_.end(),
                                [&](int32_t id) { return id < 0 || id >= vocab_; });
  if (bad != ids_.end()) {
    return Rejection{
        RejectReason::invalid_token,
        fmt::format("token {} of the document is {}; allowed: 0 .. {}",
                    bad - ids_.begin() - static_cast<ptrdiff_t>(before), *bad, vocab_ - 1)};
  }
  if (has_mask_) {
    mask_.resize(predicted_from, std::byte{0});
    mask_.resize(ids_.size(), std::byte{1});
  }
  return std::nullopt;
}

std::optional<Rejection> BlockEncoder::append_text(std::string_view text) {
  if (reserved_byte_ >= 0) {
    const size_t found = text.find(static_cast<char>(reserved_byte_));
    if (found != std::string_view::npos) {
      return Rejection{
          RejectReason::end_of_document_byte,
          fmt::format("byte {} at offset {} of the text is the end-of-document token; 256 is no "
                      "byte",
                      reserved_byte_, found)};
    }
  }
  encoder_(text, ids_);
  return std::nullopt;
}

void BlockEncoder::store(CorpusBlock& block) const {
  if (type_ == TokenType::u16) {
    store_as<uint16_t>(ids_, block.tokens);
  } else {
    store_as<int32_t>(ids_, block.tokens);
  }
  block.mask = mask_;
}

}  // namespace trireme::data
