// SPDX-License-Identifier: Apache-2.0
// Compressed node lists of Slurm: names with any number of bracketed lists of numbers and ranges,
// "rack[1-2]node[01-10,12],login1". Numbers keep their width.
#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "comm/world/rank_env.h"

namespace trireme::comm {
namespace {

constexpr size_t max_nodes = 1 << 20;

struct ListReader {
  const std::string& text;

  base::ConfigError wrong(std::string_view why) const {
    return base::ConfigError(
        fmt::format("node list '{}': {}; expected a list like gpu[001-003,007],login1", text, why));
  }

  uint64_t number(std::string_view digits) const {
    const bool is_number =
        !digits.empty() && digits.size() <= 9 &&
        std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (!is_number) throw wrong(fmt::format("'{}' is not a number", digits));
    uint64_t value = 0;
    for (const char c : digits) value = value * 10 + static_cast<uint64_t>(c - '0');
    return value;
  }

  // "001-003,007" -> 001 002 003 007.
  std::vector<std::string> members(std::string_view list) const {
    std::vector<std::string> all;
    for (size_t begin = 0; begin <= list.size();) {
      const size_t end = std::min(list.find(',', begin), list.size());
      const std::string_view part = list.substr(begin, end - begin);
      const size_t dash = part.find('-');
      const std::string_view first = part.substr(0, dash);
      const std::string_view last = dash == std::string_view::npos ? first : part.substr(dash + 1);
      const uint64_t from = number(first), to = number(last);
      if (to < from) throw wrong(fmt::format("the range {} is descending", part));
      if (to - from >= max_nodes) throw wrong("too many nodes");
      for (uint64_t i = from; i <= to; ++i) {
        all.push_back(fmt::format("{:0{}}", i, first.size()));
      }
      begin = end + 1;
    }
    return all;
  }

  // One name with its brackets.
  std::vector<std::string> names(std::string_view pattern) const {
    std::vector<std::string> all = {""};
    while (!pattern.empty()) {
      const size_t open = std::min(pattern.find('['), pattern.size());
      std::vector<std::string> inserts = {""};
      size_t end = open;
      if (open < pattern.size()) {
        const size_t close = pattern.find(']', open);
        if (close == std::string_view::npos) throw wrong("a bracket is not closed");
        inserts = members(pattern.substr(open + 1, close - open - 1));
        end = close + 1;
      }
      if (all.size() * inserts.size() > max_nodes) throw wrong("too many nodes");
      std::vector<std::string> longer;
      for (const std::string& prefix : all) {
        for (const std::string& insert : inserts) {
          longer.push_back(prefix + std::string(pattern.substr(0, open)) + insert);
        }
      }
      all = std::move(longer);
      pattern.remove_prefix(end);
    }
    return all;
  }
};

}  // namespace

std::vector<std::string> expand_node_list(const std::string& text) {
  const ListReader reader{text};
  std::vector<std::string> nodes;
  int depth = 0;
  size_t begin = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    const char c = i < text.size() ? text[i] : ',';
    if (c == '[') ++depth;
    if (c == ']') --depth;
    if (depth < 0 || depth > 1) throw reader.wrong("the brackets do not match");
    if (c != ',' || (depth == 1 && i < text.size())) continue;
    if (i == begin) throw reader.wrong("a name is empty");
    for (std::string& name : reader.names(std::string_view(text).substr(begin, i - begin))) {
      nodes.push_back(std::move(name));
    }
    begin = i + 1;
  }
  return nodes;
}

}  // namespace trireme::comm
