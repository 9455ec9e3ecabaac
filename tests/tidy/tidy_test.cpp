// SPDX-License-Identifier: Apache-2.0
// The rules of rules.h, applied to this source tree.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "rules.h"

namespace trireme::tidy {
namespace {

const std::filesystem::path& root() {
  static const std::filesystem::path path(TRIREME_SOURCE_DIR);
  return path;
}

// Everything under src/, tests/, bench/ and cmake/.
const Files& tree() {
  static const Files files = read_tree(root(), {"src", "tests", "bench", "cmake"});
  return files;
}

std::string text_of(const char* path) {
  std::ifstream in(root() / path, std::ios::binary);
  EXPECT_TRUE(in) << path << " cannot be read";
  return {std::istreambuf_iterator<char>(in), {}};
}

// Every file of the repository, but not what building and running leave there.
const Files& repository() {
  static const Files files = [] {
    Files all = read_tree(root(), {".ci", "bench", "cmake", "configs", "data", "docs", "machines",
                                   "scripts", "src", "stacks", "tests"});
    EXPECT_GT(all.size(), tree().size());
    for (const auto& entry : std::filesystem::directory_iterator(root())) {
      const std::string name = entry.path().filename().string();
      if (entry.is_regular_file() && name != ".git" && name != "compile_commands.json") {
        all.push_back({name, text_of(name.c_str())});
      }
    }
    return all;
  }();
  return files;
}

std::vector<Folder> floors() {
  Problems ignored;
  return parse_floors(text_of("src/floors.txt"), ignored);
}

void expect_none(const Problems& problems) {
  for (const std::string& problem : problems) ADD_FAILURE() << problem;
}

// Applies a rule for single files to those whose path starts with `prefix`.
template <typename Rule>
void expect_in_each(const char* prefix, Rule&& rule) {
  int count = 0;
  for (const SourceFile& file : tree()) {
    if (file.path.rfind(prefix, 0) != 0) continue;
    ++count;
    expect_none(rule(file));
  }
  EXPECT_GT(count, 0) << "no file under " << root() / prefix;
}

TEST(Tidy, floors_are_well_formed) {
  Problems problems;
  EXPECT_FALSE(parse_floors(text_of("src/floors.txt"), problems).empty());
  expect_none(problems);
}

TEST(Tidy, floors_point_down) { expect_none(check_floors(floors())); }

TEST(Tidy, every_folder_is_listed_and_exists) {
  expect_none(check_folders_listed(tree(), floors()));
}

TEST(Tidy, every_folder_is_described) {
  expect_none(check_readme(text_of("src/README.md"), floors()));
}

TEST(Tidy, includes_follow_the_floors) {
  const auto folders = floors();
  expect_in_each("src/",
                 [&](const SourceFile& file) { return check_include_arrows(file, folders); });
}

TEST(Tidy, every_arrow_is_used) { expect_none(check_arrows_used(tree(), floors())); }
TEST(Tidy, included_files_exist) { expect_none(check_includes_exist(tree())); }
TEST(Tidy, includes_have_no_cycle) { expect_none(check_include_cycles(tree())); }
TEST(Tidy, every_header_is_included) { expect_none(check_headers_included(tree())); }
TEST(Tidy, every_source_is_built) { expect_none(check_built(tree(), floors())); }
TEST(Tidy, device_headers_stay_in_back_ends) { expect_in_each("src/", check_device_headers); }
TEST(Tidy, headers_of_text_libraries_stay_in_their_folders) {
  expect_in_each("", check_text_headers);
}
TEST(Tidy, only_check_and_main_end_the_process) { expect_in_each("src/", check_process_exit); }
TEST(Tidy, only_device_back_ends_allocate) { expect_in_each("src/", check_raw_allocation); }
TEST(Tidy, only_cli_reads_the_environment) { expect_in_each("src/", check_environment); }
TEST(Tidy, plans_are_read_in_one_place) { expect_in_each("src/", check_plan_json); }
TEST(Tidy, headers_open_no_namespace) { expect_in_each("", check_using_namespace); }
TEST(Tidy, headers_are_included_once) { expect_in_each("", check_pragma_once); }
TEST(Tidy, files_begin_with_the_licence) { expect_in_each("", check_spdx); }
TEST(Tidy, no_path_belongs_to_one_machine) { expect_in_each("src/", check_machine_paths); }
TEST(Tidy, every_file_that_is_named_is_in_the_repository) {
  for (const SourceFile& file : repository()) expect_none(check_outside_files(file));
}
TEST(Tidy, every_file_has_a_licence) {
  const std::vector<std::string> patterns = reuse_patterns(text_of("REUSE.toml"));
  EXPECT_FALSE(patterns.empty());
  EXPECT_EQ(text_of("LICENSES/Apache-2.0.txt"), text_of("LICENSE"));
  for (const SourceFile& file : repository()) {
    if (file.path != "LICENSE") expect_none(check_licensed(file, patterns));
  }
}
TEST(Tidy, no_handler_drops_an_error_in_silence) { expect_in_each("", check_dropped_errors); }
TEST(Tidy, open_ends_have_an_issue) { expect_in_each("src/", check_open_ends); }

TEST(Tidy, pages_show_text_as_text_and_load_nothing_elsewhere) {
  expect_in_each("src/board/assets/", check_page);
}
TEST(Tidy, modules_of_pages_can_be_joined) { expect_none(check_page_names(tree())); }
TEST(Tidy, pages_are_small) { expect_none(check_page_size(tree(), 290'000)); }

// Files whose words are this project's: not planted text, and not the history of changes, which
// names what was renamed.
Files worded() {
  Files files = repository();
  std::erase_if(files, [](const SourceFile& file) {
    return file.path == "CHANGELOG.md" || file.path.starts_with("tests/tidy/") ||
           file.path.starts_with("tests/fuzz/corpus/") || file.path.starts_with("bench/peers/");
  });
  return files;
}

TEST(Tidy, words_are_those_of_the_field) {
  Problems problems;
  const std::vector<WordRule> rules = parse_words(text_of("tests/tidy/words.txt"), problems);
  expect_none(problems);
  EXPECT_FALSE(rules.empty());
  expect_none(check_words(worded(), rules));
}

TEST(Tidy, names_in_documents_exist) {
  Files files = repository();
  for (SourceFile& file : read_tree(root(), {"contrib"})) files.push_back(std::move(file));
  const auto outside = parse_outside_names(text_of("tests/tidy/outside_names.txt"));
  expect_none(check_document_names(files, floors(), outside));
}

TEST(Tidy, paragraphs_are_short) {
  for (const SourceFile& file : worded()) expect_none(check_paragraphs(file));
}

TEST(Tidy, folders_can_be_taken_in_at_a_glance) { expect_none(check_folder_sizes(tree())); }

}  // namespace
}  // namespace trireme::tidy
