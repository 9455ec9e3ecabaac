// SPDX-License-Identifier: Apache-2.0
#include "data/clean/storage/spool.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "base/check.h"

namespace trireme::data {
namespace {

struct RecordHeader {
  int64_t line = 0, offset = 0;
  int64_t text_bytes = 0, completion_bytes = -1;  // -1: there is none
  uint32_t shard = 0, member_bytes = 0;
  int32_t rejected = -1, padding = 0;  // -1: the document is good
};

RecordHeader header_of(const ScratchFile& file, int64_t start) {
  RecordHeader header;
  file.read_at(start, std::as_writable_bytes(std::span(&header, 1)));
  return header;
}

void read_text(const ScratchFile& file, int64_t start, size_t bytes, std::string& out) {
  out.resize(bytes);
  file.read_at(start, std::as_writable_bytes(std::span(out)));
}

void set_place(const RecordHeader& header, SpooledDocument& out) {
  out.shard = header.shard;
  out.line = header.line;
  out.offset = header.offset;
  out.rejected.reset();
  if (header.rejected >= 0) out.rejected = static_cast<RejectReason>(header.rejected);
  out.completion.reset();
}

}  // namespace

void SpoolBlock::clear() {
  bytes.clear();
  starts.clear();
}

void SpoolBlock::append(const Document& document, size_t shard) {
  TRIREME_CHECK(!document.is_tokens, "a document of tokens");
  const std::string_view text =
      document.rejected ? std::string_view(document.rejected->detail) : document.text;
  RecordHeader header{.line = document.origin.line,
                      .offset = document.origin.offset,
                      .text_bytes = static_cast<int64_t>(text.size()),
                      .shard = static_cast<uint32_t>(shard),
                      .member_bytes = static_cast<uint32_t>(document.origin.member.size())};
  if (document.rejected) {
    header.rejected = static_cast<int32_t>(document.rejected->reason);
  } else if (document.completion) {
    header.completion_bytes = static_cast<int64_t>(document.completion->size());
  }
  starts.push_back(bytes.size());
  bytes.append(reinterpret_cast<const char*>(&header), sizeof(header));
  bytes.append(document.origin.member).append(text);
  if (header.completion_bytes >= 0) bytes.append(*document.completion);
}

std::vector<std::string_view> SpooledDocument::parts() const {
  if (completion) return {text, *completion};
  return {text};
}

Spool::Spool(const std::filesystem::path& folder) : file_(folder, "documents") {}

void Spool::append(SpoolBlock& block, int64_t lines_before) {
  for (const size_t start : block.starts) {
    starts_.push_back(file_.bytes() + static_cast<int64_t>(start));
    char* const line = block.bytes.data() + start + offsetof(RecordHeader, line);
    int64_t value = 0;
    std::memcpy(&value, line, sizeof(value));
    if (value > 0) value += lines_before;
    std::memcpy(line, &value, sizeof(value));
  }
  file_.append(std::as_bytes(std::span(block.bytes)));
}

int64_t Spool::record_bytes(uint32_t document) const {
  const int64_t end = document + 1U < starts_.size() ? starts_[document + 1U] : file_.bytes();
  return end - starts_.at(document);
}

void Spool::read(uint32_t document, SpooledDocument& out) const {
  const int64_t start = starts_.at(document);
  const RecordHeader header = header_of(file_, start);
  set_place(header, out);
  int64_t at = start + static_cast<int64_t>(sizeof(header));
  read_text(file_, at, header.member_bytes, out.member);
  at += header.member_bytes;
  read_text(file_, at, static_cast<size_t>(header.text_bytes), out.text);
  at += header.text_bytes;
  if (header.completion_bytes < 0) return;
  read_text(file_, at, static_cast<size_t>(header.completion_bytes), out.completion.emplace());
}

void Spool::read_start(uint32_t document, size_t max_text, SpooledDocument& out) const {
  const int64_t start = starts_.at(document);
  const RecordHeader header = header_of(file_, start);
  set_place(header, out);
  const int64_t at = start + static_cast<int64_t>(sizeof(header));
  read_text(file_, at, header.member_bytes, out.member);
  read_text(file_, at + header.member_bytes,
            std::min(max_text, static_cast<size_t>(header.text_bytes)), out.text);
}

}  // namespace trireme::data
