// SPDX-License-Identifier: Apache-2.0
// Rules about the pages of the board: text reaches a page only as text, a page loads nothing from
// elsewhere, and its modules can be joined into one script (report.html has no server to import
// from).
#include <fmt/core.h>

#include <map>
#include <regex>
#include <sstream>

#include "rules.h"

namespace trireme::tidy {

namespace {

bool is_page_file(const SourceFile& file) {
  const std::string extension = extension_of(file.path);
  return file.path.starts_with("src/board/assets/") &&
         (extension == ".js" || extension == ".html" || extension == ".css");
}

struct Forbidden {
  std::regex pattern;
  const char* reason;
};

const std::vector<Forbidden>& forbidden() {
  static const std::vector<Forbidden> all = [] {
    std::vector<Forbidden> found;
    const auto add = [&](const char* pattern, const char* reason) {
      found.push_back({std::regex(pattern, std::regex::ECMAScript | std::regex::optimize), reason});
    };
    add(R"(\b(innerHTML|outerHTML|insertAdjacentHTML|createContextualFragment|srcdoc)\b)",
        "makes markup of text; use textContent or el()");
    add(R"(\bdocument\.write|\bDOMParser\b)", "parses text as markup");
    add(R"(\beval\s*\(|\bnew\s+Function\b|\bsetTimeout\s*\(\s*['"`])", "runs text as a program");
    add(R"(\son[a-z]+\s*=\s*["'])", "is an inline handler; use addEventListener");
    add(R"(\sstyle\s*=\s*["']|setAttribute\(\s*['"]style)",
        "is an inline style, which the content policy forbids");
    add(R"(javascript:)", "runs text as a program");
    add(R"(\b(https?|wss?):\/\/(?!www\.w3\.org\/2000\/svg))", "is an address elsewhere");
    return found;
  }();
  return all;
}

// A line `import {a, b} from './x.js';`, or no import at all.
bool is_joinable(const std::string& line) {
  static const std::regex import_line(
      R"(import \{[A-Za-z_0-9]+(, [A-Za-z_0-9]+)*\} from '\./[a-z_]+\.js';)");
  static const std::regex export_line(
      R"(export (async function|function|const|let|class) [A-Za-z_0-9]+.*)");
  if (line.starts_with("import ") || line.starts_with("import{")) {
    return std::regex_match(line, import_line);
  }
  return !line.starts_with("export") || std::regex_match(line, export_line);
}

}  // namespace

Problems check_page(const SourceFile& file) {
  Problems problems;
  if (!is_page_file(file)) return problems;
  std::istringstream lines(file.text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    for (const auto& [pattern, reason] : forbidden()) {
      std::smatch found;
      if (std::regex_search(line, found, pattern)) {
        problems.push_back(fmt::format("{}:{}: '{}' {}", file.path, number, found.str(), reason));
      }
    }
    if (!is_joinable(line)) {
      problems.push_back(fmt::format(
          "{}:{}: write `import {{a, b}} from './x.js';` or `export function`, `const`, `let` or "
          "`class`, so that the modules can be joined",
          file.path, number));
    }
  }
  return problems;
}

Problems check_page_names(const Files& files) {
  static const std::regex declared(
      R"((export )?(async )?(function|const|let|class) ([A-Za-z_0-9]+).*)");
  std::map<std::string, std::string> places;
  Problems problems;
  for (const SourceFile& file : files) {
    if (!is_page_file(file) || extension_of(file.path) != ".js") continue;
    std::istringstream lines(file.text);
    int number = 0;
    for (std::string line; std::getline(lines, line);) {
      ++number;
      std::smatch found;
      if (!std::regex_match(line, found, declared)) continue;
      const std::string place = fmt::format("{}:{}", file.path, number);
      const auto [other, is_new] = places.emplace(found[4].str(), place);
      if (!is_new) {
        problems.push_back(
            fmt::format("{}: '{}' is also declared in {}; joined modules share one "
                        "scope",
                        place, other->first, other->second));
      }
    }
  }
  return problems;
}

Problems check_page_size(const Files& files, size_t max_bytes) {
  size_t bytes = 0;
  for (const SourceFile& file : files) bytes += is_page_file(file) ? file.text.size() : 0;
  if (bytes <= max_bytes) return {};
  return {fmt::format("src/board/assets has {} bytes; at most {} are allowed", bytes, max_bytes)};
}

}  // namespace trireme::tidy
