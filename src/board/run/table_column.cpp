// SPDX-License-Identifier: Apache-2.0
#include "board/run/table_column.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/text/json.h"
#include "board/request.h"

namespace trireme::board {
namespace {

constexpr float no_data = std::numeric_limits<float>::quiet_NaN();
constexpr size_t max_cells = 8'000'000;

}  // namespace

TableColumn::TableColumn(const std::filesystem::path& file, std::string column)
    : reader_(file), column_(std::move(column)) {}

void TableColumn::poll() {
  bool is_cleared = false;
  const auto clear_old = [&] {
    if (!reader_.is_restarted() || is_cleared) return;
    is_cleared = true;
    records_.clear();
    rows_.clear();
    row_index_.clear();
    row_places_.clear();
    is_known_ = false;
  };
  reader_.poll([&](const obs::TableShape& shape, const obs::TableRecord& record) {
    clear_old();
    add(shape, record);
  });
  clear_old();
}

void TableColumn::add(const obs::TableShape& shape, const obs::TableRecord& record) {
  if (!(shape == shape_) || row_places_.empty()) {
    shape_ = shape;
    row_places_.clear();
    const auto found = std::find(shape.columns.begin(), shape.columns.end(), column_);
    place_ = static_cast<size_t>(found - shape.columns.begin());
    for (const std::string& row : shape.rows) {
      const auto [at, is_new] = row_index_.try_emplace(row, rows_.size());
      if (is_new) rows_.push_back(row);
      row_places_.push_back(at->second);
    }
  }
  if (place_ >= shape.columns.size() || row_places_.empty()) return;
  if (record.values.size() != shape.rows.size() * shape.columns.size()) return;
  is_known_ = true;
  // Later records win over those of the same steps, and those of later steps that are repeated.
  while (!records_.empty() && records_.back().step >= record.step) records_.pop_back();
  Record one{.step = record.step, .values = std::vector<float>(rows_.size(), no_data)};
  for (size_t row = 0; row < row_places_.size(); ++row) {
    one.values[row_places_[row]] = record.values[row * shape.columns.size() + place_];
  }
  records_.push_back(std::move(one));
}

HeatMap TableColumn::heat(const HeatQuery& query) const {
  HeatMap map{.rows = rows_};
  const auto begin = std::lower_bound(records_.begin(), records_.end(), query.from,
                                      [](const Record& r, int64_t step) { return r.step < step; });
  const auto end = std::upper_bound(begin, records_.end(), query.to,
                                    [](int64_t step, const Record& r) { return step < r.step; });
  const auto count = static_cast<size_t>(end - begin);
  const size_t rows = std::max<size_t>(1, rows_.size());
  const size_t cols = std::min(
      {count, static_cast<size_t>(std::max(1, query.cols)), std::max<size_t>(1, max_cells / rows)});
  map.cells.assign(rows_.size() * cols, no_data);
  for (size_t col = 0; col < cols; ++col) {
    const auto first = begin + static_cast<std::ptrdiff_t>(count * col / cols);
    const auto last = begin + static_cast<std::ptrdiff_t>(count * (col + 1) / cols);
    map.steps.emplace_back(first->step, (last - 1)->step);
    for (auto record = first; record != last; ++record) {
      for (size_t row = 0; row < record->values.size(); ++row) {
        float& cell = map.cells[row * cols + col];
        const float value = record->values[row];
        if (std::isnan(cell) || (query.lowest ? value < cell : value > cell)) cell = value;
      }
    }
  }
  map.min = map.max = no_data;
  for (const float value : map.cells) {
    if (!std::isfinite(value)) continue;
    if (!(map.min <= value)) map.min = value;
    if (!(map.max >= value)) map.max = value;
  }
  return map;
}

std::string unit_of(const std::string& column) {
  if (column.starts_with("wait_") || column.starts_with("late_")) return "seconds";
  // The last of these that the name ends with.
  constexpr std::array<std::pair<std::string_view, std::string_view>, 9> ends = {
      {{"bytes_per_second", "bytes/s"},
       {"_seconds", "seconds"},
       {"_bytes", "bytes"},
       {"_hz", "Hz"},
       {"_watts", "W"},
       {"_celsius", "\u00b0C"},
       {"_share", "share"},
       {"_bits", "bits"},
       {"_db", "dB"}}};
  for (const auto& [end, unit] : ends) {
    if (column.ends_with(end)) return std::string(unit);
  }
  return "";
}

std::string heat_bytes(const HeatMap& map, const std::string& column) {
  const auto number = [](float value) {
    return std::isfinite(value) ? base::Json(value) : base::Json(nullptr);
  };
  base::Json steps = base::Json::array();
  for (const auto& [first, last] : map.steps) steps.push_back({first, last});
  std::string head = text_of({{"rows", map.rows},
                              {"steps", std::move(steps)},
                              {"column", column},
                              {"unit", unit_of(column)},
                              {"min", number(map.min)},
                              {"max", number(map.max)}});
  head.resize((head.size() + 3) / 4 * 4, ' ');
  const auto size = static_cast<uint32_t>(head.size());
  std::string out(sizeof(size), '\0');
  std::memcpy(out.data(), &size, sizeof(size));
  out += head;
  out.append(reinterpret_cast<const char*>(map.cells.data()), map.cells.size() * sizeof(float));
  return out;
}

}  // namespace trireme::board
