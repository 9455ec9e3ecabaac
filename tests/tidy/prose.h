// SPDX-License-Identifier: Apache-2.0
// The prose of a file: its comments, string literals and document paragraphs, each joined to one
// line of text, so that a phrase is found across line breaks.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "source.h"

namespace trireme::tidy {

struct Passage {
  enum class Kind { comment, string, document };

  Kind kind = Kind::comment;
  std::string text;
  // (offset in text, line of the file) of every source line that the text was joined from.
  std::vector<std::pair<size_t, int>> starts = {};
};

// Returns the line of the file that the character at `offset` of the passage stands in.
int line_of(const Passage&, size_t offset);

// Consecutive lines that hold nothing but a comment form one passage; a comment behind code is a
// passage by itself. Adjacent string literals form one passage. In Markdown a paragraph, a list
// item and a table row are passages each; code blocks are left out. In other files (scripts, TOML,
// CMake) '#' begins a comment, and nothing else is prose. Files of other kinds have no passages.
std::vector<Passage> passages_of(const SourceFile&);

// True for a paragraph or list item of Markdown; false for headings and table rows.
bool is_paragraph(const Passage&);
// Counts sentences: '.', '!', '?' or ':' at the end of the text, or '.', '!' or '?' before a space
// and a capital letter. Abbreviations with a single letter before the full stop do not count.
int sentences_of(std::string_view paragraph);

}  // namespace trireme::tidy
