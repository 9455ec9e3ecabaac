// SPDX-License-Identifier: Apache-2.0
// Bad input and options: one error or one rejection, and nothing half-written.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>

#include "base/error.h"
#include "base/system/descriptor.h"
#include "base/text/json.h"
#include "data/archives_test.h"
#include "data/corpus/corpus.h"

namespace trireme::data {
namespace {

class BadCorpusTest : public FilesTest {
 protected:
  // Builds from one file and returns the message of the refusal; no file may be left.
  template <typename Error = base::IoError>
  std::string refusal(const std::string& name, const std::string& bytes, CorpusOptions o = {}) {
    o.inputs = {write(name, bytes).string()};
    o.output = path("out");
    const std::string message = message_of<Error>([&] { build_corpus(o); });
    EXPECT_TRUE(holds(names(), {name}));
    std::filesystem::remove(path(name));
    return message;
  }
  // Builds from one file and returns the reasons of the rejected documents.
  std::vector<std::string> rejections(const std::string& name, const std::string& bytes,
                                      CorpusOptions o = {}) {
    o.inputs = {write(name, bytes).string()};
    o.output = path("out");
    build_corpus(o);
    std::vector<std::string> reasons;
    std::istringstream lines(read("out.rejected.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      reasons.push_back(base::Json::parse(line).at("reason").get<std::string>());
    }
    return reasons;
  }
};

TEST_F(BadCorpusTest, damaged_shards_fail_the_build) {
  EXPECT_TRUE(says(refusal("a.jsonl.gz", gzip_stored("{\"text\":\"a\"}\n").substr(0, 30)),
                   {"a.jsonl.gz: truncated"}));
  EXPECT_TRUE(says(refusal("a.jsonl.zst", zstd_hello.substr(0, 12)), {"a.jsonl.zst: truncated"}));
  EXPECT_TRUE(says(refusal("a.tar", tar_member("1.txt", "x")), {"a.tar: truncated"}));
  std::string bad = tar_member("1.txt", "x") + tar_end;
  bad[1] ^= 1;
  EXPECT_TRUE(says(refusal("a.tar", bad), {"a.tar: tar header at byte 0: the checksum is wrong"}));
  EXPECT_TRUE(says(refusal("a.txt.gz", "no gzip"), {"not the magic number of gzip"}));
}

TEST_F(BadCorpusTest, bad_documents_are_rejected_and_the_others_written) {
  const std::string lines =
      "{\"text\":\"good\"}\n"     // written
      "{\"text\":\"\"}\n"         // empty
      "{\"text\":\"\\u0000\"}\n"  // nul
      "{\"text\":\"\xff\"}\n"     // invalid_utf8
      "{\"txt\":\"a\"}\n"         // wrong_field
      "{\"text\":{\"a\":1}}\n"    // wrong_field
      "{\"text\":\"a\"\n"         // json_error
      "\"text\"\n"                // json_error
      "{\"text\":\"" +
      std::string(100, 'x') + "\"}\n";  // too_long
  CorpusOptions o;
  o.documents.max_document_bytes = 100;
  EXPECT_EQ(rejections("a.jsonl", lines, o),
            (std::vector<std::string>{"empty", "nul", "invalid_utf8", "wrong_field", "wrong_field",
                                      "json_error", "json_error", "too_long"}));
  EXPECT_EQ(open_tokens(path("out"), {})->tokens(), 5);
  o = {};
  o.documents.split_lines = true;
  o.tokenizer.end_of_document = 'e';
  EXPECT_EQ(rejections("b.txt", "one\nnot\nlate\n", o),
            (std::vector<std::string>{"end_of_document_byte", "end_of_document_byte"}));
}

TEST_F(BadCorpusTest, more_rejections_than_allowed_fail_the_build) {
  std::string lines;
  for (int i = 0; i < 30000; ++i)
    lines += i % 10000 == 5000 ? "oops\n" : "{\"text\":\"abcdefgh\"}\n";
  for (int workers = 1; workers <= 3; ++workers) {
    CorpusOptions o;
    o.workers = workers;
    o.max_rejected = 1;
    EXPECT_TRUE(says(refusal("a.jsonl", lines, o),
                     {"a.jsonl:15001: json_error: column 1", "2 documents rejected, allowed: 1"}));
    o.max_rejected = 0;
    EXPECT_TRUE(says(refusal("a.jsonl", lines, o), {"a.jsonl:5001:", "1 document rejected"}));
  }
  CorpusOptions o;
  o.max_rejected = 3;
  EXPECT_EQ(rejections("a.jsonl", lines, o).size(), 3U);
}

TEST_F(BadCorpusTest, options_and_empty_inputs_are_refused) {
  EXPECT_TRUE(says(refusal("a.txt", ""), {"1 file (0 bytes) hold no document", "1 rejected"}));
  EXPECT_TRUE(says(refusal("a.jsonl", "\n\n"), {"hold no document"}));
  CorpusOptions o;
  o.documents.offers_raw_bytes = true;
  EXPECT_TRUE(says(refusal("a.txt", "caf\xe9", o),
                   {"first: ", "a.txt: invalid_utf8: byte 0xe9 at offset 3", "--raw-bytes"}));
  o = {};
  o.workers = 0;
  EXPECT_TRUE(says(refusal<base::ConfigError>("a.txt", "x", o), {"0 workers"}));
  o = {};
  o.tokenizer.end_of_document = -2;
  EXPECT_TRUE(says(refusal<base::ConfigError>("a.txt", "x", o), {"token -2"}));
  o = {};
  o.tokenizer.vocab = 0;
  o.tokenizer.end_of_document = -1;
  EXPECT_TRUE(says(refusal<base::ConfigError>("a.txt", "x", o), {"a vocabulary of 0"}));
  o = {};
  o.format = TokenFormat::text;
  EXPECT_TRUE(says(refusal<base::ConfigError>("a.txt", "x", o), {"text is not written"}));
  o = {};
  o.documents.max_document_bytes = 0;
  EXPECT_TRUE(says(refusal<base::ConfigError>("a.txt", "x", o), {"at most 0 bytes"}));
  o = {};
  o.documents.text_field = "a..b";
  EXPECT_TRUE(says(refusal<base::ConfigError>("a.jsonl", "x", o), {"empty key"}));
  EXPECT_TRUE(says(refusal<base::ConfigError>("a.csv", "x"), {"give the kind"}));
  o = {};
  o.inputs = {path("").string()};
  o.output = path("deep/out");
  EXPECT_TRUE(says(message_of<base::ConfigError>([&] {
                     write("a.txt", "x");
                     build_corpus(o);
                   }),
                   {"the output lies in the input folder"}));
  o.inputs = {write("out.bin", "xx").string()};
  o.output = path("out");
  EXPECT_TRUE(says(message_of<base::ConfigError>([&] { build_corpus(o); }),
                   {"out.bin: is read and would be replaced"}));
  EXPECT_TRUE(says(message_of<base::IoError>([&] {
                     CorpusOptions none;
                     none.inputs = {write("a.txt", "x").string()};
                     none.output = path("a.txt/out");
                     build_corpus(none);
                   }),
                   {"out.build: cannot be written: Not a directory"}));
}

TEST_F(BadCorpusTest, two_builds_of_one_output_exclude_each_other) {
  std::filesystem::create_directories(path("out.build"));
  const base::Descriptor lock(
      ::open(path("out.build/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  ASSERT_EQ(::flock(lock.value(), LOCK_EX), 0);
  CorpusOptions o;
  o.inputs = {write("a.txt", "x").string()};
  o.output = path("out");
  EXPECT_TRUE(says(message_of<base::IoError>([&] { build_corpus(o); }),
                   {"out.build: another process builds this data set"}));
}

TEST_F(BadCorpusTest, a_damaged_state_is_refused) {
  std::filesystem::create_directories(path("out.build"));
  CorpusOptions o;
  o.inputs = {write("a.txt", "x").string()};
  o.output = path("out");
  for (const char* state : {"", "{", "[]", "{\"version\":1}"}) {
    write("out.build/state.json", state);
    EXPECT_TRUE(says(message_of<base::IoError>([&] { build_corpus(o); }),
                     {"state.json: cannot be used", "--overwrite"}))
        << state;
  }
  write("out.build/state.json", "{\"version\":2}");
  EXPECT_TRUE(says(message_of<base::IoError>([&] { build_corpus(o); }), {"unknown version"}));
  o.start_over = true;
  EXPECT_EQ(build_corpus(o).total.documents, 1);
}

}  // namespace
}  // namespace trireme::data
