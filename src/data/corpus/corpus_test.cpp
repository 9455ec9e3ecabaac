// SPDX-License-Identifier: Apache-2.0
#include "data/corpus/corpus.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "base/error.h"
#include "base/rng.h"
#include "base/text/json.h"
#include "data/archives_test.h"
#include "data/corpus/work_folder.h"
#include "data/files/token_writer.h"
#include "data/mask.h"

namespace trireme::data {
namespace {

namespace fs = std::filesystem;

struct Killed : std::runtime_error {
  Killed() : std::runtime_error("killed") {}
};

class CorpusTest : public FilesTest {
 protected:
  CorpusTest() { fs::create_directories(path("in")); }

  std::string input(const std::string& name, const std::string& bytes) const {
    return write("in/" + name, bytes).string();
  }
  // Many documents of many sizes, some of them bad, in shards of every kind.
  std::vector<std::string> many_inputs() const {
    const base::RngKey key = base::rng_key(3, "corpus.test");
    std::vector<std::string> inputs;
    uint64_t at = 0;
    for (int shard = 0; shard < 4; ++shard) {
      std::string lines;
      for (int i = 0; i < 3000; ++i) {
        lines += at % 501 == 7 ? "bad line\n"
                               : R"({"text":")" + std::string(base::rng_below(key, at, 900), 'w') +
                                     " \\u20ac\"}\n";
        ++at;
      }
      inputs.push_back(input("s" + std::to_string(shard) + ".jsonl", lines));
    }
    inputs.push_back(input("big.txt", std::string(2500000, 'b')));
    std::string archive;
    for (int i = 0; i < 50; ++i) archive += tar_member(std::to_string(i) + ".txt", "member");
    inputs.push_back(input("t.tar", archive + tar_end));
    return inputs;
  }
  // The files of the result, one after the other.
  std::string result() const {
    return read("out.bin") + read("out.idx") + read("out.manifest.json") +
           read("out.rejected.jsonl");
  }
  CorpusOptions options(std::vector<std::string> inputs) const {
    CorpusOptions options;
    options.inputs = std::move(inputs);
    options.output = path("out");
    return options;
  }
};

TEST_F(CorpusTest, documents_of_all_inputs_become_one_data_set_with_a_manifest) {
  const std::string a = input("a.txt", "Hi"), b = input("b.jsonl", "{\"text\":\"x\"}\n\nbad\n");
  CorpusOptions o = options({a, b});
  const CorpusReport report = build_corpus(o);
  const auto data = open_tokens(path("out"), {});
  EXPECT_TRUE(holds(all_tokens(*data), {'H', 'i', 0, 'x', 0}));
  EXPECT_TRUE(holds(all_starts(*data), {0, 3, 5}));
  EXPECT_EQ(report.total.documents, 2);
  EXPECT_EQ(report.total.tokens, 5);
  EXPECT_EQ(report.total.text_bytes, 3);
  EXPECT_EQ(report.total.all_rejected(), 1);
  EXPECT_EQ(report.total.blank_lines, 1);
  EXPECT_EQ(report.sources[1].tokens, 2);
  EXPECT_EQ(report.vocab, 256);
  EXPECT_EQ(report.files.size(), 4U);
  EXPECT_TRUE(
      holds(names(), {"in", "out.bin", "out.idx", "out.manifest.json", "out.rejected.jsonl"}));
  const base::Json manifest = base::Json::parse(read("out.manifest.json"));
  EXPECT_EQ(manifest["counts"]["tokens"], 5);
  EXPECT_EQ(manifest["options"]["tokenizer"], "bytes");
  EXPECT_EQ(manifest["shards"][1]["file"], b);
  EXPECT_EQ(manifest["shards"][1]["counts"]["rejected"]["json_error"], 1);
  EXPECT_EQ(manifest["shards"][0]["xxh3_128"].get<std::string>().size(), 32U);
  EXPECT_EQ(manifest["sources"][0]["counts"]["text_bytes"], 2);
  const base::Json rejected = base::Json::parse(read("out.rejected.jsonl"));
  EXPECT_EQ(rejected["file"], b);
  EXPECT_EQ(rejected["line"], 3);
  EXPECT_EQ(rejected["offset"], 14);
  EXPECT_EQ(rejected["reason"], "json_error");
  // The next build has no rejections; no file of this one stays.
  o.inputs = {a};
  o.format = TokenFormat::nanogpt;
  build_corpus(o);
  EXPECT_TRUE(holds(names(), {"in", "out.bin", "out.manifest.json"}));
  EXPECT_EQ(read("out.bin"), raw_array<uint16_t>({'H', 'i', 0}));
}

TEST_F(CorpusTest, the_bytes_do_not_depend_on_the_number_of_workers) {
  CorpusOptions o = options(many_inputs());
  std::string expected;
  for (const int workers : {1, 2, 3}) {
    o.workers = workers;
    int64_t last = 0;
    o.progress = [&](const CorpusProgress& progress) {
      EXPECT_GE(progress.bytes_done, last);
      last = progress.bytes_done;
      EXPECT_LE(last, progress.bytes_total);
    };
    const CorpusReport report = build_corpus(o);
    EXPECT_EQ(last, report.total.stored_bytes);
    EXPECT_EQ(report.total.documents, 12000 - 24 + 51);
    if (workers == 1) expected = result();
    EXPECT_TRUE(result() == expected) << workers;
  }
}

TEST_F(CorpusTest, text_and_json_become_bytes_with_an_end) {
  const std::string a = input("a.txt", "Hi\n\xc3\xa9"), c = input("c.txt", "");
  const std::string b = input(
      "b.jsonl", "{\"text\":\"x\\ny\",\"id\":1}\r\n\n{\"text\":\"\"}\n{\"id\":2,\"text\":\"z\"}");
  CorpusOptions o = options({a, b, c});
  for (const int32_t end : {0, 256, 70000, -1}) {
    o.tokenizer.end_of_document = end;
    o.format = TokenFormat::megatron;
    EXPECT_EQ(build_corpus(o).total.rejected[static_cast<size_t>(RejectReason::empty)], 2);
    std::vector<int64_t> stored = {'H', 'i', '\n', 0xc3, 0xa9, end, 'x', '\n', 'y', end, 'z', end};
    std::erase(stored, -1);
    EXPECT_EQ(read("out.bin"),
              end == 70000 ? raw_array<int32_t>(stored) : raw_array<uint16_t>(stored));
    const int64_t more = end < 0 ? 0 : 1;
    EXPECT_TRUE(holds(all_starts(*open_tokens(path("out"), {})),
                      {0, 5 + more, 8 + 2 * more, 9 + 3 * more}));
    o.format = TokenFormat::llmc;
    build_corpus(o);
    EXPECT_EQ(read("out.bin").substr(1024),
              end == 70000 ? raw_array<uint32_t>(stored) : raw_array<uint16_t>(stored));
  }
}

TEST_F(CorpusTest, lines_can_be_documents_and_raw_bytes_are_accepted) {
  CorpusOptions o = options({input("a.txt", "one\r\n\ntwo\nthree")});
  o.documents.split_lines = true;
  o.tokenizer.end_of_document = 256;
  const CorpusReport report = build_corpus(o);
  EXPECT_EQ(report.vocab, 257);
  EXPECT_EQ(report.total.blank_lines, 1);
  EXPECT_TRUE(holds(all_starts(*open_tokens(path("out"), {})), {0, 4, 8, 14}));
  o = options({input("b.txt", std::string("\xff\0x", 3))});
  o.documents.raw_bytes = true;
  build_corpus(o);
  EXPECT_TRUE(holds(all_tokens(*open_tokens(path("out"), {})), {0xff, 0, 'x', 0}));
}

TEST_F(CorpusTest, start_over_continues_what_can_be_continued) {
  CorpusOptions o = options({input("a.txt", "one"), input("b.txt", "two")});
  o.commit_seconds = 0;
  o.start_over = true;
  CorpusOptions killed = o;
  int calls = 0;
  killed.progress = [&](const CorpusProgress&) {
    if (++calls == 3) throw Killed();
  };
  EXPECT_THROW(build_corpus(killed), Killed);
  EXPECT_FALSE(has_complete_build(path("out")));
  EXPECT_EQ(build_corpus(o).resumed_shards, 1);
  // A shard that was changed is read again.
  calls = 0;
  EXPECT_THROW(build_corpus(killed), Killed);
  input("a.txt", "ONE");
  fs::last_write_time(path("in/a.txt"), fs::file_time_type::clock::now() + std::chrono::hours(1));
  EXPECT_EQ(build_corpus(o).resumed_shards, 0);
  EXPECT_TRUE(
      holds(all_tokens(*open_tokens(path("out"), {})), {'O', 'N', 'E', 0, 't', 'w', 'o', 0}));
}

TEST_F(CorpusTest, a_killed_build_continues_and_gives_the_same_bytes) {
  CorpusOptions o = options(many_inputs());
  o.commit_seconds = 0;
  o.workers = 2;
  int64_t calls = 0;
  o.progress = [&](const CorpusProgress&) { ++calls; };
  build_corpus(o);
  const std::string expected = result();
  const int64_t blocks = calls;
  ASSERT_GT(blocks, 10);
  int64_t max_resumed = 0;
  for (int64_t last = 1; last < blocks; last += 3) {
    for (const char* name : {"out.bin", "out.idx", "out.manifest.json", "out.rejected.jsonl"}) {
      fs::remove(path(name));
    }
    calls = 0;
    o.progress = [&](const CorpusProgress&) {
      if (++calls == last) throw Killed();
    };
    EXPECT_THROW(build_corpus(o), Killed);
    EXPECT_FALSE(fs::exists(path("out.bin")));
    // What the killed process wrote after its last commit is ignored.
    if (fs::exists(path("out.build"))) {
      std::ofstream(path("out.build/tokens"), std::ios::app | std::ios::binary) << "garbage";
      std::ofstream(path("out.build/lengths"), std::ios::app | std::ios::binary) << "x";
    }
    o.progress = nullptr;
    const CorpusReport report = build_corpus(o);
    max_resumed = std::max(max_resumed, report.resumed_shards);
    EXPECT_TRUE(result() == expected) << last;
    EXPECT_FALSE(fs::exists(path("out.build")));
  }
  EXPECT_GE(max_resumed, 4);
}

TEST_F(CorpusTest, a_crash_between_two_renames_is_completed_by_the_next_build) {
  CorpusOptions o = options({input("a.jsonl", "{\"text\":\"x\"}\nbad\n")});
  build_corpus(o);
  const std::string expected = result();
  // A folder in place of the index lets the renames stop half-way, with the tokens in place.
  fs::remove(path("out.idx"));
  fs::create_directories(path("out.idx/x"));
  EXPECT_TRUE(says(message_of<base::IoError>([&] { build_corpus(o); }),
                   {"out.idx: cannot be written", "the finished data set is in", "out.build"}));
  EXPECT_FALSE(fs::exists(path("out.build/tokens")));
  EXPECT_TRUE(has_complete_build(path("out")));
  fs::remove_all(path("out.idx"));
  EXPECT_EQ(build_corpus(o).total.tokens, 2);
  EXPECT_EQ(result(), expected);
}

TEST_F(CorpusTest, an_unfinished_build_with_other_options_or_inputs_is_refused) {
  const std::string a = input("a.txt", "one"), b = input("b.txt", "two");
  CorpusOptions o = options({a, b});
  o.commit_seconds = 0;
  const auto kill = [&] {
    CorpusOptions killed = o;
    killed.start_over = true;
    int calls = 0;
    killed.progress = [&](const CorpusProgress&) {
      if (++calls == 3) throw Killed();
    };
    EXPECT_THROW(build_corpus(killed), Killed);
    EXPECT_TRUE(fs::exists(path("out.build/state.json")));
  };
  kill();
  CorpusOptions other = o;
  other.tokenizer.end_of_document = 256;
  EXPECT_TRUE(says(message_of<base::ConfigError>([&] { build_corpus(other); }),
                   {"out.build: holds an unfinished build with other options",
                    "vocab was 256, now 257", "--overwrite"}));
  input("a.txt", "ONE");
  fs::last_write_time(a, fs::file_time_type::clock::now() + std::chrono::hours(1));
  EXPECT_TRUE(says(message_of<base::IoError>([&] { build_corpus(o); }),
                   {"a.txt: was changed since this build read it"}));
  input("a.txt", "one");
  fs::last_write_time(a, fs::file_time_type::clock::now() + std::chrono::hours(1));
  EXPECT_EQ(build_corpus(o).resumed_shards, 1) << "touched, but the same bytes";
  kill();
  input("a.txt", "longer");
  EXPECT_TRUE(says(message_of<base::ConfigError>([&] { build_corpus(o); }), {"shards 0 was"}));
  o.start_over = true;
  EXPECT_EQ(build_corpus(o).resumed_shards, 0);
  EXPECT_TRUE(holds(all_tokens(*open_tokens(path("out"), {})),
                    {'l', 'o', 'n', 'g', 'e', 'r', 0, 't', 'w', 'o', 0}));
}

TEST_F(CorpusTest, prompts_are_masked) {
  CorpusOptions o = options({input("a.jsonl", R"({"p":"ab","c":"xyz"})"
                                              "\n"
                                              R"({"p":"","c":"q"})"
                                              "\n{\"p\":\"only\"}\n")});
  o.documents.prompt_field = "p";
  o.documents.completion_field = "c";
  EXPECT_TRUE(build_corpus(o).has_mask);
  const auto data = open_tokens(path("out"), {});
  EXPECT_TRUE(holds(all_tokens(*data), {'a', 'b', 'x', 'y', 'z', 0, 'q', 0}));
  const auto mask = open_mask(path("out"), *data);
  ASSERT_NE(mask, nullptr);
  EXPECT_TRUE(holds(all_tokens(*mask), {0, 0, 1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(all_starts(*mask), all_starts(*data));
  // A mask that does not belong to the data set is refused, and replaced by the next build.
  write("out.mask.bin", "123");
  EXPECT_THROW(open_mask(path("out"), *data), base::IoError);
  o.documents = {.text_field = "c"};
  build_corpus(o);
  EXPECT_EQ(open_mask(path("out"), *open_tokens(path("out"), {})), nullptr);
}

TEST_F(CorpusTest, each_worker_has_an_encoder_and_ids_are_checked) {
  CorpusOptions o = options({input("a.txt", "abc"), input("b.txt", "aXc")});
  int made = 0;
  o.workers = 2;
  o.tokenizer = {.make_encoder = [&]() -> Encoder {
                   ++made;
                   return [](std::string_view text, std::vector<int32_t>& out) {
                     for (const char c : text) out.push_back(c == 'X' ? 70001 : c * 700);
                   };
                 },
                 .vocab = 70000,
                 .fingerprint = "test",
                 .begin_of_document = 69998,
                 .end_of_document = 69999};
  const CorpusReport report = build_corpus(o);
  EXPECT_EQ(made, 2);
  EXPECT_EQ(report.type, TokenType::i32);
  EXPECT_TRUE(
      holds(all_tokens(*open_tokens(path("out"), {})), {69998, 67900, 68600, 69300, 69999}));
  EXPECT_TRUE(
      says(read("out.rejected.jsonl"), {"invalid_token", "token 2 of the document is 70001"}));
}

TEST_F(CorpusTest, files_of_tokens_are_copied_into_the_set) {
  const auto writer = write_tokens(path("in/t"), {.vocab = 500});
  for (const std::vector<int32_t>& document : std::vector<std::vector<int32_t>>{{1, 2}, {499}}) {
    writer->write(document);
    writer->end_document();
  }
  writer->finish();
  CorpusOptions o = options({path("in/t").string(), input("a.txt", "A")});
  o.tokenizer.vocab = 500;
  build_corpus(o);
  EXPECT_TRUE(holds(all_tokens(*open_tokens(path("out"), {})), {1, 2, 499, 'A', 0}));
  o.tokenizer.vocab = 300;
  build_corpus(o);
  EXPECT_TRUE(says(read("out.rejected.jsonl"), {"document 1", "is 499; allowed: 0 .. 299"}));
}

}  // namespace
}  // namespace trireme::data
