// SPDX-License-Identifier: Apache-2.0
// The trainer makes the vocabulary and merges that Hugging Face `tokenizers` made of the same
// texts. The texts are those of make_tokenizer_goldens.py, generated again with Python's random
// numbers.
#include "text/train/train_bpe.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <bit>
#include <random>
#include <sstream>

#include "base/error.h"
#include "tests/golden/tokenizer_files.h"
#include "text/tokenizer.h"

namespace trireme::golden {
namespace {

// random.Random(seed) of Python, as far as the script uses it.
class PythonRandom {
 public:
  explicit PythonRandom(uint32_t seed) {
    // init_by_array of the Mersenne twister's authors, with one key.
    constexpr size_t size = 624;
    std::array<uint32_t, size> state{};
    state[0] = 19650218;
    for (uint32_t i = 1; i < size; ++i) {
      state[i] = 1812433253U * (state[i - 1] ^ state[i - 1] >> 30U) + i;
    }
    size_t i = 1;
    const auto advance = [&] {
      if (++i < size) return;
      state[0] = state[size - 1];
      i = 1;
    };
    for (size_t k = 0; k < size; ++k) {
      state[i] = (state[i] ^ (state[i - 1] ^ state[i - 1] >> 30U) * 1664525U) + seed;
      advance();
    }
    for (size_t k = 0; k < size - 1; ++k) {
      state[i] = (state[i] ^ (state[i - 1] ^ state[i - 1] >> 30U) * 1566083941U) -
                 static_cast<uint32_t>(i);
      advance();
    }
    state[0] = 0x80000000U;
    std::stringstream text;
    for (const uint32_t word : state) text << word << ' ';
    text << size;
    text >> twister_;
  }
  double real() {
    const uint32_t a = next() >> 5U, b = next() >> 6U;
    return (a * 67108864.0 + b) / 9007199254740992.0;
  }
  uint32_t below(uint32_t count) {
    const int bits = std::bit_width(count);
    uint32_t value = next() >> (32 - bits);
    while (value >= count) value = next() >> (32 - bits);
    return value;
  }
  template <typename List>
  const auto& choice(const List& list) {
    return list[below(static_cast<uint32_t>(list.size()))];
  }

 private:
  uint32_t next() { return static_cast<uint32_t>(twister_()); }

  std::mt19937 twister_;
};

std::vector<std::string> training_texts() {
  const auto words = tokenizer_json("words.json").get<std::vector<std::string>>();
  const std::vector<std::string> spaces = {" ", " ", " ", "", "  ", "\n", "   ", "\t"};
  PythonRandom random(7);
  std::vector<std::string> texts(4000);
  for (std::string& text : texts) {
    for (uint32_t n = 1 + random.below(29); n > 0; --n) {
      if (random.real() < .7) {
        text += random.choice(words);
      } else {
        for (uint32_t k = 1 + random.below(8); k > 0; --k) {
          text += static_cast<char>('a' + random.below(26));
        }
      }
      text += random.choice(spaces);
    }
  }
  return texts;
}

TEST(TrainBpe, vocabulary_and_merges_are_equal) {
  if (!has_text_libraries()) GTEST_SKIP() << "this build is without PCRE2 or utf8proc";
  const auto texts = training_texts();
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  struct Case {
    const char* name;
    text::TrainBpeOptions options;
  };
  const std::vector<Case> cases = {
      {"gpt2", {.special_tokens = {"<|endoftext|>"}, .pattern = text::KnownPattern::gpt2}},
      {"llama3",
       {.special_tokens = {"<|begin_of_text|>", "<|endoftext|>"},
        .pattern = text::KnownPattern::llama3}},
      {"qwen2",
       {.special_tokens = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"},
        .pattern = text::KnownPattern::qwen2,
        .nfc = true}}};
  for (Case each : cases) {
    each.options.vocab_size = 1500;
    each.options.min_frequency = 0;
    const auto made = nlohmann::json::parse(text::train_bpe(views, each.options));
    const auto golden = tokenizer_json(each.name + std::string(".tokenizer.json"));
    EXPECT_TRUE(made["model"]["merges"] == golden["model"]["merges"]) << each.name;
    EXPECT_TRUE(made["model"]["vocab"] == golden["model"]["vocab"]) << each.name;
  }
}

TEST(TrainBpe, written_file_opens_and_round_trips) {
  const auto folder =
      std::filesystem::temp_directory_path() / ("trireme_train_bpe_" + std::to_string(::getpid()));
  std::filesystem::create_directory(folder);
  const std::vector<std::string_view> texts = {"low lower lowest", "new newer newest", "low low"};
  for (const auto pattern : {text::KnownPattern::gpt2, text::KnownPattern::llama3}) {
    const std::string content = text::train_bpe(
        texts, {.vocab_size = 280, .special_tokens = {"<|end|>"}, .pattern = pattern});
    text::write_tokenizer(folder / "tokenizer.json", content);
    const auto tokenizer = text::open_tokenizer(folder);
    EXPECT_EQ(tokenizer->id_of("<|end|>"), 0);
    const auto ids = tokenizer->encode("the lowest<|end|>\xFF");
    EXPECT_NE(std::find(ids.begin(), ids.end(), 0), ids.end());
    EXPECT_EQ(tokenizer->decode(ids, {.skip_special = false}), "the lowest<|end|>\uFFFD");
    EXPECT_LT(tokenizer->encode("low").size(), 3U);
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
  }
  std::filesystem::remove_all(folder);
}

TEST(TrainBpe, options_without_room_are_refused) {
  EXPECT_THROW(text::BpeTrainer({.vocab_size = 255}), base::ConfigError);
  EXPECT_THROW(text::BpeTrainer({.vocab_size = 256, .special_tokens = {"<s>"}}), base::ConfigError);
  EXPECT_THROW(text::BpeTrainer({.vocab_size = 300, .special_tokens = {"<s>", "<s>"}}),
               base::ConfigError);
  EXPECT_THROW(text::BpeTrainer({.vocab_size = 300, .special_tokens = {"a"}}), base::ConfigError);
  EXPECT_THROW(text::write_tokenizer("/nonexistent/tokenizer.json", "{}"), base::IoError);
}

}  // namespace
}  // namespace trireme::golden
