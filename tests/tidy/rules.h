// SPDX-License-Identifier: Apache-2.0
// The rules that keep the architecture true, as functions from text to problems. A problem is a
// line "path:line: what is wrong"; no problem means that the rule holds. tidy_test.cpp applies them
// to the tree, rules_test.cpp to planted bad text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "source.h"

namespace trireme::tidy {

using Problems = std::vector<std::string>;
using Files = std::vector<SourceFile>;

// ---- src/floors.txt ----------------------------------------------------------------------------

// A line "floor folder : dependencies" of floors.txt.
struct Folder {
  int floor;
  std::string name;
  std::vector<std::string> may_include;
};
// Lines that are empty or start with '#' are skipped; a malformed line is a problem.
std::vector<Folder> parse_floors(std::string_view text, Problems& problems);

// Every dependency stands on a lower floor, or on the same floor higher up in the file; hence no
// cycles.
Problems check_floors(const std::vector<Folder>& folders);
// Folders under src/ and folders of floors.txt are the same. `files` must hold one file of every
// folder.
Problems check_folders_listed(const Files& files, const std::vector<Folder>& folders);
// src/README.md has one paragraph a folder, starting with **`folder/`**, in the order of
// floors.txt.
Problems check_readme(std::string_view readme, const std::vector<Folder>& folders);

// ---- files and includes
// --------------------------------------------------------------------------

// A file of src/A includes project headers by their path from src/, of A or of folders that A
// lists.
Problems check_include_arrows(const SourceFile& file, const std::vector<Folder>& folders);
// Every dependency that floors.txt grants is used by a file of the folder that is no unit test.
Problems check_arrows_used(const Files& files, const std::vector<Folder>& folders);
Problems check_includes_exist(const Files& files);
Problems check_include_cycles(const Files& files);
Problems check_headers_included(const Files& files);
// Every source file belongs to a target: in src/ to a listed folder, elsewhere by name or pattern
// in a CMakeLists.txt of its folder or one above; and has an extension that the build knows.
Problems check_built(const Files& files, const std::vector<Folder>& folders);

// ---- what a file may say
// ---------------------------------------------------------------------------

Problems check_device_headers(const SourceFile& file);
// Headers of PCRE2, utf8proc and SentencePiece: only in the folder of src/text with that name.
Problems check_text_headers(const SourceFile& file);
Problems check_process_exit(const SourceFile& file);
Problems check_raw_allocation(const SourceFile& file);
Problems check_environment(const SourceFile& file);
// The JSON of a plan is read by spec::plan_from_json() alone, which names every key that is
// missing.
Problems check_plan_json(const SourceFile& file);
Problems check_using_namespace(const SourceFile& file);
Problems check_pragma_once(const SourceFile& file);
Problems check_spdx(const SourceFile& file);
// The path patterns for which REUSE.toml names a licence: strings in the path lists of annotations
// that have a SPDX-License-Identifier.
std::vector<std::string> reuse_patterns(std::string_view reuse);
// Does `pattern` match all of `path`? '*' matches within a folder, "**" also across folders.
bool path_matches(std::string_view pattern, std::string_view path);
// The file has a line with its licence among its first three, or a pattern covers it.
Problems check_licensed(const SourceFile& file, const std::vector<std::string>& patterns);
Problems check_machine_paths(const SourceFile& file);
Problems check_outside_files(const SourceFile& file);  // names files that a clone does not have
// A handler of an exception that has no statement, or only returns, without using the error states
// in a comment why it drops it. Around JSON, TOML or a parser a handler needs a statement.
Problems check_dropped_errors(const SourceFile& file);
Problems check_open_ends(const SourceFile& file);  // work left over, without an issue number

// ---- pages of the board
// ----------------------------------------------------------------------------

// No markup from text, no inline handlers or styles, no addresses elsewhere; imports and exports
// in the form that can be joined into one script.
Problems check_page(const SourceFile& file);
// Names at the top level of modules are unique over all modules.
Problems check_page_names(const Files& files);
Problems check_page_size(const Files& files, size_t max_bytes);

// ---- words and sizes
// -------------------------------------------------------------------------------

// A line "kind pattern => replacement" of words.txt.
struct WordRule {
  std::string kind, pattern, replacement;
};
// Lines that are empty or start with '#' are skipped; a malformed line is a problem.
std::vector<WordRule> parse_words(std::string_view text, Problems& problems);
// Every identifier, comment, string literal and document passage that a pattern matches, with the
// replacement.
Problems check_words(const Files& files, const std::vector<WordRule>& rules);

// Lines "name reason" of outside_names.txt: names that documents write as code and that belong to
// other programs. Lines that are empty or start with '#' are skipped.
std::vector<std::string> parse_outside_names(std::string_view text);
// What a document writes as `code` exists: identifiers as words of a file that is no document,
// comments of sources apart; paths of the repository and names of source files as files.
Problems check_document_names(const Files& files, const std::vector<Folder>& folders,
                              const std::vector<std::string>& outside);

constexpr int max_sentences = 5;        // in a paragraph of a document
constexpr int max_files_a_folder = 25;  // source files beside each other
Problems check_paragraphs(const SourceFile& file);
Problems check_folder_sizes(const Files& files);

}  // namespace trireme::tidy
