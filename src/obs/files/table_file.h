// SPDX-License-Identifier: Apache-2.0
// Table files: matrices of 32-bit floats over steps, one row per rank (ranks.bin) or per layer
// (layers.bin). A file is a sequence of blocks,
//   u32 kind ('H' or 'R') | u32 bytes of the payload | payload | u32 CRC-32C of the payload
// in little-endian order. The payload of an H block is JSON, {"table", "rows", "columns", "about"};
// it holds for the R blocks after it until the next H block, which every attempt writes. The
// payload of an R block is i64 step | i64 attempt | f64 time | f32[rows][columns].
//
// Readers ignore an incomplete block at the end, which a writer may be about to complete; a block
// with a wrong checksum ends the file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/text/json_fwd.h"
#include "obs/report_file.h"

namespace trireme::obs {

struct TableShape {
  std::string table;                 // "ranks", "layers"
  std::vector<std::string> rows;     // names: "rank 3", "blocks.7"
  std::vector<std::string> columns;  // names with their unit: "compute_seconds"
  std::string about;                 // JSON object of the writer; "{}" if there is nothing to say
  bool operator==(const TableShape&) const = default;
};

struct TableRecord {
  int64_t step = 0;
  int64_t attempt = 0;
  double time = 0;            // seconds since 1970
  std::vector<float> values;  // [rows][columns]
  bool operator==(const TableRecord&) const = default;
};

class TableWriter {
 public:
  // Appends to an existing file, after removing an incomplete block of a killed process.
  explicit TableWriter(const std::filesystem::path& path);
  void begin(const TableShape& shape);
  // REQUIRES: begin() was called, and `values` has its size.
  void add(const TableRecord& record);
  int64_t bytes() const { return bytes_; }  // written by this object

 private:
  ReportFile file_;
  size_t values_ = 0;
  int64_t bytes_ = 0;
};

// Reads a table that may still grow. A file that was replaced by a shorter one is read from its
// beginning; is_restarted() is true after the poll() that noticed it.
class TableReader {
 public:
  explicit TableReader(std::filesystem::path path);
  // Calls `record` for every complete record since the last call. A file that does not exist is
  // empty.
  void poll(const std::function<void(const TableShape&, const TableRecord&)>& record);
  bool is_restarted() const { return is_restarted_; }

 private:
  std::filesystem::path path_;
  uintmax_t offset_ = 0;
  TableShape shape_;
  bool is_restarted_ = false;
};

}  // namespace trireme::obs
