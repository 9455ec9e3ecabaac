// SPDX-License-Identifier: Apache-2.0
// TableColumn: one column of a table file (ranks.bin, layers.bin, numerics.bin) for all rows and
// records, and its heat map. The file may grow; rows are matched by name when an attempt has
// others.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "base/text/json_fwd.h"
#include "obs/files/table_file.h"

namespace trireme::board {

struct HeatQuery {
  int64_t from = std::numeric_limits<int64_t>::min();
  int64_t to = std::numeric_limits<int64_t>::max();  // inclusive
  int cols = 500;
  bool lowest = false;  // a cell has the smallest value of its steps, not the largest
};

struct HeatMap {
  std::vector<std::string> rows;
  std::vector<std::pair<int64_t, int64_t>> steps;  // first and last of each column
  std::vector<float> cells;                        // [rows][columns]; NaN: no data
  float min = 0, max = 0;                          // of the finite cells; NaN if there is none
};

class TableColumn {
 public:
  TableColumn(const std::filesystem::path& file, std::string column);
  void poll();
  bool is_known() const { return is_known_; }  // a record has the column
  // The largest or smallest value of every cell. If a step was repeated, its last record
  // counts.
  HeatMap heat(const HeatQuery& query) const;
  const std::string& name() const { return column_; }

 private:
  void add(const obs::TableShape& shape, const obs::TableRecord& record);

  obs::TableReader reader_;
  std::string column_;
  bool is_known_ = false;
  std::vector<std::string> rows_;
  std::map<std::string, size_t> row_index_;
  obs::TableShape shape_;           // of the last record
  std::vector<size_t> row_places_;  // of shape_.rows in rows_
  size_t place_ = 0;                // of the column in shape_
  struct Record {
    int64_t step = 0;
    std::vector<float> values;  // by row; shorter if later records have more rows
  };
  std::vector<Record> records_;  // ascending by step
};

// Returns the bytes of GET /api/run/ID/heat: u32 bytes of JSON, JSON padded with spaces to a
// multiple of 4 bytes, and the cells.
std::string heat_bytes(const HeatMap& map, const std::string& column);
// "seconds" for "wait_tp", "bytes" for "memory_bytes", "" if the name has no unit.
std::string unit_of(const std::string& column);

}  // namespace trireme::board
