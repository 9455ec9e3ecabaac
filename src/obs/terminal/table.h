// SPDX-License-Identifier: Apache-2.0
// A table of text with aligned columns:
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

// Every line ends with a newline and without spaces. REQUIRES: every row has as many cells as there
// are columns, or none at all: an empty row is a rule.
std::string table_text(std::span<const Column> columns,
                       std::span<const std::vector<std::string>> rows);

}  // namespace trireme::obs
