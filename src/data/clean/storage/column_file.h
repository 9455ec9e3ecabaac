// SPDX-License-Identifier: Apache-2.0
// A matrix on disk that is appended to by rows and read by columns: the rows of a chunk are stored
// column by column, so that one column is read in pieces of 64 KiB and more.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "data/clean/storage/scratch_file.h"

namespace trireme::data {

inline constexpr size_t chunk_rows = 8192;

// Used from one thread.
template <typename T>
class ColumnFile {
 public:
  ColumnFile(const std::filesystem::path& folder, std::string purpose, size_t columns)
      : file_(folder, std::move(purpose)), columns_(columns), chunk_(columns * chunk_rows) {}

  size_t columns() const { return columns_; }
  int64_t rows() const { return rows_; }
  int64_t chunks() const {
    return (rows_ + static_cast<int64_t>(chunk_rows) - 1) / static_cast<int64_t>(chunk_rows);
  }

  void append_row(std::span<const T> row) {
    TRIREME_CHECK(row.size() == columns_, "{} values, {} columns", row.size(), columns_);
    const size_t at = static_cast<size_t>(rows_) % chunk_rows;
    for (size_t column = 0; column < columns_; ++column) {
      chunk_[column * chunk_rows + at] = row[column];
    }
    ++rows_;
    if (at + 1 == chunk_rows) file_.append(std::as_bytes(std::span(chunk_)));
  }
  // Completes the file; no row may follow.
  void finish() {
    if (static_cast<size_t>(rows_) % chunk_rows != 0)
      file_.append(std::as_bytes(std::span(chunk_)));
    file_.flush();
  }

  // Calls use(first_row, values) for the pieces of a column, in order. REQUIRES: finish().
  template <typename Use>
  void read_column(size_t column, Use&& use) const {
    std::vector<T> values(chunk_rows);
    for (int64_t chunk = 0; chunk < chunks(); ++chunk) {
      file_.read_at(offset(chunk, column), std::as_writable_bytes(std::span(values)));
      const int64_t first = chunk * static_cast<int64_t>(chunk_rows);
      const int64_t count = std::min(static_cast<int64_t>(chunk_rows), rows_ - first);
      use(first, std::span<const T>(values).first(static_cast<size_t>(count)));
    }
  }

  // Replaces a column; the matrix gets as many rows as `values`. An alternative to append_row():
  // every column is written once.
  void write_column(size_t column, std::span<const T> values) {
    rows_ = static_cast<int64_t>(values.size());
    for (int64_t chunk = 0; chunk < chunks(); ++chunk) {
      const size_t first = static_cast<size_t>(chunk) * chunk_rows;
      const auto piece = values.subspan(first, std::min(chunk_rows, values.size() - first));
      std::copy(piece.begin(), piece.end(), chunk_.begin());
      file_.write_at(offset(chunk, column), std::as_bytes(std::span(chunk_).first(chunk_rows)));
    }
  }

  // Fills `values` with a chunk: chunk_rows values of column 0, then those of column 1, and so on.
  void read_chunk(int64_t chunk, std::vector<T>& values) const {
    values.resize(columns_ * chunk_rows);
    file_.read_at(offset(chunk, 0), std::as_writable_bytes(std::span(values)));
  }

 private:
  int64_t offset(int64_t chunk, size_t column) const {
    return static_cast<int64_t>((static_cast<size_t>(chunk) * columns_ + column) * chunk_rows *
                                sizeof(T));
  }

  ScratchFile file_;
  size_t columns_;
  std::vector<T> chunk_;
  int64_t rows_ = 0;
};

}  // namespace trireme::data
