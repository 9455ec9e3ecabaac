// SPDX-License-Identifier: Apache-2.0
#include "data/files/token_data.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>

#include "base/error.h"
#include "base/rng.h"
#include "data/files/layouts.h"
#include "data/files/vocabulary.h"
#include "data/files_test.h"

namespace trireme::data {
namespace {

// The fields of an index, to be broken one at a time.
struct Index {
  std::string magic{"MMIDIDX\0\0", 9};
  uint64_t version = 1;
  uint8_t type = 8;
  std::vector<int64_t> lengths = {3, 2}, pointers = {0, 6}, documents = {0, 1, 2};
  int64_t claimed_sequences = -1, claimed_documents = -1;
  std::string tail;

  std::string bytes() const {
    const auto count = [](int64_t claimed, const auto& array) {
      return raw(claimed >= 0 ? static_cast<uint64_t>(claimed) : array.size());
    };
    return magic + raw(version) + raw(type) + count(claimed_sequences, lengths) +
           count(claimed_documents, documents) + raw_array<int32_t>(lengths) +
           raw_array<int64_t>(pointers) + raw_array<int64_t>(documents) + tail;
  }
};

std::string llmc_file(int32_t magic, int32_t version, int32_t tokens, const std::string& payload) {
  std::string header = raw(magic) + raw(version) + raw(tokens);
  header.resize(1024, '\0');
  return header + payload;
}

class TokenDataTest : public FilesTest {
 protected:
  void write_pair(const std::string& index, const std::string& bin) const {
    write("d.idx", index);
    write("d.bin", bin);
  }
};

const std::string five_tokens = raw_array<uint16_t>({7, 8, 65535, 1, 2});

TEST_F(TokenDataTest, the_megatron_header_of_the_format_notes_is_read) {
  const std::string header =
      from_hex("4d4d4944494458000001000000000000000802000000000000000300000000000000");
  ASSERT_EQ(header.size(), 34U);
  EXPECT_EQ(header, Index().bytes().substr(0, 34));
  write_pair(header + Index().bytes().substr(34), five_tokens);
  for (const char* name : {"d", "d.bin", "d.idx"}) {
    const auto data = open_tokens(path(name), {});
    EXPECT_EQ(data->format(), TokenFormat::megatron);
    EXPECT_TRUE(holds(all_tokens(*data), {7, 8, 65535, 1, 2}));
    EXPECT_TRUE(holds(all_starts(*data), {0, 3, 5}));
    EXPECT_EQ(data->documents().at(2), 0);
    EXPECT_EQ(data->documents().at(3), 1);
  }
}

TEST_F(TokenDataTest, megatron_documents_may_have_no_or_many_sequences) {
  Index index;
  index.lengths = {1, 0, 2, 2};
  index.pointers = {0, 2, 2, 6};
  index.documents = {0, 0, 3, 3, 4};
  index.tail = std::string(4, '\0');  // modes: all text
  write_pair(index.bytes(), five_tokens);
  const auto data = open_tokens(path("d"), {});
  EXPECT_TRUE(holds(all_starts(*data), {0, 0, 3, 3, 5}));
  EXPECT_EQ(data->documents().at(0), 1);
  EXPECT_EQ(data->documents().at(3), 3);
  std::vector<int64_t> starts;
  data->documents().starts_in(0, 5, starts);
  EXPECT_TRUE(holds(starts, {0, 3}));
}

TEST_F(TokenDataTest, every_megatron_integer_type_is_read) {
  const std::vector<int64_t> tokens = {5, 100, 0, 9, 127};
  const auto check = [&](uint8_t code, const std::string& bin) {
    Index index;
    index.type = code;
    index.pointers[1] = static_cast<int64_t>(bin.size()) / 5 * 3;
    write_pair(index.bytes(), bin);
    EXPECT_TRUE(holds(all_tokens(*open_tokens(path("d"), {})), {5, 100, 0, 9, 127})) << int{code};
  };
  check(1, raw_array<uint8_t>(tokens));
  check(2, raw_array<int8_t>(tokens));
  check(3, raw_array<int16_t>(tokens));
  check(4, raw_array<int32_t>(tokens));
  check(5, raw_array<int64_t>(tokens));
  check(8, raw_array<uint16_t>(tokens));
}

TEST_F(TokenDataTest, llmc_files_are_read_and_documents_end_with_their_token) {
  write("a.bin", llmc_file(20240520, 1, 5, raw_array<uint16_t>({9, 50256, 4, 5, 50256})));
  write("b.bin", llmc_file(20240801, 7, 2, raw_array<uint32_t>({128000, 3})));
  const auto one = open_tokens(path("a.bin"), {});
  EXPECT_EQ(one->format(), TokenFormat::llmc);
  EXPECT_TRUE(holds(all_starts(*one), {0, 5}));
  const auto split = open_tokens(path("a.bin"), {.end_of_document = 50256});
  EXPECT_TRUE(holds(all_tokens(*split), {9, 50256, 4, 5, 50256}));
  EXPECT_TRUE(holds(all_starts(*split), {0, 2, 5}));
  EXPECT_EQ(split->documents().at(1), 0);
  EXPECT_EQ(split->documents().at(4), 1);
  EXPECT_TRUE(holds(all_tokens(*open_tokens(path("b.bin"), {})), {128000, 3}));
}

TEST_F(TokenDataTest, bare_tokens_and_text_are_read) {
  write("train.bin", raw_array<uint16_t>({1, 2, 3, 4}));
  EXPECT_TRUE(holds(all_tokens(*open_tokens(path("train.bin"), {.type = "u16"})), {1, 2, 3, 4}));
  EXPECT_TRUE(
      holds(all_tokens(*open_tokens(path("train.bin"), {.type = "u32"})), {0x20001, 0x40003}));
  write("t.txt", "A\xc3\xa9\n");
  const auto text = open_tokens(path("t.txt"), {});
  EXPECT_EQ(text->format(), TokenFormat::text);
  EXPECT_TRUE(holds(all_tokens(*text), {65, 0xc3, 0xa9, 10}));
  EXPECT_EQ(text->documents().count(), 1);
  EXPECT_TRUE(says(text->description(), {"4 tokens (text, u8)"}));
}

TEST_F(TokenDataTest, a_byte_order_mark_is_no_part_of_a_text) {
  write("t.txt",
        "\xef\xbb\xbf"
        "ab");
  EXPECT_TRUE(holds(all_tokens(*open_tokens(path("t.txt"), {})), {'a', 'b'}));
  EXPECT_EQ(open_tokens(path("t.txt"), {.raw_bytes = true})->tokens(), 5);
}

// As data build and data convert print it.
TEST_F(TokenDataTest, the_prefix_opens_files_of_every_format) {
  write("a.bin", llmc_file(20240520, 1, 2, raw_array<uint16_t>({9, 4})));
  for (const TokenFormat format : {TokenFormat::automatic, TokenFormat::llmc}) {
    EXPECT_TRUE(holds(all_tokens(*open_tokens(path("a"), {.format = format})), {9, 4}));
  }
  write("b.bin", raw_array<uint32_t>({70000, 3}));
  EXPECT_TRUE(holds(all_tokens(*open_tokens(path("b"), {.type = "u32"})), {70000, 3}));
  EXPECT_TRUE(says(message_of<base::IoError>([&] { open_tokens(path("b"), {}); }),
                   {"b.bin: has no header", "no index beside it (Megatron's b.idx)"}));
  write("b.manifest.json", R"({"trireme_data":1,"type":"u32","options":{"format":"nanogpt"}})");
  for (const char* name : {"b", "b.bin"}) {
    for (const TokenFormat format : {TokenFormat::automatic, TokenFormat::nanogpt}) {
      EXPECT_TRUE(holds(all_tokens(*open_tokens(path(name), {.format = format})), {70000, 3}));
    }
  }
  EXPECT_TRUE(says(message_of<base::ConfigError>([&] { open_tokens(path("b"), {.type = "u16"}); }),
                   {"b.bin: is to be read as u16, but was written as u32"}));
  for (const char* other : {R"({"trireme_data":1,"type":3,"options":{"format":"nanogpt"}})",
                            R"({"trireme_data":1,"type":"u32","options":["nanogpt"]})"}) {
    write("b.manifest.json", other);
    EXPECT_TRUE(says(message_of<base::IoError>([&] { open_tokens(path("b"), {}); }),
                     {"b.bin", "need their type"}));
  }
}

TEST_F(TokenDataTest, the_fingerprint_is_of_the_content) {
  write_pair(Index().bytes(), five_tokens);
  const auto megatron = open_tokens(path("d"), {});
  EXPECT_EQ(fingerprint(*megatron), fingerprint(*tokens_in_memory({7, 8, 65535, 1, 2}, -1)));
  EXPECT_NE(fingerprint(*megatron), fingerprint(*tokens_in_memory({7, 8, 65535, 1, 3}, -1)));
  std::vector<int32_t> many(100000, 1);
  const uint64_t before = fingerprint(*tokens_in_memory(many, -1));
  EXPECT_EQ(before, fingerprint(*tokens_in_memory(many, 1)));
  many.push_back(1);
  EXPECT_NE(before, fingerprint(*tokens_in_memory(many, -1)));
  many.pop_back();
  many.back() = 2;
  EXPECT_NE(before, fingerprint(*tokens_in_memory(many, -1)));
}

struct Broken {
  const char* why;
  std::string index, bin;
  std::string message;  // part of the required message
};

TEST_F(TokenDataTest, broken_megatron_files_are_refused_with_what_was_found) {
  const auto with = [](auto change) {
    Index index;
    change(index);
    return index.bytes();
  };
  const std::string good = Index().bytes();
  const std::vector<Broken> cases = {
      {"empty index", "", five_tokens, "truncated: 0 bytes"},
      {"half a header", good.substr(0, 20), five_tokens, "truncated: 20 bytes"},
      {"magic", with([](Index& i) { i.magic[0] = 'X'; }), five_tokens, "starts with \"XMIDIDX"},
      {"version", with([](Index& i) { i.version = 2; }), five_tokens, "version 2; allowed: 1"},
      {"unknown type", with([](Index& i) { i.type = 9; }), five_tokens, "type code 9;"},
      {"float type", with([](Index& i) { i.type = 7; }), five_tokens, "7 (floating point)"},
      {"cut arrays", good.substr(0, good.size() - 1), five_tokens, "cannot hold 2 sequences"},
      {"one byte more", good + "x", five_tokens, "1 bytes after 2 sequences"},
      {"modes of images", good + std::string("\0\1", 2), five_tokens, "not text (mode 1)"},
      {"too many sequences", with([](Index& i) { i.claimed_sequences = 1000; }), five_tokens,
       "cannot hold 1000 sequences"},
      {"counts that overflow",
       with([](Index& i) { i.claimed_sequences = std::numeric_limits<int64_t>::max(); }),
       five_tokens, "cannot hold 9223372036854775807"},
      {"no document entry", with([](Index& i) { i.documents.clear(); }), five_tokens,
       "0 document entries"},
      {"negative length", with([](Index& i) { i.lengths[1] = -2; }), five_tokens,
       "sequence 1 has -2 tokens"},
      {"lengths beyond the bin", with([](Index& i) { i.lengths[1] = 3; }), five_tokens,
       "ends at byte 12; the .bin has 10"},
      {"lengths short of the bin", with([](Index& i) { i.lengths[1] = 1; }), five_tokens,
       "take 8 bytes; the .bin has 10"},
      {"pointer out of range", with([](Index& i) { i.pointers[1] = 1000; }), five_tokens,
       "starts at byte 1000 of a .bin of 10"},
      {"negative pointer", with([](Index& i) { i.pointers[0] = -2; }), five_tokens,
       "starts at byte -2"},
      {"pointers not rising", with([](Index& i) {
         i.pointers = {6, 0};
       }),
       five_tokens, "starts at byte 6; the one before it ends at 0"},
      {"first document", with([](Index& i) { i.documents[0] = 1; }), five_tokens,
       "document 0 starts at sequence 1"},
      {"documents not rising", with([](Index& i) {
         i.documents = {0, 2, 1, 2};
       }),
       five_tokens, "document 2 starts at sequence 1, the one before it at 2"},
      {"document out of range", with([](Index& i) { i.documents[1] = 5; }), five_tokens,
       "document 1 starts at sequence 5 of 2"},
      {"last document", with([](Index& i) {
         i.documents = {0, 1};
       }),
       five_tokens, "end at sequence 1; there are 2"},
      {"truncated bin", good, five_tokens.substr(0, 9), "ends at byte 10; the .bin has 9"},
      {"bin too long", good, five_tokens + "zz", "take 10 bytes; the .bin has 12"},
  };
  for (const Broken& broken : cases) {
    write_pair(broken.index, broken.bin);
    EXPECT_TRUE(says(message_of<base::IoError>([&] { open_tokens(path("d"), {}); }),
                     {"d.idx", broken.message}))
        << broken.why;
  }
}

TEST_F(TokenDataTest, broken_llmc_and_bare_files_are_refused_with_what_was_found) {
  const std::string two = raw_array<uint16_t>({1, 2});
  const std::vector<std::pair<std::string, std::string>> cases = {
      {llmc_file(20240520, 1, 2, two).substr(0, 1000), "truncated: 1000 bytes"},
      {llmc_file(20240520, 2, 2, two), "have version 1, this file has 2"},
      {llmc_file(20240801, 1, 1, two), "have version 7, this file has 1"},
      {llmc_file(20240520, 1, 3, two),
       "3 tokens of u16 take 1030 bytes with the header, the file has 1028"},
      {llmc_file(20240520, 1, 1, two), "the file has 1028"},
      {llmc_file(20240520, 1, -1, two), "-1 tokens"},
      {llmc_file(20240326, 3, 1, two), "a GPT-2 model"},
      {llmc_file(20240522, 1, 1, two), "evaluation questions"},
      {two, "need their type"},
      {"", "need their type"},
  };
  for (const auto& [bytes, message] : cases) {
    write("x.bin", bytes);
    EXPECT_TRUE(says(message_of<base::IoError>([&] { open_tokens(path("x.bin"), {}); }),
                     {"x.bin", message}));
  }
  write("x.bin", llmc_file(77, 1, 2, two));
  EXPECT_TRUE(says(
      message_of<base::IoError>([&] { open_tokens(path("x.bin"), {.format = TokenFormat::llmc}); }),
      {"starts with the number 77"}));
  write("x.bin", "abc");
  EXPECT_TRUE(says(message_of<base::IoError>([&] { open_tokens(path("x.bin"), {.type = "u16"}); }),
                   {"3 bytes are not a whole number of u16"}));
  EXPECT_TRUE(
      says(message_of<base::ConfigError>([&] { open_tokens(path("x.bin"), {.type = "f16"}); }),
           {"'f16' is not a token type"}));
}

TEST_F(TokenDataTest, wrong_paths_and_texts_are_refused) {
  const auto refused = [&](const std::string& name) {
    return message_of<base::IoError>([&] { open_tokens(path(name), {}); });
  };
  const auto not_found = [&](const std::string& name, TokenFormat format = {}) {
    return message_of<base::ConfigError>([&] { open_tokens(path(name), {.format = format}); });
  };
  EXPECT_TRUE(says(not_found("missing"), {"neither do"}));
  EXPECT_TRUE(says(not_found("missing.bin"), {"does not exist"}));
  EXPECT_TRUE(says(not_found("missing", TokenFormat::megatron), {"neither do"}));
  std::filesystem::create_directory(path("folder"));
  EXPECT_TRUE(says(not_found("folder"), {"is a folder"}));
  write("alone.idx", Index().bytes());
  EXPECT_TRUE(says(refused("alone"), {"alone.bin: cannot be read"}));
  write("lines.jsonl", "{}");
  EXPECT_TRUE(says(refused("lines.jsonl"), {"data build"}));
  write("bad.txt", "ab\xff");
  EXPECT_TRUE(says(refused("bad.txt"), {"byte 0xff at offset 2", "iconv -f LATIN1 -t UTF-8",
                                        "data build", "bad.txt --raw-bytes"}));
  write("wide.txt", std::string("\xff\xfe"
                                "a\0",
                                4));
  EXPECT_TRUE(says(refused("wide.txt"), {"byte 0xff at offset 0", "iconv -f UTF-16 -t UTF-8"}));
  EXPECT_EQ(open_tokens(path("bad.txt"), {.raw_bytes = true})->tokens(), 3);
}

TEST_F(TokenDataTest, tokens_that_no_vocabulary_has_are_refused_when_read) {
  Index index;
  index.type = 4;
  index.pointers[1] = 12;
  write_pair(index.bytes(), raw_array<int32_t>({1, 2, 3, -4, 5}));
  const auto data = open_tokens(path("d"), {});
  EXPECT_TRUE(says(message_of<base::IoError>([&] { all_tokens(*data); }),
                   {"token 3 is -4; allowed: 0 .. 2147483647"}));
  write("u.bin", raw_array<uint32_t>({1, 4000000000}));
  EXPECT_TRUE(says(
      message_of<base::IoError>([&] { all_tokens(*open_tokens(path("u.bin"), {.type = "u32"})); }),
      {"token 1 is 4000000000"}));
}

TEST_F(TokenDataTest, the_vocabulary_check_names_the_place) {
  write_pair(Index().bytes(), five_tokens);
  const auto data = open_tokens(path("d"), {});
  int64_t seen = 0;
  check_vocabulary(*data, 65536, [&](int64_t done, int64_t) { seen = done; });
  EXPECT_EQ(seen, 5);
  EXPECT_TRUE(says(message_of<base::IoError>([&] { check_vocabulary(*data, 256, {}); }),
                   {"token 2 (number 2 of document 0) is 65535; the model's vocabulary is 256"}));
}

// For any file content, opening it gives a readable data set or an IoError.
TEST_F(TokenDataTest, random_damage_is_survived) {
  const base::RngKey key = base::rng_key(11, "data.damage");
  const std::string good = Index().bytes(), llmc = llmc_file(20240520, 1, 5, five_tokens);
  int opened = 0, refused = 0;
  for (uint64_t i = 0; i < 20000; ++i) {
    const bool is_index = i % 2 == 0;
    std::string bytes = is_index ? good : llmc;
    const uint64_t reach = is_index ? bytes.size() : 16;
    const uint64_t changes = base::rng_below(key, i * 16, 3);
    for (uint64_t c = 0; c < changes; ++c) {
      bytes[base::rng_below(key, i * 16 + 2 * c + 1, reach)] =
          static_cast<char>(base::rng_below(key, i * 16 + 2 * c + 2, 4) == 0
                                ? 0xff
                                : base::rng_below(key, i * 16 + 9 + c, 12));
    }
    if (base::rng_below(key, i * 16 + 15, 4) == 0) {
      bytes.resize(base::rng_below(key, i * 16 + 14, bytes.size()));
    }
    const std::string copy(bytes);  // exactly as long, so that a sanitizer sees an overrun
    try {
      const auto span = std::as_bytes(std::span(copy));
      if (is_index) {
        const MegatronIndex index = parse_megatron_index(span, 10, "x");
        for (int64_t d = 0; d <= index.documents; ++d) {
          ASSERT_LE(index.document_start(d), index.tokens);
        }
      } else {
        ASSERT_EQ(parse_llmc(span, "x").size(), 5);
      }
      ++opened;
    } catch (const base::IoError&) {
      ++refused;
    }
  }
  EXPECT_GT(opened, 1000);
  EXPECT_GT(refused, 1000);
}

// Each change alone, on a file that was opened before it.
TEST_F(TokenDataTest, files_that_change_under_a_reader_are_named) {
  namespace fs = std::filesystem;
  const std::string text = "one two three";
  const auto changed_by = [&](const std::function<void(const fs::path&)>& change) {
    const auto data = open_tokens(write("a.txt", text), {});
    EXPECT_EQ(data->changed(), "");
    change(path("a.txt"));
    return data->changed();
  };
  EXPECT_EQ(changed_by([](const fs::path&) {}), "");
  const std::string written = changed_by([&](const fs::path& file) {
    write("a.txt", "ONE TWO THREE");
    // File system clocks may not advance for some milliseconds.
    fs::last_write_time(file, fs::last_write_time(file) + std::chrono::seconds(1));
  });
  EXPECT_TRUE(written.starts_with(path("a.txt").string() + ": was written since it was opened"))
      << written;
  EXPECT_EQ(changed_by([&](const fs::path&) { write("a.txt", text + text); }),
            path("a.txt").string() + ": has 26 bytes and had 13 when it was opened");
  EXPECT_EQ(changed_by([&](const fs::path& file) {
              fs::last_write_time(write("b.txt", text), fs::last_write_time(file));
              fs::rename(path("b.txt"), file);
            }),
            path("a.txt").string() + ": was replaced by another file since it was opened");
  EXPECT_EQ(changed_by([](const fs::path& file) { fs::remove(file); }),
            path("a.txt").string() + ": was removed since it was opened");
  EXPECT_EQ(tokens_in_memory({1, 2, 3}, -1)->changed(), "");
}

}  // namespace
}  // namespace trireme::data
