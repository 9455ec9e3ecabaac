// SPDX-License-Identifier: Apache-2.0
// From a block to its documents: splits lines, reads JSON, checks text. The part of reading that
// runs on any number of threads.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "data/readers/json_fields.h"
#include "data/sources/blocks.h"
#include "data/sources/document.h"

namespace trireme::data {

// Used from one thread; reuses its memory from block to block.
class BlockParser {
 public:
  explicit BlockParser(const DocumentOptions& options);

  // REQUIRES: block and shard outlive the calls of next().
  void start(const SourceBlock& block, const Shard& shard);
  // Returns false at the end of the block. Lines in Document::origin count from the start of the
  // block. Throws IoError if a file of tokens has an id that no vocabulary has.
  bool next(Document& document);

  int64_t lines() const { return lines_; }              // of the block so far
  int64_t blank_lines() const { return blank_lines_; }  // skipped, of the block so far

 private:
  bool next_line(Document& document);
  bool next_item(Document& document);
  bool next_tokens(Document& document);
  void read_json_line(std::string_view line, Document& document);
  void read_payload(size_t field, const Payload& payload, Document& document);
  void set_field(size_t field, std::string_view text, Document& document) const;
  // Returns what begins a text file without a byte-order mark, unless raw bytes are read.
  std::string_view without_mark(std::string_view text) const;
  void check_text(Document& document, bool is_utf8) const;  // is_utf8: known to be

  DocumentOptions options_;
  bool has_completion_;
  JsonFields line_fields_;                                // all fields of a line
  std::vector<JsonFields> member_fields_;                 // one field of a JSON member
  std::vector<std::optional<JsonFields>> column_fields_;  // the path inside a column of JSON

  const SourceBlock* block_ = nullptr;
  std::string file_;
  size_t at_ = 0;  // bytes or items done
  int64_t document_ = 0;
  int64_t lines_ = 0, blank_lines_ = 0;
  std::vector<int32_t> tokens_;
};

}  // namespace trireme::data
