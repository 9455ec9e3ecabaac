// SPDX-License-Identifier: Apache-2.0
// --json: every verb prints exactly one JSON object on stdout, whether it succeeds or not, and `ok`
// agrees with the exit code. The list of verbs comes from the program, so a new verb fails here
// until it has a good and a bad call below.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/text/json.h"
#include "tests/cli/program.h"

namespace trireme::tests {
namespace {

struct VerbCalls {
  std::string verb;
  std::string good;  // after the verb; "-": CalibrateTest has one, or there is none without a GPU
  std::string bad;
};

// In the order in which they run: later calls use the files of earlier ones.
const std::vector<VerbCalls>& all_calls() {
  static const std::vector<VerbCalls> calls = {
      {"train", "tiny_run.toml --checkpoint.interval=2 --checkpoint.keep_latest_k=0", "gone.toml"},
      {"launch", "-n 2 tiny_run.toml --job.dump_folder=two --training.global_batch_size=4",
       "-n 0 tiny_run.toml"},
      {"init", "--data text.txt --gpus 0", "--data text.txt --gpus 0"},
      {"convert-config",
       "--from-megatron '--num-layers 2 --hidden-size 16 --ffn-hidden-size 32 --swiglu "
       "--num-attention-heads 2 --normalization RMSNorm --disable-bias-linear "
       "--position-embedding-type rope --seq-length 16 --vocab-size 256 --micro-batch-size 1 "
       "--global-batch-size 2 --lr 1e-3 --train-iters 4'",
       "--from-torchtitan gone.toml"},
      {"verify", "tiny_run.toml", "tiny_run.toml --deadline abc"},
      {"chaos",
       "tiny_run.toml -n 1 --kills 1 --kinds pause --steps 300 --folder chaos "
       "--elastic.detect_s=0.5",
       "tiny_run.toml --kills 0"},
      {"eval", "--weights run/weights/final --data text.txt", "--weights gone --data text.txt"},
      {"generate", "run/weights/final --tokens 3", "gone"},
      {"data build", "text.txt --output d", "text.txt --output d"},
      {"data convert", "d --output c --format llmc", "gone --output c"},
      {"data inspect", "d --show 1", "gone"},
      {"data synth", "--output markov --documents 2 --tokens 100", "--output markov --vocab 1"},
      {"data ngram", "d --context 1", "d --context 9"},
      {"data clean", "text.txt --output clean.jsonl", "text.txt --output clean.jsonl"},
      {"data tokenizer train", "text.txt --output t --vocab 300",
       "gone.txt --output u --vocab 300"},
      {"data tokenizer inspect", "t", "gone"},
      {"data tokenizer encode", "t 'some text'", "gone x"},
      {"data tokenizer decode", "t 1 2", "t 999"},
      {"ckpt list", "run", "gone"},
      {"ckpt inspect", "run", "run --step 3"},
      {"ckpt verify", "run", "gone"},
      {"ckpt mark", "run 2 good --why evaluated", "run 3 good --why evaluated"},
      {"ckpt diff", "run/checkpoint/step-00000004 run/checkpoint/step-00000004", "run gone"},
      {"ckpt reshard", "run --into resharded --parallelism.tensor_parallel_degree=2",
       "run --into run"},
      {"ckpt export", "run --out exported", "gone --out exported"},
      {"ckpt import", "exported --into imported", "gone --into imported"},
      {"diagnose", "run", "gone"},
      {"runs", "run --group", "gone"},
      {"watch", "run", "run --columns 7"},
      {"board", "run --seconds 0.1", "gone"},
      {"report", "run --out report.html", "gone --out report.html"},
      {"bench train", "--model tiny.toml --micro-batch 1 --seq 8 --steps 1", "--steps 0"},
      {"bench gpu", "-", "--gpu -1"},
      {"bench attention", "--cp 2 --seq 64 --heads 2 --kv-heads 1 --head-dim 16 --device cpu",
       "--cp 3 --seq 64 --device cpu"},
      {"calibrate", "-", "--like h200 --device cpu"},
      {"plan", "--model tiny.toml --machine cpu --gpus 2 --batch 4 --seq-len 16", "--model gone"},
      {"schedule", "1f1b --stages 2 --microbatches 4", "1f1b --stages 0 --microbatches 4"},
      {"sim", "tiny_run.toml --tflops 1", "tiny_run.toml"},
      {"doctor", "", "--sort"},
      {"version", "", "--short"},
      {"help", "data build", "data bild"},
      {"completion", "bash", "fish"},
      {"man", "", "2"},
  };
  return calls;
}

// Returns the names after "verbs are" in the error message for an unknown verb.
std::set<std::string> verbs_of_program(const Scratch& s) {
  const Outcome outcome = trireme(s, {"nonsense", "--json"});
  const base::Json answer = only_object(outcome.out);
  const std::string text = answer.at("error").get<std::string>(), mark = "verbs are ";
  std::set<std::string> names;
  for (size_t at = text.find(mark) + mark.size(); at < text.size();) {
    const size_t end = std::min(text.find(", ", at), text.size());
    names.insert(text.substr(at, end - at));
    at = end + 2;
  }
  return names;
}

void expect_one_object(const Scratch& s, const std::string& command, bool is_good) {
  std::vector<std::string> words = words_of(command);
  words.emplace_back("--json");
  const Outcome outcome = trireme(s, words);
  const base::Json answer = only_object(outcome.out);
  ASSERT_TRUE(answer.is_object()) << command << "\n" << outcome.out << outcome.err;
  ASSERT_TRUE(answer.contains("ok")) << command << "\n" << outcome.out;
  EXPECT_EQ(answer.at("ok").get<bool>(), outcome.exit_code == 0) << command << outcome.out;
  EXPECT_EQ(outcome.exit_code == 0, is_good) << command << "\n" << outcome.err;
  if (is_good) return;
  EXPECT_TRUE(answer.contains("error")) << command << "\n" << outcome.out;
}

// A build without the pages of the board refuses its verbs and names the package.
bool has_pages(const Scratch& s) {
  return trireme(s, {"report", "gone", "--out", "x"}).err.find("libjs-dygraphs") ==
         std::string::npos;
}

TEST(JsonTest, every_verb_prints_one_object_for_good_and_bad_calls) {
  const Scratch s;
  write_tiny(s);
  std::set<std::string> verbs;
  std::set<std::string> absent;  // verbs that this build refuses
  if (!has_pages(s)) absent = {"board", "report"};
  if (!trireme_json(s, {"version"})["gloo"].get<bool>()) absent.insert("launch");
  for (const VerbCalls& calls : all_calls()) {
    verbs.insert(calls.verb);
    if (calls.good != "-" && !absent.contains(calls.verb)) {
      expect_one_object(s, calls.verb + " " + calls.good, true);
    }
    expect_one_object(s, calls.verb + " " + calls.bad, false);
  }
  EXPECT_EQ(verbs, verbs_of_program(s)) << "a verb has no call above";
}

TEST(JsonTest, the_list_of_keys_is_an_object_too) {
  const Scratch s;
  const base::Json answer = trireme_json(s, {"train", "--keys"});
  std::map<std::string, base::Json> keys;
  for (const base::Json& key : answer.at("keys")) keys[key.at("key")] = key;
  ASSERT_TRUE(keys.contains("optimizer.lr"));
  EXPECT_EQ(keys["optimizer.lr"]["type"], "number");
  EXPECT_TRUE(keys["optimizer.lr"]["default"].is_number());
  EXPECT_TRUE(keys["system.device"]["allowed"].get<std::string>().find("cuda") !=
              std::string::npos);
  EXPECT_GT(keys.size(), 50U);
}

}  // namespace
}  // namespace trireme::tests
