// SPDX-License-Identifier: Apache-2.0
#include "data/sources/block_parser.h"

#include <fmt/core.h>

#include <cstring>

#include "base/check.h"
#include "data/files/utf8.h"

namespace trireme::data {

BlockParser::BlockParser(const DocumentOptions& options)
    : options_(options),
      has_completion_(!options.completion_field.empty()),
      line_fields_(field_paths(options)) {
  for (FieldPath& path : field_paths(options)) {
    member_fields_.emplace_back(std::vector<FieldPath>{path});
    column_fields_.emplace_back();
    path.keys.erase(path.keys.begin());
    if (!path.keys.empty()) column_fields_.back().emplace(std::vector<FieldPath>{path});
  }
}

void BlockParser::start(const SourceBlock& block, const Shard& shard) {
  block_ = &block;
  file_ = shard.path == "-" ? "stdin" : shard.path.string();
  at_ = 0;
  lines_ = block.lines;
  blank_lines_ = 0;
  document_ = block.first_document;
}

bool BlockParser::next(Document& document) {
  TRIREME_CHECK(block_ != nullptr, "next() before start()");
  document.text = {};
  document.completion.reset();
  document.tokens = {};
  document.is_tokens = false;
  document.rejected.reset();
  document.origin.file = file_;
  document.origin.line = 0;
  switch (block_->kind) {
    case SourceBlock::Kind::text_lines:
    case SourceBlock::Kind::json_lines:
      return next_line(document);
    case SourceBlock::Kind::items:
      return next_item(document);
    case SourceBlock::Kind::tokens:
      return next_tokens(document);
  }
  return false;
}

bool BlockParser::next_line(Document& document) {
  const std::string_view bytes = block_->bytes;
  const bool is_json = block_->kind == SourceBlock::Kind::json_lines;
  while (at_ < bytes.size()) {
    const size_t begin = at_, newline = bytes.find('\n', at_);
    std::string_view line = bytes.substr(begin, newline - begin);
    at_ = begin + line.size() + 1;
    ++lines_;
    const auto length = static_cast<int64_t>(line.size());
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (is_json ? line.find_first_not_of(" \t\r") == std::string_view::npos : line.empty()) {
      ++blank_lines_;
      continue;
    }
    document.origin.line = lines_;
    document.origin.member.clear();
    document.origin.offset = block_->offset + static_cast<int64_t>(begin);
    if (length > options_.max_document_bytes) {
      document.rejected = {
          RejectReason::too_long,
          fmt::format("the line has {} bytes; allowed: {}", length, options_.max_document_bytes)};
    } else if (is_json) {
      read_json_line(line, document);
    } else {
      document.text = document.origin.offset == 0 ? without_mark(line) : line;
      check_text(document, false);
    }
    return true;
  }
  return false;
}

void BlockParser::read_json_line(std::string_view line, Document& document) {
  document.rejected = line_fields_.read(line);
  if (document.rejected) return;
  document.text = line_fields_.value(0);
  if (has_completion_) document.completion = line_fields_.value(1);
  check_text(document, true);
}

bool BlockParser::next_item(Document& document) {
  if (at_ == block_->items.size()) return false;
  const BlockItem& item = block_->items[at_++];
  document.origin.line = block_->lines;
  document.origin.member = item.member;
  document.origin.offset = item.offset;
  document.rejected = item.rejected;
  for (size_t field = 0; field < item.payloads.size() && !document.rejected; ++field) {
    read_payload(field, item.payloads[field], document);
  }
  if (!document.rejected) check_text(document, false);
  return true;
}

std::string_view BlockParser::without_mark(std::string_view text) const {
  if (!options_.raw_bytes && text.starts_with(byte_order_mark)) {
    text.remove_prefix(byte_order_mark.size());
  }
  return text;
}

void BlockParser::read_payload(size_t field, const Payload& payload, Document& document) {
  const std::string_view bytes =
      std::string_view(block_->bytes).substr(payload.begin, payload.end - payload.begin);
  if (payload.kind == Payload::Kind::text) {
    const bool is_file = document.origin.member.empty();
    return set_field(field, is_file ? without_mark(bytes) : bytes, document);
  }
  JsonFields& json =
      payload.kind == Payload::Kind::json ? member_fields_[field] : column_fields_[field].value();
  document.rejected = json.read(bytes);
  if (!document.rejected) set_field(field, json.value(0), document);
}

void BlockParser::set_field(size_t field, std::string_view text, Document& document) const {
  if (field == 0) {
    document.text = text;
  } else {
    document.completion = text;
  }
}

bool BlockParser::next_tokens(Document& document) {
  if (document_ == block_->end_document) return false;
  const TokenData& data = *block_->tokens;
  const int64_t begin = data.documents().start(document_),
                end = data.documents().start(document_ + 1);
  tokens_.resize(static_cast<size_t>(end - begin));
  data.read(begin, tokens_);
  document.tokens = tokens_;
  document.is_tokens = true;
  document.origin.member = fmt::format("document {}", document_);
  document.origin.offset = begin * size_of(data.type());
  if (tokens_.empty()) document.rejected = {RejectReason::empty, "the document has no tokens"};
  ++document_;
  return true;
}

void BlockParser::check_text(Document& document, bool is_utf8) const {
  const bool is_text_file =
      block_->kind != SourceBlock::Kind::json_lines && document.origin.member.empty();
  const bool accepts_any = options_.raw_bytes && is_text_file;
  const std::string_view last = document.completion.value_or(document.text);
  if (last.empty()) {
    document.rejected = {RejectReason::empty,
                         has_completion_ ? "the completion is empty" : "the text is empty"};
    return;
  }
  if (accepts_any) return;
  for (const std::string_view text : {document.text, document.completion.value_or("")}) {
    const auto bytes = std::as_bytes(std::span(text));
    if (const auto bad = is_utf8 ? std::nullopt : first_invalid_utf8(bytes)) {
      document.rejected = {
          RejectReason::invalid_utf8,
          fmt::format("byte 0x{:02x} at offset {} of the text is not UTF-8{}{}",
                      static_cast<unsigned>(bytes[*bad]), *bad,
                      is_text_file && options_.offers_raw_bytes ? "; --raw-bytes accepts it" : "",
                      utf16_hint(bytes))};
      return;
    }
    if (const size_t nul = text.find('\0'); nul != std::string_view::npos) {
      document.rejected = {RejectReason::nul, fmt::format("NUL at offset {} of the text", nul)};
      return;
    }
  }
}

}  // namespace trireme::data
