// SPDX-License-Identifier: Apache-2.0
#include "prose.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <sstream>

namespace trireme::tidy {

namespace {

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  std::istringstream in{std::string(text)};
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

void append(Passage& passage, std::string_view text, int line) {
  if (!passage.text.empty()) passage.text += ' ';
  passage.starts.emplace_back(passage.text.size(), line);
  passage.text += text;
}

// Collects passages; a passage is closed by flush() or by the begin of another.
class Collector {
 public:
  void add(Passage::Kind kind, std::string_view text, int line) {
    if (open_.text.empty()) open_.kind = kind;
    append(open_, text, line);
  }
  void flush() {
    if (!open_.text.empty()) found_.push_back(std::move(open_));
    open_ = {};
  }
  std::vector<Passage> take() {
    flush();
    return std::move(found_);
  }

 private:
  Passage open_;
  std::vector<Passage> found_;
};

std::vector<Passage> comments_of_cpp(std::string_view text) {
  const std::vector<std::string> all = lines_of(text), code = lines_of(without_comments(text));
  Collector collector;
  for (size_t i = 0; i < all.size(); ++i) {
    const std::string_view before = trimmed(code[i]);
    // without_comments() keeps columns: the comment begins where the lines begin to differ.
    const auto differs = std::mismatch(all[i].begin(), all[i].end(), code[i].begin()).first;
    std::string_view comment =
        trimmed(std::string_view(all[i]).substr(static_cast<size_t>(differs - all[i].begin())));
    if (comment.empty() || !before.empty()) collector.flush();
    while (comment.starts_with('/') || comment.starts_with('*')) comment.remove_prefix(1);
    comment = trimmed(comment);
    if (!comment.empty()) {
      collector.add(Passage::Kind::comment, comment, static_cast<int>(i) + 1);
    }
    if (!before.empty()) collector.flush();
  }
  return collector.take();
}

// The literal that begins with the quote at `open`, and the offset behind it.
size_t end_of_literal(std::string_view text, size_t open) {
  size_t end = open + 1;
  while (end < text.size() && text[end] != '"' && text[end] != '\n') {
    end += text[end] == '\\' ? 2U : 1U;
  }
  return std::min(end + 1, text.size());
}

std::vector<Passage> strings_of_cpp(std::string_view source) {
  const std::string text = without_comments(source);
  const std::string code = code_of(source);
  std::set<int> includes;
  for (const Include& include : includes_of(source)) includes.insert(include.line);
  Collector collector;
  int line = 1;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\n') ++line;
    if (text[i] == '"' && code[i] == '"' && !includes.contains(line)) {
      const size_t end = end_of_literal(text, i);
      collector.add(Passage::Kind::string, std::string_view(text).substr(i + 1, end - i - 2), line);
      i = end - 1;
    } else if (std::isspace(static_cast<unsigned char>(text[i])) == 0) {
      collector.flush();
    }
  }
  return collector.take();
}

std::vector<Passage> passages_of_markdown(std::string_view text) {
  Collector collector;
  bool is_code = false;
  int number = 0;
  for (const std::string& whole : lines_of(text)) {
    ++number;
    const std::string_view line = trimmed(whole);
    const bool is_fence = line.starts_with("```");
    const bool is_alone = line.starts_with('#') || line.starts_with('|');
    const bool is_item = line.starts_with("- ") || line.starts_with("* ") ||
                         (line.find(". ") < 3 && std::isdigit(line.empty() ? ' ' : line[0]) != 0);
    if (line.empty() || is_fence || is_alone || is_item) collector.flush();
    if (is_fence) is_code = !is_code;
    if (line.empty() || is_fence || is_code) continue;
    collector.add(Passage::Kind::document, line, number);
    if (is_alone) collector.flush();
  }
  return collector.take();
}

std::vector<Passage> comments_of_script(std::string_view text) {
  Collector collector;
  int number = 0;
  for (const std::string& whole : lines_of(text)) {
    ++number;
    std::string_view line = trimmed(whole);
    if (!line.starts_with('#')) {
      collector.flush();
      continue;
    }
    while (line.starts_with('#')) line.remove_prefix(1);
    if (!trimmed(line).empty()) collector.add(Passage::Kind::comment, trimmed(line), number);
  }
  return collector.take();
}

}  // namespace

int line_of(const Passage& passage, size_t offset) {
  int line = 0;
  for (const auto& [start, number] : passage.starts) {
    if (start <= offset) line = number;
  }
  return line;
}

std::vector<Passage> passages_of(const SourceFile& file) {
  const std::string extension = extension_of(file.path);
  if (is_source(file.path)) {
    std::vector<Passage> found = comments_of_cpp(file.text);
    for (Passage& passage : strings_of_cpp(file.text)) found.push_back(std::move(passage));
    return found;
  }
  if (extension == ".md") return passages_of_markdown(file.text);
  const bool has_hash_comments = extension == ".sh" || extension == ".py" || extension == ".toml" ||
                                 extension == ".cmake" || file.path.ends_with("CMakeLists.txt");
  return has_hash_comments ? comments_of_script(file.text) : std::vector<Passage>{};
}

bool is_paragraph(const Passage& passage) {
  return passage.kind == Passage::Kind::document && !passage.text.starts_with('#') &&
         !passage.text.starts_with('|');
}

int sentences_of(std::string_view text) {
  int count = 0;
  const size_t number = text.find_first_not_of("0123456789");  // of a list item: "3. "
  for (size_t i = number == 0 || number == text.npos ? 0 : number + 1; i < text.size(); ++i) {
    const bool is_end = i + 1 == text.size();
    if (text[i] != '.' && text[i] != '!' && text[i] != '?' && !(text[i] == ':' && is_end)) continue;
    const bool is_abbreviation = i >= 2 && !is_word(text[i - 2]) && is_word(text[i - 1]);
    if (is_abbreviation && std::isdigit(static_cast<unsigned char>(text[i - 1])) == 0) continue;
    size_t next = i + 1;
    while (next < text.size() && (text[next] == ')' || text[next] == '*' || text[next] == '"')) {
      ++next;
    }
    const bool has_space = next < text.size() && text[next] == ' ';
    const char begin = has_space && next + 1 < text.size() ? text[next + 1] : '\0';
    const bool begins = std::isupper(static_cast<unsigned char>(begin)) != 0 || begin == '`' ||
                        begin == '*' || begin == '(';
    if (next >= text.size() || (has_space && begins)) ++count;
  }
  return std::max(count, text.empty() ? 0 : 1);
}

}  // namespace trireme::tidy
