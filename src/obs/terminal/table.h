// SPDX-License-Identifier: Apache-2.0
// Formats a table of text with aligned columns:
//   memory  | predicted |  measured
//   --------+-----------+----------
//   weights | 1,024,000 | 1,024,000
#pragma once

#include <span>
#include <string>
#include <vector>

namespace trireme::obs {

enum class Align { left, right };

struct Column {
  std::string title;
  Align align = Align::right;
};

// Returns lines without trailing spaces, each with a newline. REQUIRES: every row has one cell per
// column, or none: an empty row becomes a horizontal rule.
std::string table_text(std::span<const Column> columns,
                       std::span<const std::vector<std::string>> rows);

}  // namespace trireme::obs
