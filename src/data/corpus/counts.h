// SPDX-License-Identifier: Apache-2.0
// Counts of documents, and the record of a shard that was read.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>

#include "base/text/json_fwd.h"
#include "data/sources/blocks.h"
#include "data/sources/document.h"

namespace trireme::data {

struct CorpusCounts {
  int64_t documents = 0, tokens = 0;  // written
  int64_t text_bytes = 0;             // of the documents, as UTF-8 without escapes
  int64_t stored_bytes = 0;           // of the shards
  int64_t blank_lines = 0;            // skipped
  std::array<int64_t, reject_reasons> rejected{};

  int64_t all_rejected() const;
  void add(const CorpusCounts&);
  bool operator==(const CorpusCounts&) const = default;
};

struct ShardRecord {
  std::string file;
  ShardEnd end;
  int64_t modified_ns = 0;  // time of change of the file
  CorpusCounts counts;
};

// Returns the path as UTF-8: bytes of names that are not become \xNN.
std::string json_name(const std::filesystem::path& path);

base::Json to_json(const CorpusCounts&);  // rejected: by reason, without zeros
base::Json to_json(const ShardRecord&);
// Throw base::Json::exception if the value does not have the form that to_json() writes.
CorpusCounts counts_from_json(const base::Json&);
ShardRecord record_from_json(const base::Json&);

}  // namespace trireme::data
