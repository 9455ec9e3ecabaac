// SPDX-License-Identifier: Apache-2.0
// Rule about documents: the names and paths that they write as code exist in the tree.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <set>
#include <sstream>

#include "prose.h"
#include "rules.h"

namespace trireme::tidy {

namespace {

using Names = std::set<std::string, std::less<>>;

void add_words(std::string_view text, Names& names) {
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    while (end < text.size() && is_word(text[end])) ++end;
    if (end > at) names.emplace(text.substr(at, end - at));
    at = end + 1;
  }
}

// The words of everything but documents and comments of sources, and the names of files without
// their extension. The rules' own tests contain planted names.
Names words_of_tree(const Files& files, const std::vector<Folder>& folders) {
  Names words;
  for (const SourceFile& file : files) {
    words.insert(std::filesystem::path(file.path).stem().string());
    if (extension_of(file.path) == ".md" || file.path.starts_with("tests/tidy/")) continue;
    if (is_source(file.path)) {
      add_words(without_comments(file.text), words);
    } else {
      add_words(file.text, words);
    }
  }
  for (const Folder& folder : folders) words.insert(folder.name + "_test");  // programs
  return words;
}

// Every path of a file and of a folder, and each without its first folders: documents may begin a
// path anywhere ("kernels/args.h", "args.h"). Also without extension: programs of bench/.
Names paths_of_tree(const Files& files) {
  Names paths;
  for (const SourceFile& file : files) {
    for (std::string path = file.path; !path.empty();) {
      for (std::filesystem::path part(path); !part.empty(); part = part.parent_path()) {
        paths.insert(part.generic_string());
      }
      paths.insert(std::filesystem::path(path).replace_extension().generic_string());
      const size_t slash = path.find('/');
      path = slash == std::string::npos ? "" : path.substr(slash + 1);
    }
  }
  return paths;
}

// Calls visit(line, span) for every `span` of a document; blocks of code are not spans.
template <typename Visit>
void for_each_span(const SourceFile& file, Visit&& visit) {
  for (const Passage& passage : passages_of(file)) {
    if (passage.kind != Passage::Kind::document) continue;
    const std::string& text = passage.text;
    for (size_t open = text.find('`'); open != std::string::npos;) {
      const size_t close = text.find('`', open + 1);
      if (close == std::string::npos) break;
      visit(line_of(passage, open), std::string_view(text).substr(open + 1, close - open - 1));
      open = text.find('`', close + 1);
    }
  }
}

// The parts of a span that are names or paths by themselves.
std::vector<std::string> tokens_of(std::string_view span) {
  constexpr std::string_view borders = " \t,;()[]{}<>=\"'&|!?";
  std::vector<std::string> tokens;
  for (size_t at = 0; at < span.size();) {
    const size_t end = std::min(span.find_first_of(borders, at), span.size());
    if (end > at) tokens.emplace_back(span.substr(at, end - at));
    at = end + 1;
  }
  return tokens;
}

bool is_file_name(std::string_view token) {
  static constexpr std::array<std::string_view, 8> extensions = {".cpp", ".h",  ".cu",    ".cuh",
                                                                 ".sh",  ".py", ".cmake", ".md"};
  return std::find(extensions.begin(), extensions.end(), extension_of(token)) != extensions.end();
}

// Does the token contain a word in capitals that stands for any name, as in "configs/NAME.toml"?
bool has_placeholder(std::string_view token) {
  for (const std::string_view word : {"NAME", "KEY", "PREFIX", "FILE", "RUN"}) {
    if (token.find(word) != std::string_view::npos) return true;
  }
  return false;
}

// A path that begins with a folder of the repository or of src/, or the name of a source file.
// Paths of one machine, of the user's home and of a build are not looked for.
bool is_path_here(std::string_view token, const Names& roots) {
  if (token.starts_with('/') || token.starts_with('~') || token.starts_with('$')) return false;
  if (token.find("//") != std::string_view::npos) return false;  // an address
  if (has_placeholder(token)) return false;
  const size_t slash = token.find('/');
  if (slash == std::string_view::npos) return is_file_name(token);
  return roots.contains(token.substr(0, slash));
}

bool exists(std::string token, const Names& paths) {
  while (token.ends_with('/') || token.ends_with('.')) token.pop_back();
  if (paths.contains(token)) return true;
  return token.find('*') != std::string::npos &&
         std::any_of(paths.begin(), paths.end(),
                     [&](const std::string& path) { return path_matches(token, path); });
}

// An identifier of code: words joined by '_', a capital letter behind a small one, or a name that
// is called or qualified. Fragments ("_stderr", "norm_") and options ("-lm") are none.
bool is_code_name(std::string_view name, bool is_called_or_qualified) {
  if (std::isdigit(static_cast<unsigned char>(name.front())) != 0) return false;
  if (name.front() == '_' || name.back() == '_') return false;
  if (is_called_or_qualified || name.find('_') != std::string_view::npos) return true;
  for (size_t i = 1; i < name.size(); ++i) {
    if (std::islower(static_cast<unsigned char>(name[i - 1])) != 0 &&
        std::isupper(static_cast<unsigned char>(name[i])) != 0) {
      return true;
    }
  }
  return false;
}

// The identifiers of a token that is no path: those of "spec::plan_from_json" or
// "training.seq_len".
template <typename Visit>
void for_each_name(std::string_view token, bool is_called, Visit&& visit) {
  if (token.starts_with('-') && !token.starts_with("--")) return;
  const bool is_qualified = token.find("::") != std::string_view::npos;
  for (size_t at = 0; at < token.size();) {
    size_t end = at;
    while (end < token.size() && is_word(token[end])) ++end;
    const std::string_view name = token.substr(at, end - at);
    const bool is_last = end == token.size();
    if (!name.empty() && is_code_name(name, is_qualified || (is_called && is_last))) visit(name);
    at = end + 1;
  }
}

}  // namespace

std::vector<std::string> parse_outside_names(std::string_view text) {
  std::vector<std::string> names;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty() && line.front() != '#') names.push_back(line.substr(0, line.find(' ')));
  }
  return names;
}

Problems check_document_names(const Files& files, const std::vector<Folder>& folders,
                              const std::vector<std::string>& outside) {
  const Names words = words_of_tree(files, folders), paths = paths_of_tree(files);
  Names roots;
  for (const SourceFile& file : files) {
    const auto parts = parts_of(file.path);
    if (parts.size() > 1) roots.insert(parts.front());
  }
  for (const Folder& folder : folders) roots.insert(folder.name);
  Names unused(outside.begin(), outside.end());
  const auto is_outside = [&](std::string_view name) {
    unused.erase(std::string(name));
    return std::find(outside.begin(), outside.end(), name) != outside.end();
  };

  Problems problems;
  for (const SourceFile& file : files) {
    // The history of changes names what was removed.
    if (extension_of(file.path) != ".md" || file.path == "CHANGELOG.md") continue;
    for_each_span(file, [&](int line, std::string_view span) {
      const bool is_call = span.find("()") != std::string_view::npos;
      for (std::string token : tokens_of(span)) {
        if (token.starts_with("./")) token.erase(0, 2);
        if (is_path_here(token, roots)) {
          if (!exists(token, paths) && !is_outside(token)) {
            problems.push_back(fmt::format("{}:{}: `{}`: no such file", file.path, line, token));
          }
          continue;
        }
        // Another path, or a file that a program writes.
        if (token.find('/') != std::string::npos || token.find('*') != std::string::npos) continue;
        if (token.find('-') != std::string::npos && token.find('.') != std::string::npos) continue;
        for_each_name(token, is_call, [&](std::string_view name) {
          if (!words.contains(name) && !is_outside(name)) {
            problems.push_back(fmt::format("{}:{}: `{}`: nothing in the tree is called {}",
                                           file.path, line, span, name));
          }
        });
      }
    });
  }
  for (const std::string& name : unused) {
    problems.push_back(fmt::format(
        "tests/tidy/outside_names.txt: no document names {}, or it exists; remove it", name));
  }
  return problems;
}

}  // namespace trireme::tidy
