// SPDX-License-Identifier: Apache-2.0
// Mistakes in documents, shards and options of data build and data convert (bad_input.h), and
// documents that are rejected while the others are written.
#include <fcntl.h>
#include <sys/file.h>

#include "data/archives_test.h"
#include "tests/cli/bad/bad_input.h"

namespace trireme::tests {
namespace {

using data::gzip_stored;
using data::tar_end;
using data::tar_member;

const std::string good_line = "{\"text\": \"good\"}\n";

Change with_files(std::vector<std::pair<std::string, std::string>> files) {
  return [=](const Scratch& s) {
    for (const auto& [name, bytes] : files) s.write(name, bytes);
  };
}

// An MDS folder with two samples; the index has other numbers.
Change with_mds(size_t more_bytes, size_t samples, const std::string& shard_name = "0.mds") {
  const std::string shard = data::mds_shard({"one", "two"});
  return with_files({{"mds/index.json", data::mds_index(data::mds_index_entry(
                                            shard_name, shard.size() + more_bytes, samples))},
                     {"mds/0.mds", shard}});
}

// Another process has the folder of the build: its lock is held until this program ends.
void with_lock(const Scratch& s) {
  s.write("d.build/lock", "");
  const int descriptor = ::open(s.at("d.build/lock").c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(::flock(descriptor, LOCK_EX), 0);
}

void with_mask(const Scratch& s) {
  s.write("p.jsonl", "{\"p\": \"ab\", \"c\": \"cd\"}\n");
  ASSERT_EQ(trireme(s, {"data", "build", "p.jsonl", "--output", "m", "--prompt-key", "p",
                        "--completion-key", "c"})
                .exit_code,
            0);
}

std::vector<BadCase> source_cases() {
  return {
      {"truncated_gzip",
       "data build a.jsonl.gz --output d",
       failed,
       {"a.jsonl.gz: truncated"},
       with_file("a.jsonl.gz", gzip_stored(good_line).substr(0, 24))},
      {"damaged_gzip",
       "data build a.jsonl.gz --output d",
       failed,
       {"a.jsonl.gz: damaged gzip data", "at byte"},
       [](const Scratch& s) {
         std::string bytes = gzip_stored(good_line);
         bytes[bytes.size() - 8] ^= 1;
         s.write("a.jsonl.gz", bytes);
       }},
      {"garbage_after_gzip",
       "data build a.jsonl.gz --output d",
       failed,
       {"a.jsonl.gz: byte 0x67 after the end of a gzip member"},
       with_file("a.jsonl.gz", gzip_stored(good_line) + "garbage")},
      {"gzip_by_name_only",
       "data build a.txt.gz --output d",
       failed,
       {"a.txt.gz", "not the magic number of gzip"},
       with_file("a.txt.gz", "plain text")},
      {"truncated_zstd",
       "data build a.txt.zst --output d",
       failed,
       {"a.txt.zst: truncated"},
       with_file("a.txt.zst", data::zstd_hello.substr(0, 12))},
      {"damaged_zstd",
       "data build a.txt.zst --output d",
       failed,
       {"a.txt.zst: damaged zstd data"},
       [](const Scratch& s) {
         std::string bytes = data::zstd_hello;
         bytes.back() ^= 1;
         s.write("a.txt.zst", bytes);
       }},
      {"garbage_after_zstd",
       "data build a.txt.zst --output d",
       failed,
       {"a.txt.zst", "at byte"},
       with_file("a.txt.zst", data::zstd_hello + "garbage")},
      {"all_fields_wrong",
       "data build a.jsonl --output d --key body",
       failed,
       {"nothing to write", "a.jsonl:1: wrong_field: no field \"body\"; found: text"},
       with_file("a.jsonl", good_line)},
      {"field_not_a_string",
       "data build a.jsonl --output d",
       failed,
       {"a.jsonl:1: wrong_field", "has the type number; allowed: string"},
       with_file("a.jsonl", "{\"text\": 5}\n")},
      {"field_twice",
       "data build a.jsonl --output d",
       failed,
       {"a.jsonl:1: wrong_field", "occurs 2 times"},
       with_file("a.jsonl", "{\"text\": \"a\", \"text\": \"b\"}\n")},
      {"key_with_empty_part",
       "data build text.txt --output d --key a..b",
       wrong_call,
       {"empty key"}},
      {"only_nul",
       "data build a.txt --output d",
       failed,
       {"a.txt: nul: NUL at offset 1"},
       with_file("a.txt", std::string("a\0b", 3))},
      {"utf16",
       "data build a.txt --output d",
       failed,
       {"a.txt: invalid_utf8: byte 0xff at offset 0", "--raw-bytes"},
       with_file("a.txt", std::string("\xff\xfeh\0i\0", 6))},
      {"latin1_in_json",
       "data build a.jsonl --output d",
       failed,
       {"a.jsonl:1: invalid_utf8: byte 0xe9 at column 14"},
       with_file("a.jsonl", "{\"text\": \"caf\xe9\"}\n")},
      {"huge_line",
       "data build a.jsonl --output d --max-document-bytes 40",
       failed,
       {"a.jsonl:1: too_long: the line has 112 bytes; allowed: 40"},
       with_file("a.jsonl", "{\"text\": \"" + std::string(100, 'x') + "\"}\n")},
      {"no_document_may_be_stored",
       "data build text.txt --output d --max-document-bytes 0",
       wrong_call,
       {"at most 0 bytes", "1 or more"}},
      {"one_rejection_too_many",
       "data build a.jsonl --output d --max-rejected 1",
       failed,
       {"a.jsonl:3: json_error", "2 documents rejected, allowed: 1 (--max-rejected)"},
       with_file("a.jsonl", good_line + "bad\nbad\n")},
      {"shard_of_a_list_missing",
       "data build @list.txt --output d",
       failed,
       {"list.txt:2: ", "gone.jsonl: cannot be read"},
       with_files({{"list.txt", "a.jsonl\ngone.jsonl\n"}, {"a.jsonl", good_line}})},
      {"list_of_itself",
       "data build @list.txt --output d",
       wrong_call,
       {"list.txt"},
       with_file("list.txt", "@list.txt\n")},
      {"list_missing", "data build @gone.txt --output d", failed, {"gone.txt: cannot be read"}},
      {"empty_folder",
       "data build folder --output d",
       failed,
       {"folder: no file of a known name", ".jsonl"},
       [](const Scratch& s) { std::filesystem::create_directory(s.at("folder")); }},
      {"pattern_of_nothing",
       "data build 'part-*.jsonl' --output d",
       failed,
       {"part-*.jsonl: no file matches"}},
      {"file_named_twice",
       "data build text.txt ./text.txt --output d",
       wrong_call,
       {"text.txt: is named twice"}},
      {"unknown_kind", "data build text.txt --output d --kind csv", wrong_call, {"csv", "jsonl"}},
      {"parquet",
       "data build a.parquet --output d",
       wrong_call,
       {"a.parquet: the name does not show the kind", ".jsonl", "print Parquet as JSON lines"},
       with_file("a.parquet", "PAR1")},
      {"stdin_without_kind",
       "data build - --output d",
       wrong_call,
       {"stdin has no name", "text, jsonl, tar (--kind)"}},
      {"prompt_without_completion",
       "data build a.jsonl --output d --prompt-key p",
       wrong_call,
       {"--prompt-key and --completion-key belong together"},
       with_file("a.jsonl", good_line)},
      {"prompts_of_text",
       "data build text.txt --output d --prompt-key p --completion-key c",
       wrong_call,
       {"text.txt", "completion"}},
      {"eod_above_all_ids",
       "data build text.txt --output d --eod 99999999",
       wrong_call,
       {"--eod '99999999'", "256 adds a token"}},
      {"eod_by_name_with_bytes",
       "data build text.txt --output d --eod '</s>'",
       wrong_call,
       {"--eod '</s>'", "with bytes as tokens"}},
      {"bod_negative", "data build text.txt --output d --bod -5", wrong_call, {"--bod '-5'"}},
      {"no_workers", "data build text.txt --output d --workers 2000", wrong_call, {"1 .. 1024"}},
      {"vocabulary_of_text",
       "data build text.txt --output d --vocab 300",
       wrong_call,
       {"--vocab is for inputs that are tokens"}},
      {"tokens_without_vocabulary",
       "data build d.bin --output joined",
       wrong_call,
       {"d.bin: holds tokens", "--vocab"},
       with_large_ids},
      {"tokens_above_the_vocabulary",
       "data build d.bin --output joined --vocab 2",
       failed,
       {"nothing to write", "invalid_token", "allowed: 0 .. 1"},
       with_large_ids},
      {"tokens_with_a_mask",
       "data build m.bin --output joined --vocab 256",
       wrong_call,
       {"m.bin: has the loss mask m.mask.bin", "data convert"},
       with_mask},
      {"tokens_without_header",
       "data build t.bin --output joined --vocab 256",
       failed,
       {"t.bin", "no header that is known"},
       with_file("t.bin", "abcd")},
      {"tokens_over_themselves",
       "data build d.bin --output d --vocab 300 --overwrite",
       wrong_call,
       {"d.bin: is read and would be replaced"},
       with_large_ids},
      {"output_in_the_input",
       "data build folder --output folder/d",
       wrong_call,
       {"the output lies in the input folder folder"},
       with_file("folder/a.txt", "text")},
      {"output_below_a_device",
       "data build text.txt --output /dev/full/d",
       failed,
       {"/dev/full/d", "Not a directory"}},
      {"tokenizer_folder_of_the_user",
       "data build text.txt --output d",
       wrong_call,
       {"d.tokenizer/thesis.txt: is no file of a tokenizer"},
       with_file("d.tokenizer/thesis.txt", "a file of the user")},
      {"two_builds_at_once",
       "data build text.txt --output d",
       failed,
       {"d.build: another process builds this data set"},
       with_lock},
      {"unfinished_build_with_other_options",
       "data build text.txt --output d",
       wrong_call,
       {"d.build: holds an unfinished build with other options", "format was \"llmc\"",
        "--overwrite"},
       with_files({{"d.build/state.json", "{\"version\":1,\"identity\":{\"format\":\"llmc\"}}"},
                   {"d.build/lock", ""}})},
      {"unfinished_build_damaged",
       "data build text.txt --output d",
       failed,
       {"d.build/state.json: cannot be used", "--overwrite"},
       with_files({{"d.build/state.json", "{\"version\":"}, {"d.build/lock", ""}})},
      {"tar_truncated",
       "data build a.tar --output d",
       failed,
       {"a.tar: truncated"},
       with_file("a.tar", tar_member("1.txt", "x"))},
      {"tar_member_truncated",
       "data build a.tar --output d",
       failed,
       {"a.tar: truncated inside the member 1.txt"},
       with_file("a.tar", tar_member("1.txt", std::string(2000, 'x')).substr(0, 1000))},
      {"not_a_tar",
       "data build a.tar --output d",
       failed,
       {"a.tar: tar header at byte 0", "it is not tar"},
       with_file("a.tar", std::string(1024, 'x'))},
      {"tar_without_the_field",
       "data build a.tar --output d",
       failed,
       {"a.tar: 1: wrong_field: no member for the field \"text\"", "jpg"},
       with_file("a.tar", tar_member("1.jpg", "x") + tar_end)},
      {"mds_shard_missing",
       "data build mds --output d",
       failed,
       {"mds/index.json: shards[0]", "9.mds", "No such file"},
       with_mds(0, 2, "9.mds")},
      {"mds_other_size",
       "data build mds --output d",
       failed,
       {"mds/index.json: shards[0]", "the index lists"},
       with_mds(1, 2)},
      {"mds_other_samples",
       "data build mds --output d",
       failed,
       {"mds/0.mds: holds 2 samples; the index lists 3"},
       with_mds(0, 3)},
      {"mds_index_no_json",
       "data build mds --output d",
       failed,
       {"mds/index.json: not JSON"},
       with_file("mds/index.json", "{")},
      {"mds_leaves_its_folder",
       "data build mds --output d",
       failed,
       {"mds/index.json"},
       with_mds(0, 2, "../0.mds")},
      {"mds_no_column",
       "data build mds --output d --key body",
       failed,
       {"mds/0.mds: no column \"body\"; found: id, text"},
       with_mds(0, 2)},
      {"full_disk_in_the_middle",
       "data build long.txt --output d",
       failed,
       {"d.build/tokens: cannot be written", "File too large"},
       [](const Scratch& s) { s.write("long.txt", tiny_text(3000)); },
       20000},
  };
}
INSTANTIATE_TEST_SUITE_P(Sources, BadInputTest, testing::ValuesIn(source_cases()),
                         [](const auto& one) { return one.param.name; });

std::vector<BadCase> convert_cases() {
  return {
      {"text",
       "data convert text.txt --output t",
       wrong_call,
       {"text.txt: data convert rewrites tokens", "trireme data build"}},
      {"folder",
       "data convert folder --output t",
       wrong_call,
       {"folder: data convert rewrites tokens"},
       with_file("folder/a.jsonl", good_line)},
      {"missing", "data convert gone --output t", wrong_call, {"gone", "does not exist"}},
      {"over_itself",
       "data convert d --output d --format llmc --overwrite",
       wrong_call,
       {"d.bin: is read and would be replaced"},
       with_megatron},
      {"over_another",
       "data convert d --output t",
       wrong_call,
       {"t.bin: already exists", "--overwrite"},
       [](const Scratch& s) {
         with_megatron(s);
         s.write("t.bin", "x");
       }},
      {"no_type",
       "data convert t.bin --output d",
       failed,
       {"t.bin", "no header that is known", "u16 or u32"},
       with_file("t.bin", "abcd")},
      {"odd_size",
       "data convert t.bin --output d --from-type u16",
       failed,
       {"t.bin"},
       with_file("t.bin", "abc")},
      {"impossible_type",
       "data convert d --output t --type u32",
       wrong_call,
       {"cannot be stored as u32", "u16", "i32"},
       with_megatron},
      {"vocabulary_too_small",
       "data convert d --output t --vocab 10",
       wrong_call,
       {"10"},
       with_megatron},
      {"unknown_format",
       "data convert d --output t --format parquet",
       wrong_call,
       {"parquet", "nanogpt"},
       with_megatron},
      {"wrong_magic",
       "data convert t.bin --output d --from-format llmc",
       failed,
       {"t.bin", "starts with the number 77"},
       with_file("t.bin", llmc_file(77, 4, 8))},
      {"mask_of_something_else",
       "data convert m --output t",
       failed,
       {"m.mask"},
       [](const Scratch& s) {
         with_mask(s);
         s.write("m.mask.bin", "x");
       }},
      {"manifest_of_something_else",
       "data convert d --output t",
       failed,
       {"d.manifest.json: is not a manifest"},
       [](const Scratch& s) {
         with_megatron(s);
         s.write("d.manifest.json", "[]");
       }},
      {"folder_that_is_a_file",
       "data convert d --output d.bin/t",
       failed,
       {"d.bin/t", "Not a directory"},
       with_megatron},
      {"full_disk",
       "data convert d --output t",
       failed,
       {"t.build", "cannot be written"},
       with_megatron,
       1000},
  };
}
INSTANTIATE_TEST_SUITE_P(Convert, BadInputTest, testing::ValuesIn(convert_cases()),
                         [](const auto& one) { return one.param.name; });

// A document that cannot be used does not end the build as long as others can.
TEST(RejectedDocuments, are_counted_by_reason_and_listed) {
  struct Rejected {
    std::string line, reason;
  };
  const std::vector<Rejected> bad = {
      {"{\"text\": \"\"}", "empty"},
      {"{\"text\": \"a\\u0000b\"}", "nul"},
      {"{\"text\": \"caf\xe9\"}", "invalid_utf8"},
      {"{\"txt\": \"a\"}", "wrong_field"},
      {"{\"text\": [\"a\"]}", "wrong_field"},
      {"{\"text\": \"a\"", "json_error"},
      {"{\"text\": \"a\"} x", "json_error"},
      {"{\"text\": \"\\ud800\"}", "json_error"},
      {"{\"text\": \"" + std::string(100, 'x') + "\"}", "too_long"},
  };
  const Scratch s;
  std::string lines = good_line;
  std::map<std::string, int> expected;
  for (const Rejected& one : bad) {
    lines += one.line + "\n";
    ++expected[one.reason];
  }
  s.write("a.jsonl", lines + good_line);
  const std::vector<std::string> call = {
      "data", "build", "a.jsonl", "--output", "d", "--overwrite", "--max-document-bytes", "100"};
  const base::Json result = trireme_json(s, call);
  EXPECT_EQ(result["documents"], 2);
  for (const auto& [reason, count] : expected) EXPECT_EQ(result["rejected"][reason], count);
  EXPECT_EQ(result["rejected_first"][0]["place"], "a.jsonl:2");
  std::istringstream listed(s.read("d.rejected.jsonl"));
  size_t at = 0;
  for (std::string line; std::getline(listed, line); ++at) {
    ASSERT_LT(at, bad.size());
    const base::Json object = base::Json::parse(line);
    EXPECT_EQ(object["reason"], bad[at].reason) << line;
    EXPECT_EQ(object["line"], at + 2) << line;
  }
  EXPECT_EQ(at, bad.size());
  const Outcome text = trireme(s, call);
  EXPECT_EQ(text.exit_code, 0);
  for (const char* part :
       {"rejected   ", "2 wrong_field", "a.jsonl:2: empty", "d.rejected.jsonl"}) {
    EXPECT_NE(text.out.find(part), std::string::npos) << text.out;
  }
}

// Names of members are read as names: no file is written, wherever they point to.
TEST(RejectedDocuments, members_of_an_archive_cannot_leave_it) {
  const Scratch s;
  s.write("a.tar", tar_member("../../x.txt", "one") + tar_member("/etc/y.txt", "two") +
                       tar_member("link.txt", "", '2') + tar_end);
  const base::Json result = trireme_json(s, {"data", "build", "a.tar", "--output", "d"});
  EXPECT_EQ(result["documents"], 2);
  for (const auto& [name, bytes] : s.tree()) {
    EXPECT_TRUE(name == "a.tar" || name.starts_with("d.")) << name;
  }
}

}  // namespace
}  // namespace trireme::tests
