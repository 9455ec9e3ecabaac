// SPDX-License-Identifier: Apache-2.0
#include "source.h"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <iterator>
#include <sstream>

namespace trireme::tidy {

namespace {

bool is_space(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }
std::string blanked(std::string_view text, bool blank_literals);

}  // namespace

std::vector<SourceFile> read_tree(const std::filesystem::path& root,
                                  const std::vector<std::string>& folders) {
  std::vector<SourceFile> files;
  for (const std::string& folder : folders) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root / folder)) {
      const std::string extension = entry.path().extension().string();
      if (!entry.is_regular_file() || extension == ".safetensors" || extension == ".pyc") continue;
      std::ifstream in(entry.path(), std::ios::binary);
      files.push_back({entry.path().lexically_relative(root).generic_string(),
                       {std::istreambuf_iterator<char>(in), {}}});
    }
  }
  std::sort(files.begin(), files.end(),
            [](const SourceFile& a, const SourceFile& b) { return a.path < b.path; });
  return files;
}

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

std::string code_of(std::string_view text) { return blanked(text, true); }
std::string without_comments(std::string_view text) { return blanked(text, false); }

std::vector<Identifier> identifiers_of(std::string_view text) {
  std::string code = code_of(text);
  std::istringstream lines{std::string(code)};
  size_t start = 0;
  for (std::string line; std::getline(lines, line); start += line.size() + 1) {
    const size_t first = line.find_first_not_of(" \t");
    const bool is_directive = first != std::string::npos && line[first] == '#';
    if (is_directive && line.find("include", first) != std::string::npos) {
      code.replace(start, line.size(), line.size(), ' ');
    }
  }

  std::vector<Identifier> found;
  int line = 1;
  std::string before, scope;
  for (size_t i = 0; i < code.size();) {
    if (code[i] == '\n') ++line;
    if (is_space(code[i])) {
      ++i;
      continue;
    }
    if (!is_word(code[i])) {
      const std::string_view two = std::string_view(code).substr(i, 2);
      const size_t length = two == "::" || two == "->" ? 2 : 1;
      scope = two == "::" && !before.empty() && is_word(before.back()) ? before : "";
      before = code.substr(i, length);
      i += length;
      continue;
    }
    size_t end = i;
    while (end < code.size() && is_word(code[end])) ++end;
    const std::string name = code.substr(i, end - i);
    if (std::isdigit(static_cast<unsigned char>(name.front())) == 0) {
      const size_t next = code.find_first_not_of(" \t\r\n", end);
      found.push_back({name, line, before, scope, next == std::string::npos ? '\0' : code[next]});
    }
    before = name;
    scope.clear();
    i = end;
  }
  return found;
}

std::vector<Include> includes_of(std::string_view text) {
  std::vector<Include> found;
  std::istringstream lines{without_comments(text)};
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    std::istringstream words(line);
    std::string directive, rest;
    words >> directive;
    if (directive == "#") {
      words >> rest;
      directive += rest;
    }
    if (directive.rfind("#include", 0) != 0) continue;
    const size_t open = line.find_first_of("\"<");
    if (open == std::string::npos) continue;
    const size_t close = line.find(line[open] == '"' ? '"' : '>', open + 1);
    if (close == std::string::npos) continue;
    found.push_back({line.substr(open + 1, close - open - 1), line[open] == '"', number});
  }
  return found;
}

std::string extension_of(std::string_view path) {
  return std::filesystem::path(path).extension().string();
}

bool is_header(std::string_view path) {
  const std::string extension = extension_of(path);
  return extension == ".h" || extension == ".cuh";
}

bool is_source(std::string_view path) {
  const std::string extension = extension_of(path);
  return is_header(path) || extension == ".cpp" || extension == ".cu";
}

std::vector<std::string> parts_of(std::string_view path) {
  std::vector<std::string> parts;
  for (const auto& part : std::filesystem::path(path)) parts.push_back(part.string());
  return parts;
}

namespace {

std::string blanked(std::string_view text, bool blank_literals) {
  std::string out(text);
  const auto blank = [&](size_t from, size_t to) {
    for (size_t i = from; i < to; ++i) {
      if (out[i] != '\n') out[i] = ' ';
    }
  };
  for (size_t i = 0; i < text.size();) {
    const std::string_view rest = text.substr(i);
    if (rest.starts_with("//")) {
      const size_t end = std::min(text.find('\n', i), text.size());
      blank(i, end);
      i = end;
    } else if (rest.starts_with("/*")) {
      const size_t close = text.find("*/", i + 2);
      const size_t end = close == std::string_view::npos ? text.size() : close + 2;
      blank(i, end);
      i = end;
    } else if (rest.starts_with("R\"") && (i == 0 || !is_word(text[i - 1]))) {
      const size_t open = text.find('(', i);
      if (open == std::string_view::npos) break;
      const std::string close = ")" + std::string(text.substr(i + 2, open - i - 2)) + "\"";
      const size_t end = std::min(text.find(close, open), text.size());
      if (blank_literals) blank(open + 1, end);
      i = std::min(end + close.size(), text.size());
    } else if (text[i] == '"' || (text[i] == '\'' && (i == 0 || !is_word(text[i - 1])))) {
      size_t end = i + 1;  // a quote after a digit separates digits, as in 1'000
      while (end < text.size() && text[end] != text[i] && text[end] != '\n') {
        end += text[end] == '\\' ? 2U : 1U;
      }
      end = std::min(end, text.size());
      if (blank_literals) blank(i + 1, end);
      i = std::min(end + 1, text.size());
    } else {
      ++i;
    }
  }
  return out;
}

}  // namespace

}  // namespace trireme::tidy
