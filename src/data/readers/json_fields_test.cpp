// SPDX-License-Identifier: Apache-2.0
#include "data/readers/json_fields.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/rng.h"
#include "base/text/json.h"
#include "data/files_test.h"

namespace trireme::data {
namespace {

std::string read_field(const std::string& line, const std::string& path = "text") {
  JsonFields fields({field_path(path)});
  const auto rejection = fields.read(line);
  if (rejection) return std::string(name_of(rejection->reason)) + ": " + rejection->detail;
  return std::string(fields.value(0));
}

TEST(JsonFieldsTest, a_field_is_found_at_any_depth_and_without_escapes) {
  EXPECT_EQ(read_field(R"({"id": 1, "text": "plain"})"), "plain");
  EXPECT_EQ(read_field("\xef\xbb\xbf {\"text\":\"x\"} \r"), "x");
  EXPECT_EQ(
      read_field(R"({"a":{"text":"no"},"text":"\"\\\/\b\f\n\r\t\u0041\u00e9\u20ac\ud83d\ude00"})"),
      "\"\\/\b\f\n\r\tA\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
  EXPECT_EQ(read_field(R"({"a":{"x":[{"b":1}],"b":"deep"},"b":2})", "a.b"), "deep");
  EXPECT_EQ(read_field(R"({"te\u0078t":"escaped key"})"), "escaped key");
  EXPECT_EQ(read_field(R"({"text":""})"), "");
  EXPECT_EQ(read_field(R"({"text":"long enough for a word \n and then some more text"})"),
            "long enough for a word \n and then some more text");
  JsonFields two({field_path("p"), field_path("c.x")});
  EXPECT_FALSE(two.read(R"({"c":{"x":"2"},"p":"1"})"));
  EXPECT_EQ(two.value(0), "1");
  EXPECT_EQ(two.value(1), "2");
}

TEST(JsonFieldsTest, bad_lines_are_rejected_with_reason_and_column) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "json_error: column 1: expected an object"},
      {"oops", "json_error: column 1: expected an object, which begins with {, found 'o'"},
      {"[1]", "json_error: column 1: expected an object"},
      {R"({"text": })", "json_error: column 10: expected a value, found '}'"},
      {R"({"text":"a")", "expected ',' or '}' after a value, found the end of the line"},
      {R"({"text":"a)", "the line ends inside a string"},
      {R"({"text":"a"} x)", "column 14: expected the end of the line, found 'x'"},
      {R"({"text":"a",})", "expected a key in quotes"},
      {R"({"text" "a"})", "expected ':' after a key"},
      {R"({text:"a"})", "expected a key in quotes, found 't'"},
      {"{\"text\":\"a\tb\"}", "control character 0x09 inside a string"},
      {R"({"text":"\x"})", "an escape that JSON does not have"},
      {R"({"text":"\u12"})", "without four hexadecimal digits"},
      {R"({"text":"\ud800"})", "half of a surrogate pair"},
      {R"({"text":"\udc00x"})", "half of a surrogate pair"},
      {R"({"text":"a","n":01})", "expected ',' or '}' after a value, found '1'"},
      {R"({"text":"a","n":1.})", "expected a digit after '.'"},
      {R"({"text":"a","n":1e})", "expected a digit of the exponent"},
      {R"({"text":"a","n":-})", "expected a value, found '-'"},
      {R"({"text":"a","n":nul})", "expected a value, found 'n'"},
      {R"({"text":"a","n":[1,]})", "expected a value, found ']'"},
      {R"({"text":"a","n":[1 2]})", "expected ',' or ']'"},
      {"{\"text\":\"a\xff\"}", "invalid_utf8: byte 0xff at column 11"},
      {R"({"tex":1,"b":2})", "wrong_field: no field \"text\"; found: tex, b"},
      {R"({})", "wrong_field: no field \"text\"; found: none"},
      {R"({"text":5})", "wrong_field: the field \"text\" has the type number; allowed: string"},
      {R"({"text":null})", "the type null"},
      {R"({"text":{"a":"b"}})", "the type object"},
      {R"({"text":["a"]})", "the type array"},
      {R"({"text":"a","text":"b"})", "wrong_field: the field \"text\" occurs 2 times"},
      {"{\"text\":" + std::string(300, '['), "nested deeper than 256 levels"}};
  for (const auto& [line, expected] : cases) {
    EXPECT_TRUE(says(read_field(line), {expected})) << line;
  }
  EXPECT_TRUE(says(read_field(R"({"a":"x"})", "a.b"), {"no field \"a.b\""}));
  for (const char* path : {"", ".", "a.", ".a", "a..b"}) {
    EXPECT_TRUE(says(message_of<base::ConfigError>([&] { field_path(path); }), {"empty key"}));
  }
}

// Lines with random edits: what one accepts, the other accepts, with the same string.
TEST(JsonFieldsTest, agrees_with_a_parser_on_damaged_lines) {
  const std::string good =
      R"({"id": -12.5e+3, "meta": {"a": [true, false, null, {"b": []}], "text": "no"}, )"
      "\"text\": \"caf\xc3\xa9 \\n \\u20ac \\ud83d\\ude00 \\\\ tail\"}";
  const std::string alphabet = "{}[]\",:\\u0a1e.-+tfn \t\n\x01\xc3\xa9\xff";
  const base::RngKey key = base::rng_key(11, "json.test");
  JsonFields fields({field_path("text")});
  int accepted = 0;
  for (uint64_t i = 0; i < 60000; ++i) {
    std::string line = good;
    for (uint64_t edit = 0; edit < 1 + i % 3; ++edit) {
      const size_t at = base::rng_below(key, i * 16 + edit * 4, static_cast<uint32_t>(line.size()));
      const char c = alphabet[base::rng_below(key, i * 16 + edit * 4 + 1,
                                              static_cast<uint32_t>(alphabet.size()))];
      const auto kind = base::rng_below(key, i * 16 + edit * 4 + 2, 3);
      if (kind == 0) line[at] = c;
      if (kind == 1) line.erase(at, 1);
      if (kind == 2) line.insert(at, 1, c);
    }
    const auto rejection = fields.read(line);
    const base::Json parsed = base::Json::parse(line, nullptr, false);
    const bool is_valid = !rejection || rejection->reason == RejectReason::wrong_field;
    ASSERT_EQ(is_valid, parsed.is_object()) << line;
    if (rejection) continue;
    ++accepted;
    ASSERT_EQ(parsed.at("text").get<std::string>(), fields.value(0)) << line;
  }
  EXPECT_GT(accepted, 5000);
}

}  // namespace
}  // namespace trireme::data
