// SPDX-License-Identifier: Apache-2.0
// Rules about what a single file may say.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <regex>
#include <sstream>
#include <utility>

#include "rules.h"

namespace trireme::tidy {

namespace {

bool lies_in(const SourceFile& file, std::string_view folder) {
  return file.path.rfind(folder, 0) == 0;
}
bool is_free_function(const Identifier& identifier);

template <typename List>
bool contains(const List& list, std::string_view word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

template <typename List>
bool starts_with_one_of(const List& prefixes, std::string_view word) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](std::string_view prefix) { return word.starts_with(prefix); });
}

// Calls visit(line number, line) for every line.
template <typename Visit>
void for_each_line(std::string_view text, Visit&& visit) {
  std::istringstream lines{std::string(text)};
  int number = 0;
  for (std::string line; std::getline(lines, line);) visit(++number, line);
}

}  // namespace

Problems check_device_headers(const SourceFile& file) {
  static constexpr std::array<std::string_view, 9> prefixes = {
      "cuda", "cublas", "cudnn", "nccl", "nvml", "gloo/", "cblas", "openblas", "mpi.h"};
  static constexpr std::array<std::string_view, 4> back_ends = {"cuda", "nccl", "gloo", "cpu"};
  Problems problems;
  if (!is_source(file.path)) return problems;
  auto folders = parts_of(file.path);
  folders.pop_back();
  if (std::any_of(folders.begin(), folders.end(),
                  [](const std::string& part) { return contains(back_ends, part); })) {
    return problems;
  }
  for (const Include& include : includes_of(file.text)) {
    if (starts_with_one_of(prefixes, include.path)) {
      problems.push_back(
          fmt::format("{}:{}: {} may be included only in a folder called cuda, nccl, "
                      "gloo or cpu",
                      file.path, include.line, include.path));
    }
  }
  return problems;
}

Problems check_text_headers(const SourceFile& file) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 3> libraries = {
      {{"pcre2", "pcre2"}, {"utf8proc", "utf8proc"}, {"sentencepiece_", "sentencepiece"}}};
  Problems problems;
  if (!is_source(file.path)) return problems;
  for (const Include& include : includes_of(file.text)) {
    for (const auto& [prefix, folder] : libraries) {
      const bool is_header_of_it = !include.is_quoted && include.path.starts_with(prefix);
      if (is_header_of_it && !lies_in(file, fmt::format("src/text/{}/", folder))) {
        problems.push_back(fmt::format("{}:{}: {} may be included only in src/text/{}", file.path,
                                       include.line, include.path, folder));
      }
    }
  }
  return problems;
}

Problems check_process_exit(const SourceFile& file) {
  static constexpr std::array<std::string_view, 4> calls = {"exit", "_exit", "_Exit", "quick_exit"};
  static constexpr std::array<std::string_view, 2> mentions = {"abort", "terminate"};
  Problems problems;
  if (!is_source(file.path) || file.path == "src/base/check.cpp" ||
      file.path == "src/cli/main.cpp" ||
      file.path == "src/comm/nccl/nccl_watch.cpp" ||  // if the library does not end its groups
      file.path == "src/base/system/fatal_signals_test.cpp") {  // its child processes
    return problems;
  }
  for (const Identifier& identifier : identifiers_of(file.text)) {
    // abort() and terminate() are also good names for members: those two count only with std:: or
    // :: before them.
    const bool ends = contains(calls, identifier.name)
                          ? identifier.next == '(' && is_free_function(identifier)
                          : contains(mentions, identifier.name) && identifier.before == "::" &&
                                is_free_function(identifier);
    if (ends) {
      problems.push_back(fmt::format("{}:{}: {} ends the process; throw, or use TRIREME_CHECK",
                                     file.path, identifier.line, identifier.name));
    }
  }
  return problems;
}

Problems check_raw_allocation(const SourceFile& file) {
  static constexpr std::array<std::string_view, 7> functions = {
      "malloc", "calloc", "realloc", "aligned_alloc", "posix_memalign", "cudaHostAlloc", "strdup"};
  Problems problems;
  const auto parts = parts_of(file.path);
  const bool is_device_back_end = parts.size() >= 4 && parts[0] == "src" && parts[1] == "device";
  if (!is_source(file.path) || is_device_back_end) return problems;
  for (const Identifier& identifier : identifiers_of(file.text)) {
    const bool allocates =
        identifier.name == "new" || (identifier.name == "delete" && identifier.before != "=") ||
        identifier.name.starts_with("cudaMalloc") || identifier.name.starts_with("cudaFree") ||
        (contains(functions, identifier.name) && is_free_function(identifier));
    if (allocates) {
      problems.push_back(
          fmt::format("{}:{}: {} is for the back ends of src/device; use Buffer or "
                      "a standard container",
                      file.path, identifier.line, identifier.name));
    }
  }
  return problems;
}

Problems check_environment(const SourceFile& file) {
  static constexpr std::array<std::string_view, 3> readers = {"getenv", "secure_getenv", "environ"};
  Problems problems;
  if (!is_source(file.path) || lies_in(file, "src/cli/")) return problems;
  for (const Identifier& identifier : identifiers_of(file.text)) {
    if (contains(readers, identifier.name) && is_free_function(identifier)) {
      problems.push_back(fmt::format("{}:{}: {} reads the environment; only src/cli may", file.path,
                                     identifier.line, identifier.name));
    }
  }
  return problems;
}

Problems check_plan_json(const SourceFile& file) {
  static const std::regex raw(
      R"(\bplan_?(\(\))?\)?\s*((\.|->)\s*(at|value|find|contains)\s*\(|\[)\s*")");
  Problems problems;
  if (!is_source(file.path) || file.path.ends_with("_test.cpp")) return problems;
  for_each_line(without_comments(file.text), [&](int number, const std::string& line) {
    if (!std::regex_search(line, raw)) return;
    problems.push_back(fmt::format("{}:{}: reads a plan's JSON by key; use spec::plan_from_json()",
                                   file.path, number));
  });
  return problems;
}

Problems check_using_namespace(const SourceFile& file) {
  Problems problems;
  if (!is_header(file.path)) return problems;
  for (const Identifier& identifier : identifiers_of(file.text)) {
    if (identifier.name == "namespace" && identifier.before == "using") {
      problems.push_back(
          fmt::format("{}:{}: a header has no 'using namespace'", file.path, identifier.line));
    }
  }
  return problems;
}

Problems check_pragma_once(const SourceFile& file) {
  if (!is_header(file.path)) return {};
  bool found = false;
  for_each_line(without_comments(file.text),
                [&](int, const std::string& line) { found = found || line == "#pragma once"; });
  if (found) return {};
  return {fmt::format("{}: header without '#pragma once'", file.path)};
}

Problems check_spdx(const SourceFile& file) {
  const std::string extension = extension_of(file.path);
  const bool is_script = extension == ".py" || extension == ".sh" || extension == ".cmake" ||
                         parts_of(file.path).back() == "CMakeLists.txt";
  if (!is_source(file.path) && !is_script) return {};
  std::istringstream lines(file.text);
  std::string first;
  std::getline(lines, first);
  if (is_script && first.rfind("#!", 0) == 0) std::getline(lines, first);
  const std::string wanted =
      std::string(is_script ? "#" : "//") + " SPDX-License-Identifier: Apache-2.0";
  if (first == wanted) return {};
  return {fmt::format("{}:1: the first line must be '{}'", file.path, wanted)};
}

bool path_matches(std::string_view pattern, std::string_view path) {
  if (pattern.empty()) return path.empty();
  if (pattern.front() != '*') {
    return !path.empty() && path.front() == pattern.front() &&
           path_matches(pattern.substr(1), path.substr(1));
  }
  const bool is_deep = pattern.starts_with("**");
  const std::string_view rest = pattern.substr(is_deep ? 2 : 1);
  for (size_t length = 0; length <= path.size(); ++length) {
    if (path_matches(rest, path.substr(length))) return true;
    if (length < path.size() && path[length] == '/' && !is_deep) return false;
  }
  return false;
}

std::vector<std::string> reuse_patterns(std::string_view reuse) {
  constexpr std::string_view heading = "[[annotations]]";
  std::vector<std::string> patterns;
  for (size_t at = reuse.find(heading); at != std::string_view::npos;) {
    const size_t next = reuse.find(heading, at + 1);
    const std::string_view part =
        reuse.substr(at, next == std::string_view::npos ? next : next - at);
    at = next;
    const size_t paths = part.find("\npath = ");
    if (paths == std::string_view::npos ||
        part.find("\nSPDX-License-Identifier = ") == std::string_view::npos) {
      continue;
    }
    const size_t line_end = part.find('\n', paths + 1), bracket = part.find('[', paths);
    const size_t end = bracket < line_end ? part.find(']', bracket) : line_end;
    for (size_t quote = part.find('"', paths); quote < end; quote = part.find('"', quote + 1)) {
      const size_t close = part.find('"', quote + 1);
      patterns.emplace_back(part.substr(quote + 1, close - quote - 1));
      quote = close;
    }
  }
  return patterns;
}

Problems check_licensed(const SourceFile& file, const std::vector<std::string>& patterns) {
  std::istringstream lines(file.text);
  std::string line;
  for (int i = 0; i < 3 && std::getline(lines, line); ++i) {
    if (line.find("SPDX-License-Identifier: Apache-2.0") != std::string::npos) return {};
  }
  for (const std::string& pattern : patterns) {
    if (path_matches(pattern, file.path)) return {};
  }
  return {fmt::format(
      "{}: no licence: begin with 'SPDX-License-Identifier: Apache-2.0' in a comment, or name the "
      "file in REUSE.toml",
      file.path)};
}

Problems check_machine_paths(const SourceFile& file) {
  static constexpr std::array<std::string_view, 4> roots = {"/home", "/work", "/root", "/tmp"};
  Problems problems;
  for_each_line(file.text, [&](int number, const std::string& line) {
    for (const std::string_view root : roots) {
      for (size_t at = line.find(root); at != std::string::npos; at = line.find(root, at + 1)) {
        const char before = at == 0 ? ' ' : line[at - 1];
        const size_t end = at + root.size();
        const char after = end < line.size() ? line[end] : ' ';
        const bool is_absolute =
            !is_word(before) && std::string_view(".-/}>)").find(before) == std::string_view::npos;
        if (is_absolute && !is_word(after) && after != '-') {
          problems.push_back(
              fmt::format("{}:{}: {} is a path of one machine", file.path, number, root));
        }
      }
    }
  });
  return problems;
}

Problems check_outside_files(const SourceFile& file) {
  // In two literals, so that this file does not name them.
  static constexpr std::array<std::string_view, 4> outside = {
      "shared/"
      "bench",
      "shared/"
      "data",
      "shared/"
      "design",
      "../"
      "shared"};
  Problems problems;
  for_each_line(file.text, [&](int number, const std::string& line) {
    for (const std::string_view path : outside) {
      if (line.find(path) != std::string::npos) {
        problems.push_back(
            fmt::format("{}:{}: {} is not in this repository", file.path, number, path));
        break;
      }
    }
  });
  return problems;
}

Problems check_open_ends(const SourceFile& file) {
  static constexpr std::array<std::string_view, 2> marks = {"TODO", "FIXME"};
  Problems problems;
  for_each_line(file.text, [&](int number, const std::string& line) {
    for (const std::string_view mark : marks) {
      for (size_t at = line.find(mark); at != std::string::npos; at = line.find(mark, at + 1)) {
        const size_t end = at + mark.size();
        const bool is_whole_word =
            (at == 0 || !is_word(line[at - 1])) && (end == line.size() || !is_word(line[end]));
        size_t close = end + 2;
        while (close < line.size() && std::isdigit(static_cast<unsigned char>(line[close])) != 0) {
          ++close;
        }
        const bool has_issue = line.compare(end, 2, "(#") == 0 && close > end + 2 &&
                               close < line.size() && line[close] == ')';
        if (is_whole_word && !has_issue) {
          problems.push_back(fmt::format("{}:{}: {} without an issue number, as in {}(#12)",
                                         file.path, number, mark, mark));
        }
      }
    }
  });
  return problems;
}

namespace {

// f, ::f or std::f; not a member (x.f, x->f, T::f) nor a name that is declared (void f).
bool is_free_function(const Identifier& identifier) {
  static constexpr std::array<std::string_view, 8> operators = {
      "return", "else", "do", "throw", "and", "or", "not", "co_return"};
  const std::string& before = identifier.before;
  if (before == "." || before == "->") return false;
  if (before == "::") {
    const std::string& scope = identifier.scope;
    return scope.empty() || scope == "std" || contains(operators, scope);
  }
  const bool follows_a_type = !before.empty() && is_word(before.back());
  return !follows_a_type || contains(operators, before);
}

}  // namespace

}  // namespace trireme::tidy
