// SPDX-License-Identifier: Apache-2.0
// Extracts strings from a line of JSON without building a tree. The complete line is checked
// (RFC 8259), so that a field before an error is not used. Several times as fast as a parser: most
// bytes are inside of strings, which are scanned eight bytes at a time.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/sources/document.h"

namespace trireme::data {

// The keys to a value: "text", or "meta.text" for the key "text" of the object under "meta".
struct FieldPath {
  std::vector<std::string> keys;
  std::string text() const;  // joined with dots
};
// Throws ConfigError if `path` is empty or has an empty key.
FieldPath field_path(std::string_view path);

inline constexpr size_t max_json_depth = 256;

// Reuses its memory from line to line. Used from one thread.
class JsonFields {
 public:
  // REQUIRES: one or two paths.
  explicit JsonFields(std::vector<FieldPath> paths);

  // Checks that `line` is one JSON object and finds the strings at all paths. Returns why not:
  // invalid_utf8, json_error with the column, or wrong_field (missing, twice, not a string).
  std::optional<Rejection> read(std::string_view line);
  // Returns the string at a path, without escapes. It is a view of the line or of this object,
  // valid until either changes. REQUIRES: read() returned no rejection.
  std::string_view value(size_t path) const { return fields_[path].value; }

 private:
  struct Field {
    std::string_view value;
    std::string unescaped;
    int found = 0;           // how often
    std::string_view other;  // type of a value that is not a string
  };

  std::vector<FieldPath> paths_;
  std::vector<Field> fields_;
  std::string key_;  // without escapes

  friend class JsonScanner;
};

}  // namespace trireme::data
