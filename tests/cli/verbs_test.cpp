// SPDX-License-Identifier: Apache-2.0
// The other verbs, and properties of all verbs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/text/json.h"
#include "tests/cli/program.h"

namespace trireme::tests {
namespace {

// Writes weights to run/weights/final.
void train_tiny(const Scratch& s, std::vector<std::string> overrides = {}) {
  write_tiny(s);
  overrides.insert(overrides.begin(), {"train", "tiny_run.toml"});
  const Outcome outcome = trireme(s, overrides);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
}

const std::string weights = "run/weights/final";

TEST(VerbsTest, every_verb_has_help_with_examples) {
  const Scratch s;
  const Outcome all = trireme(s, {"--help"});
  EXPECT_EQ(all.exit_code, 0);
  for (const char* verb : {"init",
                           "convert-config",
                           "train",
                           "eval",
                           "generate",
                           "data build",
                           "data convert",
                           "data tokenizer train",
                           "data tokenizer inspect",
                           "data tokenizer encode",
                           "data tokenizer decode",
                           "data inspect",
                           "data synth",
                           "data ngram",
                           "data clean",
                           "ckpt list",
                           "ckpt inspect",
                           "ckpt verify",
                           "ckpt diff",
                           "ckpt reshard",
                           "ckpt export",
                           "ckpt import",
                           "bench train",
                           "bench gpu",
                           "bench attention",
                           "calibrate",
                           "schedule",
                           "sim",
                           "doctor",
                           "version",
                           "help",
                           "completion",
                           "man"}) {
    std::vector<std::string> args = words_of(verb);
    EXPECT_NE(all.out.find("\n  " + args.front()), std::string::npos) << verb << "\n" << all.out;
    args.emplace_back("--help");
    const Outcome outcome = trireme(s, args);
    EXPECT_EQ(outcome.exit_code, 0) << verb;
    EXPECT_EQ(outcome.err, "") << verb;
    const size_t examples = outcome.out.find("Examples:\n  trireme " + std::string(verb));
    EXPECT_NE(examples, std::string::npos) << outcome.out;
    EXPECT_NE(outcome.out.find("--json"), std::string::npos) << outcome.out;
  }
}

TEST(VerbsTest, json_is_one_object_for_every_verb) {
  const Scratch s;
  write_tiny(s);
  // trireme_json fails if stdout holds anything else.
  trireme_json(s, {"train", "tiny_run.toml", "--curve"});
  const base::Json loss = trireme_json(s, {"eval", "--weights", weights, "--data", "text.txt"});
  EXPECT_EQ(loss["tokens"], static_cast<int64_t>(s.read("text.txt").size()) - 1);
  const base::Json text =
      trireme_json(s, {"generate", weights, "--prompt", "9 bottles", "--tokens", "5"});
  EXPECT_EQ(text["tokens"].size(), 5U);
  EXPECT_TRUE(text["text"].is_string());
  EXPECT_GT(trireme_json(s, {"doctor"})["cores"], 0);
  // --by-row: the old name of --by-op.
  const base::Json speed =
      trireme_json(s, {"bench", "train", "--model", "tiny.toml", "--micro-batch", "2", "--seq",
                       "16", "--steps", "2", "--peak-tflops", "1", "--by-row"});
  for (const char* key : {"tokens_per_second", "ms_per_step", "mfu", "startup_seconds"}) {
    EXPECT_GT(speed[key].get<double>(), 0) << key;
  }
  EXPECT_EQ(speed["peak_bytes"]["predicted"], speed["peak_bytes"]["measured"]);
  EXPECT_EQ(speed["peak_source"], "given");
  const base::Json roofline = trireme_json(
      s, {"bench", "train", "--model", "tiny.toml", "--micro-batch", "2", "--seq", "16", "--steps",
          "2", "--peak-tflops", "1", "--roofline", "--no-capture"})["roofline"];
  double share = 0;
  for (const base::Json& family : roofline["families"]) share += family["of_step"].get<double>();
  EXPECT_NEAR(share, 1, 1e-6);
}

TEST(VerbsTest, bench_train_measures_copies_of_the_state) {
  const Scratch s;
  write_tiny(s);
  const std::vector<std::string> bench = {
      "bench", "train",         "--model", "tiny.toml", "--seq", "16",       "--steps",
      "2",     "--peak-tflops", "1",       "--device",  "cpu",   "--copies", "3"};
  const base::Json copies = trireme_json(s, bench)["copies"];
  EXPECT_EQ(copies["interval"], 3);
  EXPECT_EQ(copies["window_steps"], 12);
  EXPECT_EQ(copies["ratios"].size(), 10U);
  // Four copies in each of eleven windows.
  EXPECT_EQ(copies["made"].get<int64_t>() + copies["skipped"].get<int64_t>(), 44);
  EXPECT_EQ(copies["verified"], 2);
  for (const char* key : {"ratio", "step_seconds", "device_seconds", "host_seconds", "bytes"}) {
    EXPECT_GT(copies[key].get<double>(), 0) << key;
  }
  EXPECT_LE(copies["ratio_low"], copies["ratio"]);
  EXPECT_LE(copies["ratio"], copies["ratio_high"]);
  const std::string text = trireme(s, bench).out;
  EXPECT_NE(text.find("copies             every 3 steps: "), std::string::npos) << text;
  EXPECT_NE(text.find(" of the host; "), std::string::npos) << text;
}

TEST(VerbsTest, output_that_cannot_be_written_is_an_error) {
  const Scratch s;
  const Outcome outcome =
      Running(s.path(), {"/bin/sh", "-c", "exec " TRIREME_PROGRAM " doctor --json >/dev/full"})
          .wait();
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_NE(outcome.err.find("standard output cannot be written"), std::string::npos)
      << outcome.err;
}

TEST(EvalTest, is_the_validation_loss_of_training) {
  const Scratch s;
  s.write("held_out.txt", tiny_text(60).substr(0, 8 * 16 + 1));  // only full batches and sequences
  write_tiny(s);
  const base::Json summary =
      trireme_json(s, {"train", "tiny_run.toml", "--validation.enable", "--validation.steps=-1",
                       "--validation.dataset_path=held_out.txt"});
  const base::Json loss =
      trireme_json(s, {"eval", "--weights", weights, "--data", "held_out.txt", "--seq", "16"});
  EXPECT_EQ(loss["tokens"], 8 * 16);
  // Sums of fp32 losses, added in another order.
  EXPECT_NEAR(loss["loss"].get<double>(), summary["validation_loss"].get<double>(), 1e-4);
  EXPECT_NEAR(loss["perplexity"].get<double>(), std::exp(loss["loss"].get<double>()), 1e-9);
}

TEST(EvalTest, does_not_depend_on_the_batch) {
  const Scratch s;
  train_tiny(s);
  const auto loss = [&](const char* batch) {
    return trireme_json(
        s, {"eval", "--weights", weights, "--data", "text.txt", "--seq", "20", "--batch", batch});
  };
  const base::Json one = loss("1"), three = loss("3"), many = loss("500");
  EXPECT_EQ(one["tokens"], many["tokens"]);
  EXPECT_EQ(one["sequences"].size(), many["sequences"].size());
  // Matrix products of other shapes may add in another order.
  for (const base::Json& other : {three, many}) {
    EXPECT_NEAR(one["loss"].get<double>(), other["loss"].get<double>(), 1e-5);
    for (size_t i = 0; i < one["sequences"].size(); ++i) {
      EXPECT_EQ(one["sequences"][i]["tokens"], other["sequences"][i]["tokens"]);
      EXPECT_NEAR(one["sequences"][i]["loss_sum"].get<double>(),
                  other["sequences"][i]["loss_sum"].get<double>(), 1e-3);
    }
  }
  double sum = 0;
  for (const base::Json& sequence : one["sequences"]) sum += sequence["loss_sum"].get<double>();
  EXPECT_NEAR(sum, one["loss_sum"].get<double>(), 1e-6);
}

TEST(EvalTest, reads_the_same_tokens_from_every_format) {
  const Scratch s;
  train_tiny(s);
  for (const char* format : {"megatron", "llmc"}) {
    ASSERT_EQ(trireme(s, {"data", "build", "text.txt", "--output", std::string("d_") + format,
                          "--format", format, "--eod", "-1"})
                  .exit_code,
              0);
  }
  const auto loss = [&](const std::string& data) {
    return trireme_json(s, {"eval", "--weights", weights, "--data", data, "--limit", "4"})["loss"];
  };
  EXPECT_EQ(loss("text.txt"), loss("d_megatron"));
  EXPECT_EQ(loss("text.txt"), loss("d_llmc.bin"));
}

TEST(GenerateTest, is_deterministic) {
  const Scratch s;
  train_tiny(s);
  const auto tokens = [&](const std::string& options) {
    std::vector<std::string> args = {"generate", weights, "--tokens", "40"};
    for (const std::string& word : words_of(options)) args.push_back(word);
    return trireme_json(s, args)["tokens"];
  };
  const base::Json sampled = tokens("--seed 3 --temperature 1");
  EXPECT_EQ(sampled, tokens("--seed 3 --temperature 1"));
  EXPECT_EQ(sampled, tokens("--seed 3 --temperature 1 --threads 1"));
  EXPECT_NE(sampled, tokens("--seed 4 --temperature 1"));
  const base::Json likely = tokens("--temperature 0");
  EXPECT_EQ(likely, tokens("--temperature 0 --seed 9"));
  EXPECT_EQ(likely, tokens("--temperature 1 --top-k 1 --seed 9"));
  EXPECT_EQ(likely, tokens("--temperature 1 --top-p 1e-9 --seed 9"));
}

TEST(GenerateTest, continues_the_prompt) {
  const Scratch s;
  train_tiny(s);
  for (const std::string prompt : {"7 bottles", "[a,b]", "{}", "-1"}) {
    const Outcome outcome =
        trireme(s, {"generate", weights, "--prompt=" + prompt, "--tokens", "3"});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_TRUE(outcome.out.starts_with(prompt)) << outcome.out;
    EXPECT_EQ(outcome.out.size(), prompt.size() + 3 + 1);
  }
}

TEST(DataTest, build_gives_the_same_bytes_for_any_workers) {
  const Scratch s;
  std::string lines;
  for (int i = 0; i < 30000; ++i) {
    lines += "{\"text\": \"line " + std::to_string(i) + " of a book\\n\", \"id\": 1}\n";
  }
  s.write("a.jsonl", lines);  // more than one block of work
  s.write("b.txt", tiny_text(2000));
  for (const char* workers : {"1", "2"}) {
    const base::Json report =
        trireme_json(s, {"data", "build", "a.jsonl", "b.txt", "--workers", workers, "--output",
                         std::string("with_") + workers});
    EXPECT_EQ(report["documents"], 30001);
  }
  EXPECT_TRUE(s.read("with_1.bin") == s.read("with_2.bin"));
  EXPECT_TRUE(s.read("with_1.idx") == s.read("with_2.idx"));
}

TEST(DataTest, inspect_describes_the_output_of_build) {
  const Scratch s;
  s.write("a.txt", "one\ntwo two\n\nthree\n");
  trireme_json(s, {"data", "build", "a.txt", "--split-lines", "--output", "d"});
  const base::Json report = trireme_json(s, {"data", "inspect", "d"});
  EXPECT_EQ(report["documents"], 3);
  EXPECT_EQ(report["tokens"], 3 + 7 + 5 + 3);  // and a token after each document
  const Outcome text = trireme(s, {"data", "inspect", "d"});
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_NE(text.out.find("documents"), std::string::npos) << text.out;
}

TEST(DataTest, synth_states_an_entropy_that_an_ngram_model_reaches) {
  const Scratch s;
  const std::vector<std::string> synth = {"data",     "synth", "--vocab",  "8", "--documents", "10",
                                          "--tokens", "5000",  "--output", "d", "--overwrite"};
  const double entropy = trireme_json(s, synth)["entropy_rate_nats"].get<double>();
  const std::string first = s.read("d.bin");
  trireme_json(s, synth);
  EXPECT_TRUE(first == s.read("d.bin"));
  const double loss =
      trireme_json(s, {"data", "ngram", "d", "--context", "1", "--split", "0.2"})["loss"];
  EXPECT_NEAR(loss, entropy, 0.05);  // 10,000 tokens of a source of eight
  EXPECT_GT(loss, entropy - 0.03);
}

TEST(DataTest, clean_reads_files_and_pipes_and_build_reads_what_it_writes) {
  const Scratch s;
  s.write("a.jsonl", "{\"text\": \"one\"}\n{\"text\": \"two\"}\n{\"text\": \"one\"}\n");
  const base::Json report = trireme_json(s, {"data", "clean", "a.jsonl", "--output", "c.jsonl"});
  EXPECT_EQ(report["counts"]["kept"], 2);
  EXPECT_EQ(report["counts"]["exact_duplicates"], 1);
  EXPECT_EQ(report["files"].size(), 3U);
  const std::string cleaned = "{\"text\":\"one\"}\n{\"text\":\"two\"}\n";
  EXPECT_EQ(s.read("c.jsonl"), cleaned);
  EXPECT_EQ(trireme_json(s, {"data", "build", "c.jsonl", "--output", "d"})["documents"], 2);
  Running piped(s.path(), {"/bin/sh", "-c",
                           std::string("cat a.jsonl | ") + TRIREME_PROGRAM +
                               " data clean - --kind jsonl --output p.jsonl"});
  const Outcome outcome = piped.wait();
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("3 documents read, 2 kept"), std::string::npos) << outcome.out;
  EXPECT_EQ(s.read("p.jsonl"), cleaned);
}

TEST(VerifyTest, checks_models_with_experts) {
  const Scratch s;
  const std::string layout =
      "verify --model kjv-moe --parallelism.data_parallel_replicate_degree=4 "
      "--parallelism.expert_parallel_degree=2";
  const Outcome text = trireme(s, words_of(layout));
  EXPECT_EQ(text.exit_code, 0) << text.out << text.err;
  for (const char* part : {"dp 4, ep 2", "4 experts (2 chosen)", "routing", "choices of",
                           "moe.row_budget = 1.5 runs as", "all checks passed"}) {
    EXPECT_NE(text.out.find(part), std::string::npos) << part << "\n" << text.out;
  }
  const base::Json json = base::Json::parse(trireme(s, words_of(layout + " --json")).out);
  EXPECT_EQ(json["ok"], true);
  EXPECT_EQ(json["ranks"][1]["coord"]["ep"], 1);
  EXPECT_GT(json["ranks"][1]["bytes"]["counted"]["ep_forward"].get<int64_t>(), 0);
  const Outcome refused =
      trireme(s, words_of("verify --model kjv-moe --parallelism.data_parallel_replicate_degree=3 "
                          "--parallelism.expert_parallel_degree=3"));
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.err.find("16 experts do not divide by it"), std::string::npos) << refused.err;
}

TEST(DoctorTest, lists_the_models_that_other_verbs_accept) {
  const Scratch s;
  const base::Json report = trireme_json(s, {"doctor"});
  EXPECT_NE(std::find(report["models"].begin(), report["models"].end(), "llama-11m"),
            report["models"].end());
  const Outcome text = trireme(s, {"doctor"});
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_NE(text.out.find("llama-11m"), std::string::npos);
}

// The line of scripts/gpu_record.sh, as it was when the program was built.
TEST(DoctorTest, tells_if_the_sources_differ_from_those_that_passed_on_a_gpu) {
  const Scratch s;
  const std::string suite = trireme_json(s, {"doctor"})["gpu_suite"];
  const Outcome text = trireme(s, {"doctor"});
  EXPECT_EQ(text.out.find("GPU suite: ") != std::string::npos, !suite.empty()) << text.out;
  EXPECT_NE(text.out.find(suite), std::string::npos) << text.out;
}

}  // namespace
}  // namespace trireme::tests
