// SPDX-License-Identifier: Apache-2.0
// One row of published runs: a JSON object with sections. Null and absent values are unknown.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/text/json_fwd.h"

namespace trireme::plan {

// Thrown if a row cannot be priced.
struct Unpriced {
  std::string reason;
};

std::string lower(std::string text);
bool has(const std::string& text, std::string_view part);

// Section "" is the row itself. Values of another type throw ConfigError that begins with `where`
// and names the key. Impossible values, and missing ones that a price needs, throw Unpriced.
class Row {
 public:
  // `json` must outlive the Row.
  Row(const base::Json& json, std::string where);

  // Returns null if the value is unknown.
  const base::Json* find(const char* section, const char* key) const;
  std::optional<double> number(const char* section, const char* key) const;
  // Returns an integer from 1 to `max`.
  int64_t whole(const char* section, const char* key, double max = 1e12) const;
  int64_t whole_or(const char* section, const char* key, int64_t otherwise,
                   double max = 1e12) const;
  int degree(const char* key) const;
  int degree_or(const char* key, int otherwise) const;
  std::string text(const char* section, const char* key) const;
  std::optional<bool> flag(const char* section, const char* key) const;
  [[noreturn]] void bad(const std::string& what) const;

 private:
  const base::Json& json_;
  std::string where_;
};

// Returns the bytes per second of one GPU for text such as "8x200Gb/s HDR per node", "1600Gb/s RoCE
// per node", "8x50GB/s IB" or "400 Gbps per GPU"; `node` is the number of GPUs in a node.
std::optional<double> network_rate(const std::string& text, double node);

}  // namespace trireme::plan
