// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/error.h"
#include "base/system/descriptor.h"
#include "data/archives_test.h"
#include "data/files/token_writer.h"
#include "data/sources/document_source.h"
#include "data/sources/shards.h"

namespace trireme::data {
namespace {

namespace fs = std::filesystem;

class SourcesTest : public FilesTest {
 protected:
  std::vector<std::string> shard_names(const std::vector<std::string>& inputs,
                                       SourceKind kind = SourceKind::automatic) {
    std::vector<std::string> found;
    for (const Shard& shard : find_shards(inputs, {.kind = kind})) {
      found.push_back(shard.path.lexically_relative(path("")).string() + ":" +
                      std::string(name_of(shard.kind)));
    }
    return found;
  }
  template <typename Error>
  std::string refusal(const std::string& input, SourceKind kind = SourceKind::automatic) {
    return message_of<Error>([&] { find_shards({input}, {.kind = kind}); });
  }
  // Returns each document as "origin|text", or "origin!reason: detail".
  std::vector<std::string> documents(const std::vector<std::string>& inputs,
                                     const DocumentOptions& options = {},
                                     SourceKind kind = SourceKind::automatic) {
    DocumentSource source(find_shards(inputs, {.kind = kind}), options);
    std::vector<std::string> found;
    for (Document document; source.next(document);) {
      Origin origin = document.origin;
      origin.file = fs::path(origin.file).filename().string();
      std::string text = to_text(origin);
      if (document.rejected) {
        text += "!" + std::string(name_of(document.rejected->reason)) + ": " +
                document.rejected->detail;
      } else if (document.is_tokens) {
        text += "|" + ::testing::PrintToString(
                          std::vector(document.tokens.begin(), document.tokens.end()));
      } else {
        text += "|" + std::string(document.text);
        if (document.completion) text += "=>" + std::string(*document.completion);
      }
      found.push_back(text);
    }
    return found;
  }
  std::vector<std::string> documents_of(const std::string& name, const std::string& bytes,
                                        const DocumentOptions& options = {}) {
    return documents({write(name, bytes).string()}, options);
  }
};

TEST_F(SourcesTest, inputs_become_shards_in_a_fixed_order) {
  fs::create_directories(path("d/sub/deeper"));
  for (const char* name :
       {"d/b.txt", "d/a.jsonl.gz", "d/sub/c.tar", "d/sub/deeper/d.ndjson", "d/sub/readme.md",
        "d/.hidden.txt", "d/z.json.zst", "e1.txt", "e2.txt"}) {
    write(name, "x");
  }
  EXPECT_EQ(shard_names({path("d").string()}),
            (std::vector<std::string>{"d/a.jsonl.gz:jsonl", "d/b.txt:text", "d/sub/c.tar:tar",
                                      "d/sub/deeper/d.ndjson:jsonl", "d/z.json.zst:jsonl"}));
  EXPECT_EQ(shard_names({path("e*.txt").string()}),
            (std::vector<std::string>{"e1.txt:text", "e2.txt:text"}));
  EXPECT_EQ(shard_names({path("e{2,1}.txt").string(), path("d/b.txt").string()}).size(), 3U);
  write("list.txt", "# files\ne2.txt\r\n\nd/b.txt\n@more.txt\n");
  write("more.txt", "e1.txt\n");
  EXPECT_EQ(shard_names({"@" + path("list.txt").string()}),
            (std::vector<std::string>{"e2.txt:text", "d/b.txt:text", "e1.txt:text"}));
  EXPECT_EQ(shard_names({path("d/sub/readme.md").string()}, SourceKind::text),
            (std::vector<std::string>{"d/sub/readme.md:text"}));
  EXPECT_EQ(find_shards({"-"}, {.kind = SourceKind::json_lines})[0].path, "-");
}

TEST_F(SourcesTest, inputs_that_name_nothing_usable_are_refused) {
  write("a.csv", "x");
  write("plain.json", "{}");
  fs::create_directories(path("empty"));
  EXPECT_TRUE(says(message_of<base::ConfigError>([] { find_shards({}, {}); }), {"no input"}));
  EXPECT_TRUE(says(refusal<base::ConfigError>(""), {"an input is empty"}));
  EXPECT_TRUE(says(refusal<base::ConfigError>("-"), {"stdin has no name", "jsonl"}));
  EXPECT_TRUE(says(refusal<base::ConfigError>(path("a.csv").string()), {"a.csv", "give the kind"}));
  EXPECT_TRUE(says(refusal<base::ConfigError>(path("plain.json").string()), {"give the kind"}));
  EXPECT_TRUE(says(refusal<base::IoError>(path("none.txt").string()), {"No such file"}));
  EXPECT_TRUE(says(refusal<base::IoError>(path("*.txt").string()), {"no file matches"}));
  EXPECT_TRUE(says(refusal<base::IoError>(path("empty").string()), {"no file of a known name"}));
  EXPECT_TRUE(says(refusal<base::IoError>("@" + path("none").string()), {"cannot be read"}));
  write("list.txt", "plain.json\n");
  EXPECT_TRUE(says(refusal<base::ConfigError>("@" + path("list.txt").string()), {"list.txt:1:"}));
  write("loop.txt", "@loop.txt\n");
  EXPECT_TRUE(says(refusal<base::ConfigError>("@" + path("loop.txt").string()), {"levels deep"}));
  write("b.txt", "x");
  EXPECT_TRUE(says(message_of<base::ConfigError>([&] {
                     find_shards({path("b.txt").string(), path("./b.txt").string()}, {});
                   }),
                   {"named twice"}));
  EXPECT_TRUE(says(message_of<base::ConfigError>([] { source_kind_from_name("parquet"); }),
                   {"'parquet'", "allowed: auto, text, jsonl"}));
}

TEST_F(SourcesTest, lines_and_files_are_documents) {
  EXPECT_EQ(documents_of("a.txt", "one\ntwo\n"), (std::vector<std::string>{"a.txt|one\ntwo\n"}));
  EXPECT_EQ(documents_of("a.txt", "one\r\n\ntwo", {.split_lines = true}),
            (std::vector<std::string>{"a.txt:1|one", "a.txt:3|two"}));
  EXPECT_EQ(documents_of("a.jsonl", "{\"text\":\"x\"}\n \n{\"m\":{\"text\":1}}\nbad"),
            (std::vector<std::string>{
                "a.jsonl:1|x", "a.jsonl:3!wrong_field: no field \"text\"; found: m",
                "a.jsonl:4!json_error: column 1: expected an object, which begins with {, found "
                "'b'"}));
  EXPECT_EQ(documents_of("a.jsonl", R"({"q":"ask","r":{"a":"tell"}})",
                         {.prompt_field = "q", .completion_field = "r.a"}),
            (std::vector<std::string>{"a.jsonl:1|ask=>tell"}));
  EXPECT_EQ(documents_of("a.jsonl.gz",
                         gzip_stored("{\"text\":\"1\"}\n") + gzip_stored("{\"text\":\"2\"}\n")),
            (std::vector<std::string>{"a.jsonl.gz:1|1", "a.jsonl.gz:2|2"}));
}

TEST_F(SourcesTest, other_compressions_are_refused_with_the_pipe_that_reads_them) {
  const auto refused = [&](const std::string& name, SourceKind kind = SourceKind::automatic) {
    write(name, "x");
    return message_of<base::ConfigError>(
        [&] { find_shards({path(name).string()}, {.kind = kind}); });
  };
  EXPECT_TRUE(
      says(refused("a.jsonl.xz"), {"`xz -dc ", "a.jsonl.xz | trireme data build - --kind jsonl"}));
  EXPECT_TRUE(says(refused("a.txt.bz2"), {"`bzip2 -dc ", "a.txt.bz2 |", "- --kind text"}));
  EXPECT_TRUE(says(refused("a.tar.xz"), {"`xz -dc ", "- --kind tar"}));
  EXPECT_TRUE(says(refused("a.txz"), {"`xz -dc ", "- --kind tar"}));
  EXPECT_TRUE(says(refused("a.xz"), {"- --kind jsonl"}));
  EXPECT_TRUE(says(refused("a.xz", SourceKind::text), {"- --kind text"}));
}

TEST_F(SourcesTest, a_byte_order_mark_at_the_beginning_of_a_file_is_skipped) {
  const std::string mark = "\xef\xbb\xbf";
  EXPECT_EQ(documents_of("a.txt", mark + "one\n"), (std::vector<std::string>{"a.txt|one\n"}));
  EXPECT_EQ(documents_of("a.txt", mark + "one\n" + mark + "two", {.split_lines = true}),
            (std::vector<std::string>{"a.txt:1|one", "a.txt:2|" + mark + "two"}));
  EXPECT_EQ(documents_of("a.txt", mark + "one", {.raw_bytes = true}),
            (std::vector<std::string>{"a.txt|" + mark + "one"}));
  EXPECT_EQ(documents_of("a.jsonl", mark + "{\"text\":\"one\"}\n{\"text\":\"two\"}\n"),
            (std::vector<std::string>{"a.jsonl:1|one", "a.jsonl:2|two"}));
}

TEST_F(SourcesTest, bad_text_is_rejected_with_its_reason) {
  EXPECT_EQ(documents_of("a.txt", ""),
            (std::vector<std::string>{"a.txt!empty: the text is empty"}));
  EXPECT_TRUE(says(documents_of("a.txt", "caf\xe9 in Latin-1")[0],
                   {"invalid_utf8: byte 0xe9 at offset 3"}));
  EXPECT_TRUE(says(documents_of("a.txt", std::string("a\0b", 3))[0], {"nul: NUL at offset 1"}));
  EXPECT_TRUE(says(documents_of("a.jsonl", R"({"text":"a\u0000"})")[0], {"nul: NUL at offset 1"}));
  EXPECT_EQ(documents_of("a.txt", std::string("\xff\0", 2), {.raw_bytes = true})[0],
            "a.txt|" + std::string("\xff\0", 2));
  EXPECT_EQ(documents_of("a.txt", "ok\n\xff\xfe\nok", {.split_lines = true}).size(), 3U);
  for (const char* name : {"a.txt", "a.jsonl"}) {
    EXPECT_TRUE(says(documents_of(name, std::string("\xff\xfe{\0", 4))[0],
                     {"invalid_utf8", "iconv -f UTF-16 -t UTF-8"}));
  }
  // Mixed encodings: one bad line does not spoil the next.
  const auto mixed = documents_of("a.jsonl", "{\"text\":\"\xe9\"}\n{\"text\":\"\xc3\xa9\"}\n");
  EXPECT_TRUE(says(mixed[0], {"a.jsonl:1!invalid_utf8", "column 10"}));
  EXPECT_EQ(mixed[1], "a.jsonl:2|\xc3\xa9");
  EXPECT_TRUE(says(documents_of("a.jsonl", R"({"p":"x","c":""})",
                                {.prompt_field = "p", .completion_field = "c"})[0],
                   {"empty: the completion is empty"}));
}

// The limit may be above or below the size of a block; line numbers and other lines stay right.
TEST_F(SourcesTest, lines_and_files_above_the_limit_are_rejected_without_being_stored) {
  for (const int64_t limit : {100L, 3000000L}) {
    const std::string long_line(static_cast<size_t>(limit) + 1, 'x');
    const std::string most(static_cast<size_t>(limit), 'y');
    const DocumentOptions options{.split_lines = true, .max_document_bytes = limit};
    const auto found =
        documents_of("a.txt", "a\n" + long_line + "\nb\n" + most + "\nc\n" + long_line, options);
    ASSERT_EQ(found.size(), 6U);
    const std::string detail = "too_long: the line has " + std::to_string(limit + 1) +
                               " bytes; allowed: " + std::to_string(limit);
    EXPECT_EQ(found[0], "a.txt:1|a");
    EXPECT_EQ(found[1], "a.txt:2!" + detail);
    EXPECT_EQ(found[2], "a.txt:3|b");
    EXPECT_TRUE(found[3] == "a.txt:4|" + most);
    EXPECT_EQ(found[4], "a.txt:5|c");
    EXPECT_EQ(found[5], "a.txt:6!" + detail);
    EXPECT_TRUE(says(documents_of("b.txt", long_line, {.max_document_bytes = limit})[0],
                     {"b.txt!too_long: the file has " + std::to_string(limit + 1)}));
  }
}

TEST_F(SourcesTest, tar_samples_are_groups_of_members) {
  const std::string archive =
      tar_member("d/1.txt", "one") + tar_member("d/1.cls", "5") +
      tar_member("d/2.json", R"({"text":"two"})") + tar_member("README", "no sample") +
      tar_member("d/3.cls", "7") + tar_member("d/4.txt", "four") + tar_member("d/4.txt", "again") +
      tar_member("d/5.json", "{") + tar_member("d/6.txt", std::string(2000, 'x')) + tar_end;
  EXPECT_EQ(documents_of("a.tar", archive, {.max_document_bytes = 1000}),
            (std::vector<std::string>{
                "a.tar: d/1|one", "a.tar: d/2|two",
                "a.tar: d/3!wrong_field: no member for the field \"text\"; found the extensions: "
                "cls",
                "a.tar: d/4!wrong_field: a second member d/4.txt",
                "a.tar: d/5!json_error: column 2: expected a key in quotes, found the end of the "
                "line",
                "a.tar: d/6!too_long: the member d/6.txt has 2000 bytes; allowed: 1000"}));
  EXPECT_EQ(
      documents_of("b.tar",
                   tar_member("1.q.txt", "ask") + tar_member("1.json", R"({"a":"tell"})") + tar_end,
                   {.prompt_field = "q.txt", .completion_field = "a"}),
      (std::vector<std::string>{"b.tar: 1|ask=>tell"}));
  std::string bad = archive;
  bad[1024 * 2 + 3] ^= 1;
  EXPECT_TRUE(says(message_of<base::IoError>([&] { documents_of("a.tar", bad); }),
                   {"a.tar: tar header at byte 2048: the checksum is wrong"}));
}

TEST_F(SourcesTest, mds_folders_are_read_raw_or_compressed) {
  fs::create_directories(path("m"));
  const std::string one = mds_shard({"one", "two"}), three = mds_shard({"three"});
  const std::string zipped = gzip_stored(three);
  write("m/s0.mds", one);
  write("m/s1.mds.gz", zipped);
  write("m/index.json", mds_index(mds_index_entry("s0.mds", one.size(), 2) + "," +
                                  mds_index_entry("s1.mds", three.size(), 1,
                                                  R"({"basename":"s1.mds.gz","bytes":)" +
                                                      std::to_string(zipped.size()) + "}",
                                                  "\"gz\"")));
  const std::vector<std::string> expected = {"s0.mds: sample 0|one", "s0.mds: sample 1|two",
                                             "s1.mds.gz: sample 0|three"};
  EXPECT_EQ(documents({path("m").string()}), expected);
  EXPECT_EQ(documents({path("m/index.json").string()}), expected);
  EXPECT_TRUE(says(
      message_of<base::IoError>([&] { documents({path("m").string()}, {.text_field = "body"}); }),
      {"s0.mds: no column \"body\"; found: id, text"}));
  EXPECT_TRUE(says(
      message_of<base::IoError>([&] { documents({path("m").string()}, {.text_field = "id"}); }),
      {"\"id\" has the encoding int; allowed: str"}));
  fs::remove(path("m/s1.mds.gz"));
  EXPECT_TRUE(says(message_of<base::IoError>([&] { documents({path("m").string()}); }),
                   {"index.json: shards[1]", "s1.mds.gz: No such file"}));
}

TEST_F(SourcesTest, files_of_tokens_pass_through) {
  const auto writer = write_tokens(path("t"), {.vocab = 100});
  for (const std::vector<int32_t>& document :
       std::vector<std::vector<int32_t>>{{1, 2, 3}, {}, {99}}) {
    writer->write(document);
    writer->end_document();
  }
  writer->finish();
  const std::vector<std::string> expected = {"t.bin: document 0|{ 1, 2, 3 }",
                                             "t.bin: document 1!empty: the document has no tokens",
                                             "t.bin: document 2|{ 99 }"};
  EXPECT_EQ(documents({path("t.bin").string()}), expected);
  EXPECT_EQ(documents({path("t").string()}), expected);
  EXPECT_EQ(documents({path("").string()}), expected) << "both files of the pair are one shard";
  write("n.bin", raw_array<uint16_t>({5, 6, 0, 7}));
  EXPECT_EQ(documents({path("n.bin").string()}, {.tokens = {.type = "u16", .end_of_document = 0}}),
            (std::vector<std::string>{"n.bin: document 0|{ 5, 6, 0 }", "n.bin: document 1|{ 7 }"}));
}

TEST_F(SourcesTest, stdin_is_read_as_the_kind_that_is_given) {
  write("piped", gzip_stored("{\"text\":\"one\"}\n{\"text\":\"two\"}\n"));
  const base::Descriptor kept(::dup(STDIN_FILENO));
  const base::Descriptor piped(::open(path("piped").c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_EQ(::dup2(piped.value(), STDIN_FILENO), STDIN_FILENO);
  const auto found = documents({"-"}, {}, SourceKind::json_lines);
  ::dup2(kept.value(), STDIN_FILENO);
  EXPECT_EQ(found, (std::vector<std::string>{"stdin:1|one", "stdin:2|two"}));
}

TEST_F(SourcesTest, options_that_contradict_are_refused) {
  EXPECT_TRUE(says(
      message_of<base::ConfigError>([&] { documents_of("a.txt", "x", {.prompt_field = "p"}); }),
      {"must be given together"}));
  for (const bool split_lines : {false, true}) {
    EXPECT_TRUE(says(
        message_of<base::ConfigError>([&] {
          documents_of("a.txt", "x",
                       {.prompt_field = "p", .completion_field = "c", .split_lines = split_lines});
        }),
        {"a.txt: a text file has no fields"}));
  }
}

}  // namespace
}  // namespace trireme::data
