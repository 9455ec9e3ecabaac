// SPDX-License-Identifier: Apache-2.0
#include "plan/validate/published_row.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <regex>

#include "base/error.h"
#include "base/text/json.h"

namespace trireme::plan {
namespace {

using base::Json;

constexpr double max_degree = 1 << 20;

std::string name(const char* section, const char* key) {
  return fmt::format("{}{}{}", section, *section != 0 ? "." : "", key);
}

}  // namespace

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

Row::Row(const Json& json, std::string where) : json_(json), where_(std::move(where)) {
  if (!json.is_object()) bad("not a JSON object");
}

const Json* Row::find(const char* section, const char* key) const {
  const Json* at = &json_;
  if (*section != 0) {
    const auto found = json_.find(section);
    if (found == json_.end() || found->is_null()) return nullptr;
    if (!found->is_object()) bad(fmt::format("{} is not an object", section));
    at = &*found;
  }
  const auto found = at->find(key);
  return found == at->end() || found->is_null() ? nullptr : &*found;
}

std::optional<double> Row::number(const char* section, const char* key) const {
  const Json* value = find(section, key);
  if (value == nullptr) return {};
  if (!value->is_number()) bad(fmt::format("{} is not a number", name(section, key)));
  return value->get<double>();
}

int64_t Row::whole(const char* section, const char* key, double max) const {
  const auto value = number(section, key);
  if (!value) throw Unpriced{fmt::format("{} is not stated", name(section, key))};
  if (*value < 1 || *value > max || *value != std::floor(*value)) {
    throw Unpriced{fmt::format("{} = {} is not a whole number from 1 to {:.0f}", name(section, key),
                               *value, max)};
  }
  return static_cast<int64_t>(*value);
}

int64_t Row::whole_or(const char* section, const char* key, int64_t otherwise, double max) const {
  return find(section, key) == nullptr ? otherwise : whole(section, key, max);
}

int Row::degree(const char* key) const {
  return static_cast<int>(whole("parallel", key, max_degree));
}

int Row::degree_or(const char* key, int otherwise) const {
  return find("parallel", key) == nullptr ? otherwise : degree(key);
}

std::string Row::text(const char* section, const char* key) const {
  const Json* value = find(section, key);
  if (value == nullptr) return {};
  if (!value->is_string()) bad(fmt::format("{} is not a string", name(section, key)));
  return value->get<std::string>();
}

std::optional<bool> Row::flag(const char* section, const char* key) const {
  const Json* value = find(section, key);
  if (value == nullptr) return {};
  if (!value->is_boolean()) {
    bad(fmt::format("{} is neither true nor false", name(section, key)));
  }
  return value->get<bool>();
}

void Row::bad(const std::string& what) const {
  throw base::ConfigError(fmt::format("{}: {}", where_, what));
}

std::optional<double> network_rate(const std::string& text, double node) {
  // GB/s are bytes, Gb/s and Gbps are bits. A rate without a count is read in bits only, because a
  // single GB/s is NVLink's.
  static const std::regex several(R"((\d+)\s*x\s*(\d+(?:\.\d+)?)\s*G(?:b/s|bps|bit/s))"),
      bytes(R"((\d+)\s*x\s*(\d+(?:\.\d+)?)\s*GB/s)"),
      one(R"((\d+(?:\.\d+)?)\s*([GT])(?:b/s|bps|bit/s))");
  std::smatch match;
  if (std::regex_search(text, match, several)) {
    return std::stod(match[1]) * std::stod(match[2]) * 1e9 / 8 / node;
  }
  if (std::regex_search(text, match, bytes)) {
    return std::stod(match[1]) * std::stod(match[2]) * 1e9 / node;
  }
  if (std::regex_search(text, match, one)) {
    const double rate = std::stod(match[1]) * (match[2] == "T" ? 1e12 : 1e9) / 8;
    return has(lower(text), "per gpu") ? rate : rate / node;
  }
  return {};
}

}  // namespace trireme::plan
