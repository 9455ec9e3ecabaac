// SPDX-License-Identifier: Apache-2.0
#include "data/build.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "base/rng.h"
#include "base/text/json.h"
#include "data/files/utf8.h"
#include "data/files_test.h"
#include "data/inspect.h"

namespace trireme::data {
namespace {

class BuildTest : public FilesTest {
 protected:
  // Builds from the file `name` and returns the message of its refusal; no file may be left.
  template <typename Error = base::IoError>
  std::string refusal(const std::string& name, const std::string& bytes,
                      BuildOptions options = {}) {
    options.inputs = {write(name, bytes)};
    options.output = path("out");
    const std::string message = message_of<Error>([&] { build_dataset(options); });
    EXPECT_TRUE(holds(names(), {name}));
    std::filesystem::remove(path(name));
    return message;
  }
};

TEST_F(BuildTest, text_and_json_become_bytes_with_an_end) {
  write("a.txt", "Hi\n\xc3\xa9");
  write("b.jsonl", "{\"text\":\"x\\ny\",\"id\":1}\r\n\n{\"text\":\"\"}\n{\"id\":2,\"text\":\"z\"}");
  write("c.txt", "");
  const BuildReport report = build_dataset(
      {.inputs = {path("a.txt"), path("b.jsonl"), path("c.txt")}, .output = path("out")});
  const auto data = open_tokens(path("out"), {});
  EXPECT_TRUE(holds(all_tokens(*data), {'H', 'i', '\n', 0xc3, 0xa9, 0, 'x', '\n', 'y', 0, 'z', 0}));
  EXPECT_TRUE(holds(all_starts(*data), {0, 6, 10, 12}));
  EXPECT_EQ(data->type(), TokenType::u16);
  EXPECT_EQ(report.documents, 3);
  EXPECT_EQ(report.tokens, 12);
  EXPECT_EQ(report.empty_documents, 2);
  EXPECT_EQ(report.vocab, 256);
}

TEST_F(BuildTest, lines_can_be_documents_and_the_end_token_is_chosen) {
  write("a.txt", "one\r\n\ntwo\nthree");
  const BuildReport report = build_dataset({.inputs = {path("a.txt")},
                                            .output = path("out.bin"),
                                            .format = TokenFormat::llmc,
                                            .end_of_document = 256,
                                            .split_lines = true});
  EXPECT_EQ(report.vocab, 257);
  const auto data = open_tokens(path("out.bin"), {.end_of_document = 256});
  EXPECT_TRUE(holds(all_starts(*data), {0, 4, 8, 14}));
  build_dataset({.inputs = {path("a.txt")}, .output = path("bare"), .end_of_document = -1});
  EXPECT_EQ(open_tokens(path("bare"), {})->tokens(), 15);
}

TEST_F(BuildTest, the_bytes_do_not_depend_on_the_number_of_workers) {
  // Texts that cross block borders, with characters of every length.
  const std::vector<std::string> characters = {"a", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80"};
  const base::RngKey key = base::rng_key(5, "build.test");
  std::string text, lines;
  for (uint64_t i = 0; i < 700000; ++i) {
    text += characters[base::rng_below(key, i, 4)];
  }
  for (uint64_t i = 0; i < 60000; ++i) {
    lines += "{\"id\": " + std::to_string(i) + ", \"text\": \"" +
             std::string(base::rng_below(key, i, 50), 'w') + " \\u20ac\"}\n";
  }
  write("a.txt", text);
  write("b.jsonl", lines);
  write("c.txt", "short");
  std::string bin, index;
  for (int workers = 1; workers <= 4; ++workers) {
    int64_t last = 0, calls = 0;
    const BuildReport report = build_dataset(
        {.inputs = {path("c.txt"), path("a.txt"), path("b.jsonl"), path("c.txt")},
         .output = path("out"),
         .workers = workers,
         .progress = [&](const BuildProgress& progress) {
           EXPECT_GE(progress.bytes_done, last);
           last = progress.bytes_done;
           ++calls;
           EXPECT_EQ(progress.bytes_total, static_cast<int64_t>(text.size() + lines.size() + 10));
         }});
    EXPECT_EQ(last, report.input_bytes);
    EXPECT_GE(calls, 1);
    if (workers == 1) {
      bin = read("out.bin");
      index = read("out.idx");
      const auto data = open_tokens(path("out"), {});
      EXPECT_EQ(data->documents().count(), 60003);
      EXPECT_EQ(data->documents().start(2) - data->documents().start(1),
                static_cast<int64_t>(text.size()) + 1);
    }
    EXPECT_EQ(read("out.bin"), bin) << workers;
    EXPECT_EQ(read("out.idx"), index) << workers;
  }
}

TEST_F(BuildTest, bad_input_is_refused_and_nothing_is_written) {
  EXPECT_TRUE(says(refusal("a.txt", "abc\x80"), {"a.txt: not UTF-8: byte 0x80 at offset 3"}));
  EXPECT_TRUE(says(refusal("a.txt", std::string(600000, 'a') + "\xe2\x82"),
                   {"byte 0xe2 at offset 600000"}));
  EXPECT_TRUE(says(refusal("a.txt", std::string("a\nb\0", 4)),
                   {"a.txt:2:", "the byte 0, which is the end-of-document"}));
  EXPECT_TRUE(says(refusal("a.jsonl", "{\"text\":\"a\"}\n{\"text\": }\n"),
                   {"a.jsonl:2: not JSON", "column 10"}));
  EXPECT_TRUE(says(refusal("a.jsonl", "{\"text\":\"a\"}\n\n{\"tex\":1,\"b\":2}\n"),
                   {"a.jsonl:3: no key \"text\"; found: tex, b"}));
  EXPECT_TRUE(says(refusal("a.jsonl", "{\"text\":5}"), {"a.jsonl:1: \"text\" is a JSON number"}));
  EXPECT_TRUE(says(refusal("a.jsonl", "[1]"), {"is a JSON array"}));
  EXPECT_TRUE(says(refusal("a.jsonl", "{\"text\":\"\\u0000\"}"), {"a.jsonl:1: the text holds"}));
  EXPECT_TRUE(says(refusal("a.jsonl", "{\"text\":\"\\ud800\"}"), {"a.jsonl:1: not JSON"}));
  EXPECT_TRUE(says(refusal("a.jsonl", "{\"text\":\"\xff\"}"), {"at offset 9"}));
  EXPECT_TRUE(says(refusal("a.txt", ""), {"hold no text"}));
  EXPECT_TRUE(says(refusal<base::ConfigError>("a.csv", "x"), {"end in .txt or .jsonl"}));
  EXPECT_TRUE(says(refusal<base::ConfigError>("a.txt", "x", {.workers = 0}), {"0 workers"}));
  EXPECT_TRUE(says(refusal<base::ConfigError>("a.txt", "x", {.end_of_document = -2}),
                   {"end-of-document token -2"}));
  EXPECT_TRUE(says(message_of<base::ConfigError>([&] { build_dataset({.output = path("out")}); }),
                   {"no input"}));
  EXPECT_TRUE(says(message_of<base::IoError>([&] {
                     build_dataset({.inputs = {path("none.txt")}, .output = path("out")});
                   }),
                   {"none.txt: cannot be read: No such file"}));
  EXPECT_TRUE(holds(names(), {}));
}

TEST_F(BuildTest, the_first_error_in_the_input_is_reported_for_any_number_of_workers) {
  std::string lines;
  for (int i = 0; i < 100000; ++i) {
    lines += i == 50000 || i == 90000 ? "oops\n" : "{\"text\":\"abcdefghij\"}\n";
  }
  for (int workers = 1; workers <= 4; ++workers) {
    EXPECT_TRUE(says(refusal("a.jsonl", lines, {.workers = workers}), {"a.jsonl:50001:"}));
  }
}

TEST_F(BuildTest, raw_bytes_are_taken_when_allowed) {
  write("a.txt", std::string("\xff\0x", 3));
  build_dataset({.inputs = {path("a.txt")}, .output = path("out"), .raw_bytes = true});
  EXPECT_TRUE(holds(all_tokens(*open_tokens(path("out"), {})), {0xff, 0, 'x', 0}));
}

TEST(Utf8Test, well_formed_sequences_pass_and_others_are_found) {
  const auto bad = [](const std::string& text) {
    return first_invalid_utf8(std::as_bytes(std::span(text)));
  };
  for (const char* good :
       {"", "plain ascii text", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf",
        "\xee\x80\x80", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_FALSE(bad(good)) << good;
    EXPECT_FALSE(bad("12345678" + std::string(good) + "12345678")) << good;
  }
  for (const char* wrong : {"\x80", "\xc0\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80",
                            "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xc3",
                            "\xe2\x82", "\xf0\x9f\x98", "\xc3(", "\xff"}) {
    EXPECT_EQ(bad(wrong), 0U) << wrong;
    EXPECT_EQ(bad("123456789" + std::string(wrong) + "123456789"), 9U) << wrong;
  }
}

TEST_F(BuildTest, inspection_counts_documents_lengths_and_tokens) {
  std::vector<int32_t> tokens;
  for (int32_t length = 1; length <= 100; ++length) {
    tokens.insert(tokens.end(), static_cast<size_t>(length - 1), 7);
    tokens.push_back(3);
  }
  const DatasetReport report = inspect(*tokens_in_memory(tokens, 3), {});
  EXPECT_EQ(report.documents, 100);
  EXPECT_EQ(report.tokens, 5050);
  EXPECT_EQ(report.length.min, 1);
  EXPECT_EQ(report.length.median, 50);
  EXPECT_EQ(report.length.p90, 90);
  EXPECT_EQ(report.length.p99, 99);
  EXPECT_EQ(report.length.max, 100);
  EXPECT_DOUBLE_EQ(report.length.mean, 50.5);
  EXPECT_NEAR(report.length.skew, 0, 1e-12);
  EXPECT_EQ(report.token_min, 3);
  EXPECT_EQ(report.token_max, 7);
  EXPECT_EQ(report.distinct_tokens, 2);
  ASSERT_EQ(report.top_tokens.size(), 2U);
  EXPECT_EQ(report.top_tokens[0].token, 7);
  EXPECT_EQ(report.top_tokens[0].count, 4950);
  EXPECT_EQ(to_json(report)["length"]["p90"], 90);
  EXPECT_TRUE(says(to_text(report), {"documents  100"}));
}

TEST_F(BuildTest, inspection_sees_skew_large_ids_and_empty_data) {
  // Lengths 1, 1, 4: mean 2, moments 2 and 2, skew 2 / 2^1.5.
  const DatasetReport skewed = inspect(*tokens_in_memory({0, 0, 5, 2000000000, 5, 0}, 0), {});
  EXPECT_NEAR(skewed.length.skew, 1 / std::sqrt(2.0), 1e-12);
  EXPECT_EQ(skewed.token_max, 2000000000);
  EXPECT_EQ(skewed.distinct_tokens, 3);
  const DatasetReport empty = inspect(*tokens_in_memory({}, -1), {});
  EXPECT_EQ(empty.documents, 0);
  EXPECT_EQ(empty.token_max, -1);
  EXPECT_TRUE(says(to_text(empty), {"tokens     0"}));
}

}  // namespace
}  // namespace trireme::data
