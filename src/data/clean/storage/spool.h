// SPDX-License-Identifier: Apache-2.0
// All documents of a cleaning job in one work file, so that inputs are read and decompressed once
// and any document can be read again. Takes 8 bytes of memory for each document.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/clean/storage/scratch_file.h"
#include "data/sources/document.h"

namespace trireme::data {

// Records of consecutive documents, made by any thread.
struct SpoolBlock {
  std::string bytes;
  std::vector<size_t> starts;  // of the records

  void clear();
  // REQUIRES: no tokens. A rejected document has its detail as text.
  void append(const Document& document, size_t shard);
};

struct SpooledDocument {
  size_t shard = 0;
  int64_t line = 0, offset = 0;  // see Origin
  std::string member;
  std::string text;
  std::optional<std::string> completion;
  std::optional<RejectReason> rejected;

  // Returns the text, or the prompt and the completion.
  std::vector<std::string_view> parts() const;
};

class Spool {
 public:
  explicit Spool(const std::filesystem::path& folder);

  // Lines of the block count from its start; `lines_before` is added. Used from one thread.
  void append(SpoolBlock& block, int64_t lines_before);
  void finish() { file_.flush(); }

  int64_t documents() const { return static_cast<int64_t>(starts_.size()); }
  int64_t bytes() const { return file_.bytes(); }
  // Returns the bytes that the record of a document takes.
  int64_t record_bytes(uint32_t document) const;
  // Usable from any thread after finish(). `max_text` bounds the text that is read, from its start;
  // a completion is then left out.
  void read(uint32_t document, SpooledDocument& out) const;
  void read_start(uint32_t document, size_t max_text, SpooledDocument& out) const;

 private:
  ScratchFile file_;
  std::deque<int64_t> starts_;  // a deque does not copy when it grows
};

}  // namespace trireme::data
