// SPDX-License-Identifier: Apache-2.0
// The files that cleaning writes: documents as JSON lines, in one file or in parts, and the places
// of removed documents.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/text/json_fwd.h"
#include "data/clean/outcome.h"
#include "data/clean/storage/spool.h"
#include "data/files/output_file.h"
#include "data/readers/byte_stream.h"
#include "data/sources/shards.h"

namespace trireme::data {

struct CleanFiles {
  bool is_folder = false;  // `documents` is a folder of parts
  std::filesystem::path documents, removed, report;
  Compression compression = Compression::none;
};
// Throws ConfigError for a name that cannot be written.
CleanFiles clean_files(const std::filesystem::path& output);

// Throws ConfigError if one of the files exists and may not be replaced, or would be read.
void check_clean_files(const CleanFiles&, const std::vector<std::string>& inputs,
                       const std::vector<Shard>&, bool replaces);

// Appends {"text":...} or {"prompt":...,"completion":...} and a line end.
void append_json_line(const SpooledDocument& document, std::string& out);

// Returns "a.jsonl:3", as to_text(Origin) does.
std::string place_of(const SpooledDocument& document, const std::vector<Shard>& shards);
// Returns file, line or member, and offset.
base::Json place_json(const SpooledDocument& document, const std::vector<Shard>& shards);

// One file, or the parts of a folder. Used from one thread.
class DocumentFiles {
 public:
  DocumentFiles(const CleanFiles& files, int64_t part_bytes);
  ~DocumentFiles();  // removes what was not published
  DocumentFiles(const DocumentFiles&) = delete;
  DocumentFiles& operator=(const DocumentFiles&) = delete;

  // Appends complete lines, compressed already; `text_bytes` before compression.
  void append(std::string_view bytes, int64_t text_bytes);
  // Syncs the files, renames them into place and removes parts of an earlier output. Returns them.
  std::vector<std::filesystem::path> publish();

 private:
  void open_part();

  CleanFiles files_;
  bool made_folder_ = false;
  int64_t part_bytes_, written_ = 0;  // written: to the last part
  std::vector<std::unique_ptr<OutputFile>> parts_;
};

}  // namespace trireme::data
