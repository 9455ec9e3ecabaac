// SPDX-License-Identifier: Apache-2.0
// Source files as text, and the little of C++ that the tidy rules need to see in them: code apart
// from comments and strings, identifiers, and includes.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::tidy {

// `path` is relative to the repository, with '/': "src/base/check.h".
struct SourceFile {
  std::string path;
  std::string text;
};

// Every text file under the named folders of `root`, by path. Binary goldens and byte-code are left
// out.
std::vector<SourceFile> read_tree(const std::filesystem::path& root,
                                  const std::vector<std::string>& folders);

// A character of an identifier.
bool is_word(char c);

// The text with comments, and with the content of string and character literals, replaced by
// spaces; lines stay.
std::string code_of(std::string_view text);
// The same with comments replaced only.
std::string without_comments(std::string_view text);

struct Identifier {
  std::string name;
  int line;            // from 1
  std::string before;  // the punctuation before it, spaces apart: "::", ".", "->", "=", ... or an
                       // identifier
  std::string scope;   // the identifier before "::", if that is what stands before it
  char next;           // the next character that is no space; 0 at the end
};
// The identifiers and keywords of the code, without those of #include lines.
std::vector<Identifier> identifiers_of(std::string_view text);

struct Include {
  std::string path;
  bool is_quoted;
  int line;
};
std::vector<Include> includes_of(std::string_view text);

bool is_header(std::string_view path);
bool is_source(std::string_view path);            // a header, or a file that the compiler is given
std::string extension_of(std::string_view path);  // ".cpp"; "" when there is none
std::vector<std::string> parts_of(std::string_view path);  // "src/base/x.h" -> src, base, x.h

}  // namespace trireme::tidy
