// SPDX-License-Identifier: Apache-2.0
#include "obs/terminal/table.h"

#include <algorithm>

#include "base/check.h"
#include "obs/terminal/terminal.h"

namespace trireme::obs {

std::string table_text(std::span<const Column> columns,
                       std::span<const std::vector<std::string>> rows) {
  std::vector<int> widths;
  for (size_t c = 0; c < columns.size(); ++c) {
    int width = columns_of(columns[c].title);
    for (const auto& row : rows) {
      TRIREME_CHECK(row.empty() || row.size() == columns.size(),
                    "a row of {} cells in a table of {} columns", row.size(), columns.size());
      if (!row.empty()) width = std::max(width, columns_of(row[c]));
    }
    widths.push_back(width);
  }

  std::string text;
  const auto put_line = [&](const auto& cell) {
    for (size_t c = 0; c < columns.size(); ++c) {
      const std::string& value = cell(c);
      const std::string padding(static_cast<size_t>(widths[c] - columns_of(value)), ' ');
      if (c > 0) text += " | ";
      text += columns[c].align == Align::right ? padding + value : value + padding;
    }
    text.erase(text.find_last_not_of(' ') + 1);
    text += '\n';
  };
  const auto put_rule = [&] {
    for (size_t c = 0; c < columns.size(); ++c) {
      if (c > 0) text += "-+-";
      text += std::string(static_cast<size_t>(widths[c]), '-');
    }
    text += '\n';
  };

  put_line([&](size_t c) -> const std::string& { return columns[c].title; });
  put_rule();
  for (const auto& row : rows) {
    if (row.empty()) {
      put_rule();
    } else {
      put_line([&](size_t c) -> const std::string& { return row[c]; });
    }
  }
  return text;
}

}  // namespace trireme::obs
