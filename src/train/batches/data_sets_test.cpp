// SPDX-License-Identifier: Apache-2.0
#include "train/batches/data_sets.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/text/json.h"
#include "data/files/token_writer.h"
#include "data/samples/batch.h"
#include "train/batches/run_tokenizer.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;

// Three texts, each of one letter, so that a token names its data set.
class DataSetsTest : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(folder_);
    for (const char letter : {'a', 'b', 'c'}) {
      std::ofstream(folder_ / (std::string(1, letter) + ".txt")) << std::string(4000, letter);
    }
    config_.training.seq_len = 8;
    config_.training.global_batch_size = config_.training.local_batch_size = 4;
    config_.training.steps = 30;
    for (const char letter : {'a', 'b', 'c'}) {
      const std::string name(1, letter);
      config_.training.dataset.push_back(
          {.name = name, .path = (folder_ / (name + ".txt")).string()});
    }
  }
  void TearDown() override { fs::remove_all(folder_); }

  static char letter_of(const DataSets& data, int64_t seq_len, int64_t sample) {
    data::Batch batch;
    data::fill_batch(data.train(seq_len), std::vector<int64_t>{sample}, batch);
    return static_cast<char>(batch.tokens.front());
  }

  const fs::path folder_ =
      fs::temp_directory_path() / ("trireme_data_sets_test_" + std::to_string(::getpid()));
  config::Config config_;
};

TEST_F(DataSetsTest, samples_come_from_the_data_sets_by_weight) {
  config_.training.dataset[0].weight = 2;
  config_.training.dataset[2].weight = 0;
  const DataSets data(config_, 256);
  int64_t a = 0;
  for (int64_t i = 0; i < 120; ++i) {
    const char letter = letter_of(data, 8, i);
    EXPECT_EQ(letter, "abc"[data.source_of(i)]);
    a += letter == 'a' ? 1 : 0;
    EXPECT_NE(letter, 'c');
    EXPECT_LE(std::abs(3 * a - 2 * (i + 1)), 3) << i;
  }
}

TEST_F(DataSetsTest, phases_switch_at_the_exact_sample_and_make_legs) {
  config_.training.dataset[1].weight = config_.training.dataset[2].weight = 0;
  config_.phase = {{.name = "b", .from_step = 11, .weights = {{"b", 1}}},
                   {.name = "c",
                    .from_step = 21,
                    .seq_len = 16,
                    .global_batch_size = 2,
                    .local_batch_size = 2,
                    .weights = {{"c", 1}}}};
  const DataSets data(config_, 256);
  for (int64_t i = 0; i < 40; ++i) EXPECT_EQ(letter_of(data, 8, i), 'a');
  for (int64_t i = 40; i < 80; ++i) EXPECT_EQ(letter_of(data, 8, i), 'b');
  for (int64_t i = 80; i < 100; ++i) EXPECT_EQ(letter_of(data, 16, i), 'c');
  ASSERT_EQ(data.legs().size(), 2U);
  EXPECT_EQ(data.legs()[0].last_step, 20);
  EXPECT_EQ(data.legs()[1].first_step, 21);
  EXPECT_EQ(data.legs()[1].shift, 80 - 20 * 2);
  EXPECT_EQ(data.samples_until(20), 80);
  EXPECT_EQ(data.samples_until(21), 82);
  EXPECT_EQ(data.samples_until(40), 80 + 20 * 2);  // after the run's end
  EXPECT_EQ(data.tokens_until(21), 80 * 8 + 2 * 16);
  EXPECT_EQ(&data.leg_at(20), data.legs().data());
  EXPECT_EQ(&data.leg_at(99), &data.legs()[1]);
}

TEST_F(DataSetsTest, a_later_phase_does_not_change_the_identity_of_earlier_steps) {
  const DataSets before(config_, 256);
  const base::Json contents = before.contents();
  config_.phase = {{.name = "later", .from_step = 11, .weights = {{"b", 1}}}};
  const DataSets after(config_, 256);
  EXPECT_EQ(before.identity(contents, 10), after.identity(contents, 10));
  EXPECT_NE(before.identity(contents, 11), after.identity(contents, 11));
}

TEST_F(DataSetsTest, one_data_set_has_the_identity_of_earlier_versions) {
  config_.training.dataset.clear();
  config_.training.dataset_path = (folder_ / "a.txt").string();
  config_.validation.enable = true;
  const DataSets data(config_, 256);
  const base::Json json = data.identity(data.contents(), 30);
  std::vector<std::string> keys;
  for (const auto& [key, value] : json.items()) keys.push_back(key);
  EXPECT_EQ(keys, (std::vector<std::string>{"training", "training_samples", "held_out_fraction",
                                            "document_mask", "seed", "seq_len", "validation",
                                            "validation_samples"}));
  EXPECT_TRUE(json["training"].is_object());
  EXPECT_TRUE(json["validation"].is_null());
  EXPECT_TRUE(data.is_one_stream());
}

TEST_F(DataSetsTest, every_data_set_holds_out_a_part_or_validation_sets_are_given) {
  config_.validation.enable = true;
  const DataSets held_out(config_, 256);
  ASSERT_EQ(held_out.validations(), 3U);
  EXPECT_EQ(held_out.validation_name(1), "b");
  data::Batch batch;
  data::fill_batch(held_out.validation(1, 8), std::vector<int64_t>{0}, batch);
  EXPECT_EQ(batch.tokens.front(), 'b');
  config_.validation.dataset = {{.name = "other", .path = (folder_ / "c.txt").string()}};
  const DataSets given(config_, 256);
  ASSERT_EQ(given.validations(), 1U);
  data::fill_batch(given.validation(0, 8), std::vector<int64_t>{0}, batch);
  EXPECT_EQ(batch.tokens.front(), 'c');
}

TEST_F(DataSetsTest, bytes_of_text_are_known_and_data_of_other_tokenizers_is_refused) {
  config_.training.dataset.resize(2);
  DataSets data(config_, 256);
  const RunTokenizer bytes = open_run_tokenizer(config_, data, 256);
  ASSERT_EQ(bytes.token_bytes().size(), 256U);
  EXPECT_EQ(bytes.token_bytes()[65], 1);
  EXPECT_EQ(bytes.fingerprint(), "");
  const auto writer = data::write_tokens(folder_ / "tokens", {.vocab = 300});
  writer->write(std::vector<int32_t>(500, 7));
  writer->finish();
  std::ofstream(folder_ / "tokens.manifest.json")
      << R"({"trireme_data": 1, "options": {"tokenizer": "abc"}})";
  config_.training.dataset.push_back({.name = "tokens", .path = (folder_ / "tokens").string()});
  const DataSets mixed(config_, 300);
  try {
    (void)open_run_tokenizer(config_, mixed, 300);
    FAIL();
  } catch (const base::ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("one model cannot learn both"), std::string::npos);
  }
}

}  // namespace
}  // namespace trireme::train
