// SPDX-License-Identifier: Apache-2.0
// `trireme generate` with several prompts, stop texts, files and tokenizers, and `trireme eval` on
// text and tasks.
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "tests/cli/program.h"

namespace trireme::tests {
namespace {

using Words = std::vector<std::string>;
namespace fs = std::filesystem;

base::Json call(const Scratch& s, const Words& first, const Words& more) {
  Words words = first;
  words.insert(words.end(), more.begin(), more.end());
  return trireme_json(s, words);
}

// A byte model after some steps.
struct ByteModel {
  explicit ByteModel(const std::string& steps = "4") {
    write_tiny(s);
    EXPECT_EQ(trireme(s, {"train", "tiny_run.toml", "--training.steps=" + steps}).exit_code, 0);
  }
  base::Json generate(const Words& words) const { return call(s, {"generate", "run"}, words); }
  Scratch s;
};

TEST(GenerateTest, tokens_do_not_depend_on_the_batch_or_the_order) {
  const ByteModel model;
  model.s.write("prompts.txt", "one\ntwo bottles\n\nthree\n");
  const base::Json alone = model.generate({"--prompt", "two bottles", "--tokens", "30"});
  EXPECT_EQ(alone.at("results").size(), 1U);
  for (const std::string batch : {"1", "2", "8"}) {
    const base::Json all = model.generate(
        {"--prompts", "prompts.txt", "--tokens", "30", "--batch", batch, "--prompt", "zero"});
    ASSERT_EQ(all.at("results").size(), 4U);
    EXPECT_EQ(all.at("results")[0].at("prompt"), "zero");
    EXPECT_EQ(all.at("results")[2].at("tokens"), alone.at("tokens")) << batch;
    EXPECT_EQ(all.at("results")[2].at("text"), alone.at("text")) << batch;
  }
}

TEST(GenerateTest, samples_of_a_prompt_differ) {
  const ByteModel model;
  const base::Json out = model.generate(
      {"--prompt", "a", "--prompt", "b", "--samples", "3", "--tokens", "12", "--temperature", "2"});
  ASSERT_EQ(out.at("results").size(), 6U);
  const base::Json& results = out.at("results");
  EXPECT_NE(results[0].at("tokens"), results[1].at("tokens"));
  EXPECT_EQ(results[2].at("sample"), 2);
  EXPECT_EQ(results[3].at("prompt"), "b");
  // Greedy ones are equal.
  const base::Json greedy =
      model.generate({"--prompt", "a", "--samples", "2", "--tokens", "12", "--temperature", "0"});
  EXPECT_EQ(greedy.at("results")[0].at("tokens"), greedy.at("results")[1].at("tokens"));
}

TEST(GenerateTest, a_stop_text_ends_a_continuation_and_is_not_part_of_it) {
  const ByteModel model("100");  // its text is ASCII
  const Words words = {"--prompt", "9 bottles", "--tokens", "60", "--temperature", "0.3"};
  const base::Json whole = call(model.s, {"generate", "run"}, words);
  const std::string text = whole.at("text").get<std::string>();
  EXPECT_EQ(whole.at("results")[0].at("end"), "length");
  ASSERT_GE(text.size(), 30U);
  const std::string stop = text.substr(20, 3);
  Words with_stop = words;
  with_stop.insert(with_stop.end(), {"--stop", "never in this text", "--stop", stop});
  const base::Json cut = model.generate(with_stop);
  EXPECT_EQ(cut.at("text"), text.substr(0, text.find(stop)));
  EXPECT_EQ(cut.at("results")[0].at("end"), "stop");
  // On a terminal, too: prompt and text, nothing after it.
  Words printed = {"generate", "run"};
  printed.insert(printed.end(), with_stop.begin(), with_stop.end());
  EXPECT_EQ(trireme(model.s, printed).out, "9 bottles" + text.substr(0, text.find(stop)) + "\n");
}

TEST(GenerateTest, results_go_to_a_file_that_appears_complete) {
  const ByteModel model;
  model.s.write("in.jsonl", "{\"prompt\": \"one\"}\n{\"prompt_ids\": [65, 66]}\n");
  const Outcome outcome = trireme(model.s, {"generate", "run", "--prompts", "in.jsonl", "--tokens",
                                            "5", "--output", "out.jsonl"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  std::istringstream lines(model.s.read("out.jsonl"));
  std::vector<base::Json> results;
  for (std::string line; std::getline(lines, line);) results.push_back(base::Json::parse(line));
  ASSERT_EQ(results.size(), 2U);
  EXPECT_EQ(results[0].at("prompt"), "one");
  EXPECT_EQ(results[1].at("prompt_tokens"), (std::vector<int>{65, 66}));
  EXPECT_EQ(results[1].at("tokens").size(), 5U);
  EXPECT_FALSE(model.s.has("out.jsonl.tmp"));
}

TEST(GenerateTest, longer_texts_than_the_context_are_continued) {
  const ByteModel model;
  const base::Json out =
      model.generate({"--prompt", "9 bottles of beer on the wall", "--seq", "8", "--tokens", "40"});
  EXPECT_EQ(out.at("tokens").size(), 40U);
  EXPECT_GT(out.at("speed").at("full_contexts"), 5);
  const base::Json again = model.generate({"--prompt", "9 bottles of beer on the wall", "--seq",
                                           "8", "--tokens", "40", "--batch", "4"});
  EXPECT_EQ(out.at("tokens"), again.at("tokens"));
}

TEST(GenerateTest, bad_input_is_refused_with_its_place) {
  const ByteModel model;
  const Scratch& s = model.s;
  s.write("bad.jsonl", "{\"prompt\": \"one\"}\n{\"prompt\": 3}\n");
  s.write("empty.txt", "\n\n");
  s.write("tasks.jsonl", "{\"ctx\": \"a\", \"endings\": [\"b\", \"c\"], \"label\": 5}\n");
  s.write("good.jsonl", "{\"ctx\": \"a\", \"endings\": [\"b\", \"c\"], \"label\": 1}\n");
  const std::string gpt2 = TRIREME_SOURCE_DIR "/tests/golden/tokenizers/gpt2.tokenizer.json";
  struct Case {
    Words words;
    int exit_code;
    const char* part;
  };
  for (const Case& c : std::vector<Case>{
           {{"generate", "run", "--prompts", "bad.jsonl"}, 2, "bad.jsonl:2: \"prompt\" is not a"},
           {{"generate", "run", "--prompts", "empty.txt"}, 2, "the file has no prompt"},
           {{"generate", "run", "--prompts", "none.txt"}, 1, "none.txt"},
           {{"generate", "run", "--prompt", ""}, 2, "at least one token is needed"},
           {{"generate", "run", "--prompt-ids", "1,x"}, 2, "'x' is not a token id"},
           {{"generate", "run", "--prompt-ids", "999"}, 2, "token 999 is not below the vocabulary"},
           {{"generate", "run", "--stop", ""}, 2, "at least one character"},
           {{"generate", "run", "--tokens", "-1"}, 2, "--tokens -1: 0 or above"},
           {{"generate", "run", "--batch", "0"}, 2, "--batch 0: 1 or above"},
           {{"generate", "run", "--samples", "0"}, 2, "--samples 0: 1 or above"},
           {{"generate", "run", "--top-p", "0"}, 2, "top_p = 0: above 0"},
           {{"generate", "run", "--seq", "100000"}, 2, "the model's max_seq of"},
           {{"generate", "run", "--output", "none/out.jsonl"}, 1, "none/out.jsonl: cannot be"},
           {{"generate", "run", "--tokenizer", gpt2}, 2, "a tokenizer of 1500 tokens, but"},
           {{"eval", "run", "--tasks", "tasks.jsonl"}, 2, "tasks.jsonl:1: \"label\" is 5"},
           {{"eval", "run", "--tasks", "good.jsonl", "--data", "text.txt"}, 2, "use one of them"},
           {{"eval", "run", "--data", "text.txt", "--per-item", "x"}, 2, "--per-item needs"},
           {{"eval", "run", "--tasks", "empty.txt"}, 2, "the file has no question"}}) {
    const Outcome outcome = trireme(s, c.words);
    EXPECT_EQ(outcome.exit_code, c.exit_code) << outcome.err;
    EXPECT_NE(outcome.err.find(c.part), std::string::npos) << c.part << "\n" << outcome.err;
    EXPECT_EQ(outcome.out, "") << c.part;
  }
}

TEST(EvalTest, tasks_are_scored_and_written_by_item) {
  const ByteModel model;
  const Scratch& s = model.s;
  s.write("tasks.jsonl",
          "{\"ctx\": \"9 bottles\", \"endings\": [\"of beer\", \"xqzjw\"], \"label\": 0}\n"
          "{\"context\": \"no \", \"choices\": [\"a\", \"b\", \"c\"], \"gold\": \"2\"}\n");
  const base::Json out =
      trireme_json(s, {"eval", "run", "--tasks", "tasks.jsonl", "--per-item", "items.jsonl"});
  EXPECT_EQ(out.at("items"), 2);
  std::istringstream lines(s.read("items.jsonl"));
  int right = 0, items = 0;
  double bits = 0;
  for (std::string line; std::getline(lines, line); ++items) {
    const base::Json item = base::Json::parse(line);
    const auto& sums = item.at("log_likelihoods");
    ASSERT_EQ(sums.size(), item.at("choices").size());
    size_t best = 0;
    for (size_t i = 0; i < sums.size(); ++i) {
      EXPECT_LT(sums[i], 0);
      if (sums[i] > sums[best]) best = i;
    }
    EXPECT_EQ(item.at("answer"), best);
    right += item.at("is_right").get<bool>() ? 1 : 0;
    bits -= sums[item.at("label").get<size_t>()].get<double>() / std::log(2.0);
  }
  EXPECT_EQ(items, 2);
  EXPECT_EQ(out.at("acc"), right / 2.0);
  EXPECT_NEAR(out.at("bits_per_byte").get<double>(), bits / 8, 1e-9);
  // One at a time gives the same sums: requests do not see each other.
  const base::Json first = trireme_json(s, {"eval", "run", "--tasks", "tasks.jsonl", "--limit", "1",
                                            "--per-item", "one.jsonl", "--batch", "1"});
  EXPECT_EQ(first.at("items"), 1);
  const auto sums_of = [&s](const char* file) {
    return base::Json::parse(s.read(file).substr(0, s.read(file).find('\n')))
        .at("log_likelihoods")[0]
        .get<double>();
  };
  EXPECT_NEAR(sums_of("one.jsonl"), sums_of("items.jsonl"), 1e-4);
}

TEST(EvalTest, the_loss_of_bytes_is_printed_in_bits_per_byte) {
  const ByteModel model;
  const base::Json out = trireme_json(model.s, {"eval", "run", "--data", "text.txt"});
  EXPECT_EQ(out.at("bytes"), out.at("tokens"));
  EXPECT_NEAR(out.at("bits_per_byte").get<double>(), out.at("loss").get<double>() / std::log(2.0),
              1e-9);
  // The same text as JSON lines is one document.
  model.s.write("text.jsonl", base::Json{{"text", model.s.read("text.txt")}}.dump() + "\n");
  const base::Json lines = trireme_json(model.s, {"eval", "run", "--data", "text.jsonl"});
  EXPECT_EQ(lines.at("loss_sum"), out.at("loss_sum"));
  EXPECT_EQ(lines.at("bytes"), out.at("bytes"));
  // The run's held-out data, as its own validation.
  const std::vector<std::string> with_validation = {"train", "tiny_run.toml", "--overwrite",
                                                    "--validation.enable=true",
                                                    "--validation.split=0.1"};
  ASSERT_EQ(trireme(model.s, with_validation).exit_code, 0);
  const base::Json held_out = trireme_json(model.s, {"eval", "run"});
  EXPECT_EQ(held_out.at("bytes"), held_out.at("tokens"));
  EXPECT_NEAR(held_out.at("bits_per_byte").get<double>(),
              held_out.at("loss").get<double>() / std::log(2.0), 1e-9);
}

// A model of 1600 tokens with the tokenizer of 1500 in each place where it is looked for.
TEST(GenerateTest, text_goes_through_the_tokenizer_that_lies_with_the_weights) {
  const Scratch s;
  write_tiny(s);
  s.write("tiny.toml", replaced(s.read("tiny.toml"), "vocab = 256", "vocab = 1600"));
  ASSERT_EQ(trireme(s, {"train", "tiny_run.toml"}).exit_code, 0);
  const fs::path gpt2 =
      fs::path(TRIREME_SOURCE_DIR) / "tests/golden/tokenizers/gpt2.tokenizer.json";
  const Words words = {"generate", "run", "--prompt", "Hello world",
                       "--tokens", "6",   "--seed",   "2"};
  const Outcome without = trireme(s, words);
  EXPECT_EQ(without.exit_code, 2);
  EXPECT_NE(without.err.find("give --tokenizer PATH"), std::string::npos) << without.err;
  const Outcome probe = trireme(
      s, {"generate", "run", "--prompt", "a", "--tokens", "1", "--tokenizer", gpt2.string()});
  if (probe.err.find("PCRE2") != std::string::npos) GTEST_SKIP() << "no PCRE2";

  const base::Json named = call(s, words, {"--tokenizer", gpt2.string()});
  EXPECT_EQ(named.at("tokens").size(), 6U);
  EXPECT_LT(named.at("results")[0].at("prompt_tokens").size(), 11U);
  fs::create_directory(s.at("run/tokenizer"));
  fs::copy_file(gpt2, s.at("run/tokenizer/tokenizer.json"));
  EXPECT_EQ(call(s, words, {}).at("text"), named.at("text"));
  fs::rename(s.at("run/tokenizer/tokenizer.json"), s.at("run/weights/final/tokenizer.json"));
  EXPECT_EQ(call(s, words, {}).at("text"), named.at("text"));

  // eval encodes text, and knows its bytes.
  s.write("hello.txt", "Hello world, hello words.\nMore words of this text.\n");
  const base::Json loss = trireme_json(s, {"eval", "run", "--data", "hello.txt"});
  EXPECT_LT(loss.at("tokens"), 40);
  EXPECT_GT(loss.at("bytes"), loss.at("tokens"));
  EXPECT_NEAR(loss.at("bits_per_byte").get<double>(),
              loss.at("loss_sum").get<double>() / std::log(2.0) / loss.at("bytes").get<double>(),
              1e-9);
}

}  // namespace
}  // namespace trireme::tests
