// SPDX-License-Identifier: Apache-2.0
// LineScanner: reads the lines of metrics.jsonl, flat objects of numbers, several times faster than
// a general parser. A line that is no JSON object of the expected form is damaged; nested values
// and texts other than "NaN", "Infinity" and "-Infinity" are ignored.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace trireme::board {

struct ScannedValue {
  int tag = 0;              // index into tags()
  double value = 0;         // may be NaN or infinite; NaN for null
  std::string_view digits;  // as they stand in the line, without quotes
};

struct ScannedLine {
  bool has_step = false;
  int64_t step = 0;
  int64_t attempt = 0;
  double time = 0;
  std::string_view time_digits;      // as they stand in the line
  std::string_view kind;             // as it stands in the line
  std::vector<ScannedValue> values;  // in the order of the line
};

class LineScanner {
 public:
  // Returns false for a damaged line; `out` is then unspecified. `line` has no newline; views in
  // `out` point into it.
  bool scan(std::string_view line, ScannedLine& out);

  const std::vector<std::string>& tags() const { return tags_; }
  // Returns the index of a tag, which is added if it is new.
  int tag_of(std::string_view name);
  // Tags beyond this number are ignored, so that a damaged file cannot exhaust memory.
  static constexpr int max_tags = 4096;

 private:
  struct Cursor;
  int tag_at(std::string_view raw_key, size_t place);

  std::vector<std::string> tags_;
  std::unordered_map<std::string, int> index_;
  // Keys as they stood in the last line, in order: the next line usually has the same.
  std::vector<std::pair<std::string, int>> expected_;
};

// Decodes the escapes of a JSON string without its quotes; bytes that are not UTF-8 are replaced by
// U+FFFD. Returns false if it is malformed.
bool unescape(std::string_view raw, std::string& out);

}  // namespace trireme::board
