// SPDX-License-Identifier: Apache-2.0
// One row of published runs: a JSON object with sections, in which what is null or not there is
// unknown.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/text/json_fwd.h"

namespace trireme::plan {

// What cannot be priced, as a reason.
struct Unpriced {
  std::string reason;
};

std::string lower(std::string text);
bool has(const std::string& text, std::string_view part);

// Section "" is the row itself. Values of another kind than asked for throw ConfigError that begins
// with `where` and names the key; values that no run can have, and missing ones that a price needs,
// throw Unpriced.
class Row {
 public:
  // `json` must outlive it.
  Row(const base::Json& json, std::string where);

  // Null: unknown.
  const base::Json* find(const char* section, const char* key) const;
  std::optional<double> number(const char* section, const char* key) const;
  // A whole number of at least 1; `most` at most.
  int64_t whole(const char* section, const char* key, double most = 1e12) const;
  int64_t whole_or(const char* section, const char* key, int64_t otherwise,
                   double most = 1e12) const;
  int degree(const char* key) const;
  int degree_or(const char* key, int otherwise) const;
  std::string text(const char* section, const char* key) const;
  std::optional<bool> flag(const char* section, const char* key) const;
  [[noreturn]] void bad(const std::string& what) const;

 private:
  const base::Json& json_;
  std::string where_;
};

// "8x200Gb/s HDR per node", "1600Gb/s RoCE per node", "8x50GB/s IB", "400 Gbps per GPU": bytes per
// second of one GPU, where a node has `node`.
std::optional<double> network_rate(const std::string& text, double node);

}  // namespace trireme::plan
