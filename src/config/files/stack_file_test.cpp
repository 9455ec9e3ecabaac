// SPDX-License-Identifier: Apache-2.0
#include "config/files/stack_file.h"

#include "config/document.h"
#include "config/files/stack_keys.h"
#include "config/files_test.h"

namespace trireme::config {
namespace {

namespace fs = std::filesystem;

const std::string good_stack = "format = 1\nwhat = 'a program'\nsource = 'a page'\n";

spec::Stack read_stack(const std::string& text) { return stack_from_text(text, "s.toml"); }
std::string stack_refusal(const std::string& text) {
  return message_of([&] { (void)read_stack(text); });
}

TEST(StackFile, units_and_names_of_the_file_become_those_of_the_stack) {
  const spec::Stack s = read_stack(good_stack +
                                   "[compute]\nhost_microseconds = 6\ngemm = 1.5\n[policies]\n"
                                   "selective = 'attention'\n[memory]\nextra_gigabytes = 2\n");
  EXPECT_EQ(s.name, "s.toml");
  EXPECT_DOUBLE_EQ(s.host_seconds, 6e-6);
  EXPECT_EQ(s.gemm, 1.5);
  EXPECT_EQ(s.selective, spec::SelectiveRecompute::attention);
  EXPECT_EQ(s.memory.extra_bytes, 2e9);
  EXPECT_FALSE(s.is_engine());
  // Defaults are neutral.
  EXPECT_EQ(s.streaming, 1);
  EXPECT_EQ(s.dp_overlap, 0);
  EXPECT_EQ(read_stack(good_stack).selective, spec::SelectiveRecompute::products);
  EXPECT_EQ(read_stack(good_stack + "engine = true\n").selective, spec::SelectiveRecompute::engine);
}

TEST(StackFile, refusals_name_file_line_and_remedy) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"format = 2\nwhat = 'a'\n", "s.toml:1: format = 2: must be from 1 to 1"},
      {"format = 1\n", "s.toml: what: required, but not given"},
      {good_stack + "[compute]\ngemn = 1\n",
       "s.toml:5: compute.gemn: unknown key; did you mean 'gemm'?"},
      {good_stack + "[comptue]\n", "s.toml:4: [comptue]: unknown section; did you mean 'compute'?"},
      {good_stack + "[compute]\ngemm = 'fast'\n", "s.toml:5: compute.gemm"},
      {good_stack + "[compute]\ngemm = -1\n",
       "s.toml:5: compute.gemm = -1: must be from 0.1 to 100"},
      {good_stack + "[overlap]\ndp = 1.5\n", "s.toml:5: overlap.dp = 1.5: must be from 0 to 1"},
      {good_stack + "[memory]\nfragmentation = 0.5\n",
       "s.toml:5: memory.fragmentation = 0.5: must be from 1 to 10"},
      {good_stack + "[policies]\nselective = 'some'\n", "s.toml:5: policies.selective"},
      {good_stack + "[policies]\nselective = 'engine'\n",
       "s.toml:5: policies.selective = \"engine\" needs engine = true"},
      {good_stack + "[policies]\ngrad_bytes = 2\n", "policies.reduce_bytes = 4 is above"},
      {good_stack + "engine = true\n[memory]\nnorm_bytes = 4\n",
       "s.toml:6: memory.norm_bytes: not allowed with engine = true"},
      {good_stack + "[sources]\ncompute.gemm = 'a'\n",
       "s.toml:5: sources.compute: keys of [sources] must be quoted"},
      {good_stack + "[sources]\n\"compute.gem\" = 'a'\n",
       "sources.compute.gem: unknown key; did you mean 'compute.gemm'?"},
  };
  for (const auto& [text, wanted] : cases) expect_contains(stack_refusal(text), wanted);
  EXPECT_THROW((void)stack_from_file("nowhere/s.toml", {}), base::ConfigError);
}

TEST(StackFile, every_number_needs_a_source) {
  const std::string text = "format = 1\nwhat = 'a'\n[compute]\ngemm = 1.2\nflash2 = true\n";
  const std::string message = stack_refusal(text);
  expect_contains(message,
                  "s.toml:4: compute.gemm: no source; add the source of the number to [sources]");
  expect_contains(message, "s.toml:5: compute.flash2: no source");
  const std::string sources = "[sources]\n\"compute.gemm\" = 'fit'\n\"compute.flash2\" = 'code'\n";
  EXPECT_EQ(stack_refusal(text + sources), "");
  EXPECT_EQ(read_stack(text + sources).sources.at("compute.gemm"), "fit");
}

TEST(StackFile, errors_of_unknown_names_list_the_known_ones) {
  const TemporaryFolder folder;
  folder.write("fsdp.toml", good_stack);
  folder.write("llm.c.toml", good_stack);
  const std::vector<fs::path> folders = {folder.path()};
  const std::string message = message_of([&] { (void)stack_from_file("fspd", folders); });
  expect_contains(message, "no stack 'fspd'; did you mean 'fsdp'? Stacks are fsdp, llm.c; ");
  expect_contains(message, "stacks/README.md");
  expect_contains(message_of([&] { (void)stack_from_file("fsdp", {}); }),
                  "no stack files were found");
  EXPECT_EQ(stack_from_file("llm.c", folders).name, "llm.c");
  EXPECT_EQ(stack_from_file((folder.path() / "fsdp.toml").string(), {}).name, "fsdp");
}

TEST(StackFile, shipped_stacks_have_the_names_of_their_files) {
  const std::vector<fs::path> folders = {source_root() / "stacks"};
  const std::vector<std::string> names = stack_names(folders);
  EXPECT_GE(names.size(), 7U);
  for (const std::string& name : names) {
    const spec::Stack stack = stack_from_file(name, folders);
    EXPECT_EQ(stack.name, name);
    EXPECT_EQ(stack.is_engine(), name == "trireme");
  }
}

// The table of stacks/README.md is the list of keys.
TEST(StackFile, the_page_lists_the_keys) {
  expect_contains(read_text(source_root() / "stacks" / "README.md"), stack_keys_page());
}

}  // namespace
}  // namespace trireme::config
