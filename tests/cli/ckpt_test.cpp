// SPDX-License-Identifier: Apache-2.0
// The verbs of `trireme ckpt` on checkpoints of small runs.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/text/json.h"
#include "tests/cli/program.h"

namespace trireme::tests {
namespace {

using Words = std::vector<std::string>;

const std::string newest = "run/checkpoint/step-00000004";
const std::string weight = "weight/blocks.0.norm1.weight";

// Writes checkpoints of steps 2 and 4 to run/checkpoint.
void train(const Scratch& s, Words more = {}) {
  Words words = {"train",
                 "tiny_run.toml",
                 "--training.local_batch_size=1",
                 "--training.global_batch_size=4",
                 "--parallelism.logical_dp=4",
                 "--validation.enable=false",
                 "--checkpoint.interval=2",
                 "--checkpoint.keep_latest_k=0"};
  words.insert(words.end(), more.begin(), more.end());
  const Outcome outcome = trireme(s, words);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
}

void make_run(const Scratch& s, const Words& more = {}) {
  write_tiny(s);
  train(s, more);
}

void flip(const Scratch& s, const std::string& file) {
  std::string bytes = s.read(file);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 4);
  s.write(file, bytes);
}

void expect_refused(const Scratch& s, const std::string& line, const std::string& part) {
  const Outcome outcome = trireme(s, words_of(line));
  EXPECT_NE(outcome.exit_code, 0) << line;
  EXPECT_NE(outcome.err.find(part), std::string::npos) << line << "\n" << outcome.err;
}

base::Json json_of(const Scratch& s, const std::string& line) {
  return trireme_json(s, words_of(line));
}

TEST(CkptTest, list_has_all_newest_first_with_their_problems) {
  const Scratch s;
  make_run(s, {"--parallelism.data_parallel_shard_degree=2", "--parallelism.zero_stage=1"});
  for (const std::string folder : {"run", "run/checkpoint", "run/checkpoint/"}) {
    const base::Json list = json_of(s, "ckpt list " + folder)["checkpoints"];
    ASSERT_EQ(list.size(), 2U) << folder;
    EXPECT_EQ(list[0]["step"], 4);
    EXPECT_EQ(list[1]["step"], 2);
    EXPECT_EQ(list[0]["ranks"], 2);
    EXPECT_EQ(list[0]["layout"], "2 ranks: zero 2, ZeRO-1");
    EXPECT_EQ(list[0]["problem"], "");
    EXPECT_GT(list[0]["bytes"], 10'000);
    EXPECT_EQ(list[0]["saved_at"].get<std::string>().size(), 20U);
  }
  flip(s, newest + "/manifest");
  s.write("run/checkpoint/step-00000002.tmp-0/data-00000", "");
  const base::Json damaged = json_of(s, "ckpt list run");
  EXPECT_NE(damaged["checkpoints"][0]["problem"], "");
  EXPECT_EQ(damaged["checkpoints"][1]["problem"], "");
  EXPECT_EQ(damaged["others"], base::Json::array({"step-00000002.tmp-0"}));
  const Outcome text = trireme(s, {"ckpt", "list", "run"});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_NE(text.out.find("cannot be read"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("2 ranks: zero 2"), std::string::npos) << text.out;
}

TEST(CkptTest, inspect_shows_state_and_tensors_and_one_tensors_figures) {
  const Scratch s;
  make_run(s);
  const base::Json all = json_of(s, "ckpt inspect run");
  EXPECT_EQ(all["step"], 4);
  EXPECT_EQ(all["state"]["samples"], 16);
  EXPECT_EQ(all["state"]["model"]["layers"], 2);
  EXPECT_EQ(all["layout"], "1 rank");
  std::set<std::string> names;
  for (const base::Json& tensor : all["tensors"]) names.insert(tensor["name"]);
  EXPECT_TRUE(names.contains(weight));
  EXPECT_TRUE(names.contains("m/blocks.0.norm1.weight"));
  const base::Json one = json_of(s, "ckpt inspect run --step 2 --tensor " + weight);
  EXPECT_EQ(one["step"], 2);
  EXPECT_EQ(one["elements"], one["shape"][0]);
  EXPECT_EQ(one["not_finite"], 0);
  EXPECT_LE(one["min"].get<double>(), one["mean"].get<double>());
  EXPECT_LE(one["mean"].get<double>(), one["max"].get<double>());
  EXPECT_NEAR(one["rms"].get<double>(), 1, 0.2);  // norms begin at 1
  EXPECT_EQ(one["hash"].get<std::string>().size(), 32U);
  EXPECT_NE(one["hash"], json_of(s, "ckpt inspect " + newest + " --tensor " + weight)["hash"]);
  const Outcome text = trireme(s, {"ckpt", "inspect", newest});
  EXPECT_NE(text.out.find(weight), std::string::npos) << text.out;
  expect_refused(s, "ckpt inspect run --step 3",
                 "no checkpoint of step 3; there are those of 4, 2");
  expect_refused(s, "ckpt inspect run --tensor weight/blocks.0.norm1.weigth",
                 "did you mean '" + weight);
}

TEST(CkptTest, verify_finds_a_flipped_bit) {
  const Scratch s;
  make_run(s);
  EXPECT_EQ(json_of(s, "ckpt verify run")["checkpoints"].size(), 2U);
  flip(s, newest + "/data-00000");
  const Outcome damaged = trireme(s, {"ckpt", "verify", "run", "--json"});
  EXPECT_EQ(damaged.exit_code, 1);
  const base::Json found = only_object(damaged.out);
  EXPECT_EQ(found["ok"], false);
  EXPECT_EQ(found["checkpoints"][0]["damage"].size(), 1U);
  EXPECT_EQ(found["checkpoints"][1]["damage"].size(), 0U);
  EXPECT_EQ(json_of(s, "ckpt verify run --step 2")["ok"], true);
  const Outcome text = trireme(s, {"ckpt", "verify", newest});
  EXPECT_EQ(text.exit_code, 1);
  EXPECT_NE(text.out.find("data-00000: bytes 0 to"), std::string::npos) << text.out;
  expect_refused(s, "ckpt verify run --step 5", "there are those of 4, 2");
}

TEST(CkptTest, diff_counts_differences) {
  const Scratch s;
  make_run(s);
  EXPECT_EQ(json_of(s, "ckpt diff run " + newest)["ok"], true);
  const Words steps = {"ckpt", "diff", "run/checkpoint/step-00000002", "run", "--json"};
  const Outcome outcome = trireme(s, steps);
  EXPECT_EQ(outcome.exit_code, 1) << outcome.err;
  const base::Json found = only_object(outcome.out);
  EXPECT_EQ(found["tensors"].size(), found["compared"]);  // every tensor moves
  for (const base::Json& tensor : found["tensors"]) {
    EXPECT_EQ(tensor["difference"], "values");
    EXPECT_GT(tensor["elements"], 0);
    EXPECT_GT(tensor["largest"], 0);
  }
  std::set<std::string> keys;
  for (const base::Json& key : found["state"]) keys.insert(key["key"]);
  EXPECT_TRUE(keys.contains("step"));
  EXPECT_TRUE(keys.contains("clipping.applied"));
  EXPECT_FALSE(keys.contains("seed"));
  Words tolerant = steps;
  tolerant.insert(tolerant.end(), {"--tolerance", "1000"});
  EXPECT_EQ(only_object(trireme(s, tolerant).out)["tensors"].size(), 0U);
  expect_refused(s, "ckpt diff run run --tolerance -1", "--tolerance -1: must be 0 or above");
}

TEST(CkptTest, reshard_writes_the_files_that_the_other_layout_saves) {
  const Scratch s;
  make_run(s);
  const std::string keys =
      " --parallelism.data_parallel_shard_degree=2 --parallelism.zero_stage=1 "
      "--parallelism.pipeline_parallel_degree=2";
  const base::Json made = json_of(s, "ckpt reshard run --into other" + keys);
  EXPECT_EQ(made["ranks"], 4);
  EXPECT_TRUE(made["checkpoint"].get<std::string>().ends_with("other/checkpoint/step-00000004"));
  const base::Json same = json_of(s, "ckpt diff run other");
  EXPECT_EQ(same["ok"], true);
  EXPECT_GT(same["plan"].size(), 0U);
  EXPECT_EQ(json_of(s, "ckpt verify other")["ok"], true);
  // The data files of a run that had this layout from the start.
  Words words = words_of(keys.substr(1));
  words.emplace_back("--job.dump_folder=straight");
  train(s, words);
  for (const char* name : {"data-00000", "data-00003", "index-00002"}) {
    EXPECT_TRUE(s.read(std::string("straight/checkpoint/step-00000004/") + name) ==
                s.read(std::string("other/checkpoint/step-00000004/") + name))
        << name;
  }
  // And back, with the plan.json of the run.
  json_of(s, "ckpt reshard other --into back --plan run/plan.json");
  EXPECT_TRUE(s.read(newest + "/data-00000") == s.read("back/checkpoint/step-00000004/data-00000"));
  // A run resumes from it.
  train(s, {"--training.steps=6", "--job.dump_folder=run", "--resume", "auto"});
  train(s, {"--training.steps=6", "--job.dump_folder=other", "--resume", "auto"});
  EXPECT_TRUE(s.read("run/weights/final/model.safetensors") ==
              s.read("other/weights/final/model.safetensors"));
}

TEST(CkptTest, reshard_refuses_a_layout_that_does_not_match) {
  const Scratch s;
  make_run(s);
  s.write("big.toml", replaced(tiny_model, "ffn = 32", "ffn = 48"));
  expect_refused(s, "ckpt reshard run --into other", "no layout is given");
  expect_refused(s, "ckpt reshard run --into other --model.name=big.toml",
                 "the layout belongs to another model");
  expect_refused(s, "ckpt reshard run --into other --plan run/run.json", "run/run.json: plan");
  expect_refused(s, "ckpt reshard run --into run --parallelism.data_parallel_replicate_degree=2",
                 "step-00000004");
  expect_refused(s, "ckpt reshard run --into other --parallelism.tensor_parallel_degree=3",
                 "tensor_parallel_degree");
  EXPECT_FALSE(s.has("other/checkpoint"));
}

TEST(CkptTest, export_writes_the_weights_that_the_run_exports) {
  const Scratch s;
  make_run(s, {"--parallelism.pipeline_parallel_degree=2"});
  const base::Json made = json_of(s, "ckpt export run --out out");
  EXPECT_EQ(made["step"], 4);
  EXPECT_EQ(s.tree("out"), s.tree("run/weights/final"));
  EXPECT_EQ(made["loss"]["checkpoint"], made["loss"]["exported"]);
  EXPECT_GT(made["loss"]["exported"], 0);
  EXPECT_GT(made["loss"]["tokens"].size(), 2U);
  // In several files, with a tokenizer, from a copied checkpoint.
  const std::string tokenizer =
      R"({"model": {"type": "BPE", "vocab": {"a": 0, "e": 1, "l": 2}, "merges": []}})";
  s.write("words/tokenizer.json", tokenizer);
  std::filesystem::create_directories(s.at("far"));
  std::filesystem::copy(s.at(newest), s.at("far/step-00000004"),
                        std::filesystem::copy_options::recursive);
  const base::Json cut =
      json_of(s,
              "ckpt export far/step-00000004 --out cut --dtype bf16 --max-shard-bytes 4000 "
              "--tokenizer words");
  EXPECT_EQ(cut["loss"]["checkpoint"], cut["loss"]["exported"]);
  EXPECT_NE(cut["loss"]["exported"], made["loss"]["exported"]);
  EXPECT_EQ(cut["loss"]["tokens"], made["loss"]["tokens"]);
  EXPECT_FALSE(json_of(s, "ckpt export run --out quick --no-loss").contains("loss"));
  EXPECT_EQ(s.tree("quick"), s.tree("out"));
  EXPECT_EQ(s.read("cut/tokenizer.json"), tokenizer);
  EXPECT_TRUE(s.has("cut/model.safetensors.index.json"));
  EXPECT_FALSE(s.has("cut/model.safetensors"));
  const Outcome used =
      trireme(s, words_of("eval --weights cut --data text.txt --seq 16 --limit 4"));
  EXPECT_EQ(used.exit_code, 0) << used.err;
  expect_refused(s, "ckpt export run --out out", "--overwrite");
  expect_refused(s, "ckpt export run --out new --tokenizer run", "tokenizer.json");
  expect_refused(s, "ckpt export run --out new --max-shard-bytes 0", "at least 1");
  expect_refused(s, "ckpt export run/weights/final --out new", "ckpt import");
  json_of(s, "ckpt export run --step 2 --out out --overwrite");
  EXPECT_NE(s.tree("out"), s.tree("run/weights/final"));
  EXPECT_FALSE(s.has("new"));
}

// Export, import and export again; and a run from an import is the run from those weights.
TEST(CkptTest, a_run_starts_from_an_import) {
  const Scratch s;
  make_run(s);
  const base::Json made = json_of(s, "ckpt import run/weights/final --into in");
  EXPECT_EQ(made["step"], 0);
  json_of(s, "ckpt export in --out out");
  EXPECT_EQ(s.read("out/model.safetensors"), s.read("run/weights/final/model.safetensors"));
  EXPECT_EQ(json_of(s, "ckpt verify in")["ok"], true);
  EXPECT_EQ(json_of(s, "ckpt inspect in --tensor m/blocks.0.norm1.weight")["max"], 0);
  train(s, {"--job.dump_folder=given", "--debug.seed=3", "--training.init_from=run/weights/final"});
  train(s, {"--job.dump_folder=in", "--debug.seed=3", "--resume", "auto"});
  EXPECT_TRUE(s.read("given/weights/final/model.safetensors") ==
              s.read("in/weights/final/model.safetensors"));
  EXPECT_EQ(json_of(s, "ckpt diff given in")["ok"], true);
  // From the imported checkpoint again, on two ranks, although newer ones exist.
  train(s, {"--job.dump_folder=in", "--debug.seed=3", "--resume", "0",
            "--parallelism.data_parallel_shard_degree=2"});
  EXPECT_EQ(json_of(s, "ckpt diff given in")["ok"], true);
  expect_refused(s, "ckpt import run/weights/final --into in", "already contains checkpoints");
  expect_refused(s, "ckpt import nowhere --into other", "no such folder");
  expect_refused(s, "ckpt import run --into other", "config.json");
  EXPECT_FALSE(s.has("other/checkpoint/step-00000000"));
}

TEST(CkptTest, other_paths_are_refused_with_the_reason) {
  const Scratch s;
  make_run(s);
  std::filesystem::create_directories(s.at("empty"));
  for (const std::string verb : {"list", "inspect", "verify"}) {
    expect_refused(s, "ckpt " + verb + " nowhere", "nowhere: there is no such folder");
    expect_refused(s, "ckpt " + verb + " empty", "empty: is not a checkpoint");
    expect_refused(s, "ckpt " + verb + " text.txt", "text.txt: is a file");
    expect_refused(s, "ckpt " + verb + " run/weights/final",
                   "is not a checkpoint but Hugging Face weights");
  }
  s.write(newest + "/manifest", "trireme checkpoint 9\n{}\n");
  const Outcome newer = trireme(s, {"ckpt", "inspect", newest});
  EXPECT_EQ(newer.exit_code, 1);
  EXPECT_NE(newer.err.find("version 9"), std::string::npos) << newer.err;
  // The previous checkpoint is used, with a warning.
  const Outcome older = trireme(s, {"ckpt", "inspect", "run", "--json"});
  EXPECT_EQ(older.exit_code, 0);
  EXPECT_EQ(only_object(older.out)["step"], 2);
  EXPECT_NE(older.err.find("checkpoint of step 4 skipped"), std::string::npos) << older.err;
  trireme(s, {"train", "tiny_run.toml", "--job.dump_folder=bare", "--training.steps=1",
              "--checkpoint.enable=false"});
  expect_refused(s, "ckpt list bare", "has saved no checkpoint");
}

}  // namespace
}  // namespace trireme::tests
