// SPDX-License-Identifier: Apache-2.0
#include "data/files/token_writer.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <csignal>

#include "base/error.h"
#include "data/files_test.h"
#include "data/yardsticks/synth.h"

namespace trireme::data {
namespace {

class TokenWriterTest : public FilesTest {};

void write_documents(TokenWriter& writer, const std::vector<std::vector<int32_t>>& documents) {
  for (const auto& document : documents) {
    writer.write(document);
    writer.end_document();
  }
  writer.finish();
}

TEST_F(TokenWriterTest, megatron_files_have_the_documented_bytes) {
  write_documents(*write_tokens(path("d"), {.vocab = 50257}), {{1, 2, 3}, {50256, 4}});
  EXPECT_EQ(read("d.bin"), raw_array<uint16_t>({1, 2, 3, 50256, 4}));
  EXPECT_EQ(read("d.idx"),
            from_hex("4d4d4944494458000001000000000000000802000000000000000300000000000000") +
                raw_array<int32_t>({3, 2}) + raw_array<int64_t>({0, 6}) +
                raw_array<int64_t>({0, 1, 2}));
  EXPECT_TRUE(holds(names(), {"d.bin", "d.idx"}));
}

TEST_F(TokenWriterTest, llmc_files_have_the_documented_bytes) {
  write_documents(*write_tokens(path("d.bin"), {.format = TokenFormat::llmc, .vocab = 50257}),
                  {{1, 50256}});
  std::string header = raw<int32_t>(20240520) + raw<int32_t>(1) + raw<int32_t>(2);
  header.resize(1024, '\0');
  EXPECT_EQ(read("d.bin"), header + raw_array<uint16_t>({1, 50256}));
  write_documents(*write_tokens(path("e"), {.format = TokenFormat::llmc, .vocab = 128256}),
                  {{128255}});
  header = raw<int32_t>(20240801) + raw<int32_t>(7) + raw<int32_t>(1);
  header.resize(1024, '\0');
  EXPECT_EQ(read("e.bin"), header + raw<uint32_t>(128255));
}

TEST_F(TokenWriterTest, what_was_written_is_read_back) {
  const std::vector<std::vector<int32_t>> documents = {{5}, {}, {70000, 2, 3}, {0, 0}};
  for (const int64_t longest : {int64_t{1}, int64_t{2}, int64_t{1000}}) {
    write_documents(*write_tokens(path("m"), {.vocab = 100000, .max_sequence_tokens = longest}),
                    documents);
    const auto data = open_tokens(path("m"), {});
    EXPECT_EQ(data->type(), TokenType::i32);
    EXPECT_TRUE(holds(all_tokens(*data), {5, 70000, 2, 3, 0, 0}));
    EXPECT_TRUE(holds(all_starts(*data), {0, 1, 1, 4, 6})) << longest;
  }
  write_documents(*write_tokens(path("l"), {.format = TokenFormat::llmc, .vocab = 100000}),
                  documents);
  EXPECT_TRUE(holds(all_tokens(*open_tokens(path("l.bin"), {})), {5, 70000, 2, 3, 0, 0}));
}

TEST_F(TokenWriterTest, many_documents_pass_through_every_buffer) {
  const auto writer = write_tokens(path("many"), {.vocab = 300});
  std::vector<int64_t> starts;
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < 20000; ++i) {
    starts.push_back(writer->tokens());
    const std::vector<int32_t> document(static_cast<size_t>(i % 60), i % 300);
    tokens.insert(tokens.end(), document.begin(), document.end());
    writer->write(document);
    writer->end_document();
  }
  starts.push_back(writer->tokens());
  writer->finish();
  const auto data = open_tokens(path("many"), {});
  EXPECT_EQ(all_tokens(*data), tokens);
  EXPECT_EQ(all_starts(*data), starts);
}

TEST_F(TokenWriterTest, nothing_stays_behind_without_finish) {
  {
    const auto writer = write_tokens(path("d"), {.vocab = 10});
    writer->write(std::vector<int32_t>{1, 2});
    EXPECT_TRUE(
        says(message_of<base::ConfigError>([&] { writer->write(std::vector<int32_t>{10}); }),
             {"token 10 (number 2 of document 0) is not below the vocabulary of 10"}));
  }
  EXPECT_TRUE(holds(names(), {}));
}

TEST_F(TokenWriterTest, places_that_cannot_be_written_are_refused) {
  EXPECT_TRUE(says(message_of<base::IoError>([&] { write_tokens(path("no/d"), {.vocab = 10}); }),
                   {"d.bin: cannot be written: No such file"}));
  std::filesystem::create_directory(path("f.idx"));
  EXPECT_TRUE(says(message_of<base::IoError>([&] { write_tokens(path("f"), {.vocab = 10}); }),
                   {"f.idx: cannot be written: it exists and is not a regular file"}));
  EXPECT_TRUE(holds(names(), {"f.idx"}));
  EXPECT_TRUE(says(message_of<base::ConfigError>([&] {
                     write_tokens(path("d"), {.format = TokenFormat::text, .vocab = 10});
                   }),
                   {"text is not written"}));
  EXPECT_TRUE(says(message_of<base::ConfigError>([&] { write_tokens(path("d"), {.vocab = 0}); }),
                   {"a vocabulary of 0"}));
}

// A limit on the size of files stands in for a full disk: both make write() fail half-way.
TEST_F(TokenWriterTest, a_full_disk_leaves_the_old_data_set_as_it_was) {
  write_documents(*write_tokens(path("d"), {.vocab = 10}), {{1, 2, 3}});
  const std::string bin = read("d.bin"), index = read("d.idx");
  rlimit old_limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old_limit), 0);
  auto* old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = old_limit;
  small.rlim_cur = 3 << 20;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string message = message_of<base::IoError>([&] {
    const auto writer = write_tokens(path("d"), {.vocab = 10});
    const std::vector<int32_t> tokens(1 << 20, 4);
    for (int i = 0; i < 4; ++i) writer->write(tokens);
    writer->finish();
  });
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &old_limit), 0);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_TRUE(says(message, {"d.bin: cannot be written: File too large"}));
  EXPECT_TRUE(holds(names(), {"d.bin", "d.idx"}));
  EXPECT_EQ(read("d.bin"), bin);
  EXPECT_EQ(read("d.idx"), index);
}

TEST_F(TokenWriterTest, synthetic_data_is_repeatable_and_states_its_entropy) {
  const SynthOptions options{
      .output = path("s"), .seed = 3, .vocab = 8, .documents = 5, .document_tokens = 100};
  const SynthReport report = synthesize(options);
  EXPECT_EQ(report.tokens, 500);
  EXPECT_GT(report.entropy_rate, 0.5);
  EXPECT_LT(report.entropy_rate, std::log(8.0));
  const std::string bytes = read("s.bin");
  EXPECT_EQ(open_tokens(path("s"), {})->documents().count(), 5);
  synthesize(options);
  EXPECT_EQ(read("s.bin"), bytes);
  SynthOptions bad = options;
  bad.vocab = 1000;
  bad.order = 3;
  EXPECT_TRUE(says(message_of<base::ConfigError>([&] { synthesize(bad); }), {"too many contexts"}));
}

}  // namespace
}  // namespace trireme::data
