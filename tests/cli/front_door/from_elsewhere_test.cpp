// SPDX-License-Identifier: Apache-2.0
// The first commands of people who come from another program, or with nothing but a text: init,
// convert-config, and train with the settings of TorchTitan and Megatron-LM.
#include <algorithm>

#include "base/text/json.h"
#include "tests/cli/front_door/front_door.h"

namespace trireme::tests {
namespace {

using base::Json;

const std::string titan_file =
    "[job]\ndump_folder = \"out\"\n[profiling]\nenable_profiling = true\n"
    "[model]\nname = \"llama3\"\nflavor = \"debugmodel\"\n[optimizer]\nlr = 1e-3\n"
    "[lr_scheduler]\nwarmup_steps = 0\n[checkpoint]\nenable = false\n"
    "[training]\nlocal_batch_size = 1\nseq_len = 16\nsteps = 1\ndataset = \"c4\"\n"
    "mixed_precision_param = \"float32\"\n";
const std::string megatron_script =
    "#!/bin/bash\nMODEL=(--num-layers 2 --hidden-size 16 --num-attention-heads 2 --swiglu\n"
    "  --normalization RMSNorm --disable-bias-linear --position-embedding-type rope\n"
    "  --seq-length 16 --max-position-embeddings 32 --vocab-size 256\n"
    "  --make-vocab-size-divisible-by 1 --ffn-hidden-size 32)\n"
    "python pretrain_gpt.py ${MODEL[@]} --micro-batch-size 1 --global-batch-size 2 --lr 1e-3 \\\n"
    "  --train-iters 2 --hidden-dropout 0 --attention-dropout 0 --data-path text.txt --bf16\n";

// Returns the keys of a resolved configuration, without names of its file and folder.
Json resolved(const Scratch& s, const std::string& folder) {
  Json json = Json::parse(s.read(folder + "/run.json"));
  json.erase("job");
  return json;
}

TEST(FromElsewhere, a_torchtitan_file_trains_at_once_and_as_its_conversion) {
  const Scratch s;
  write_tiny(s);
  s.write("titan.toml", titan_file);
  const Outcome direct = run_line(s, "train --from-torchtitan titan.toml --data text.txt");
  EXPECT_TRUE(has(direct.out + direct.err, "dropped   training.dataset: ")) << direct.err;
  run_line(s, "convert-config --from-torchtitan titan.toml --data text.txt --output new/run.toml");
  const std::string text = s.read("new/run.toml");
  EXPECT_TRUE(has(text, "lr = 0.001  # optimizer.lr\n")) << text;
  EXPECT_TRUE(has(text, "# dropped: profiling.enable_profiling: ")) << text;
  run_line(s, "train new/run.toml --job.dump_folder=converted");
  EXPECT_EQ(resolved(s, "out"), resolved(s, "converted"));
}

TEST(FromElsewhere, a_torchtitan_file_is_launched_on_several_ranks) {
  const Scratch s;
  write_tiny(s);
  s.write("titan.toml", titan_file);
  run_line(s, "launch -n 2 --from-torchtitan titan.toml --data text.txt");
  const Json run = Json::parse(s.read("out/run.json"));
  EXPECT_EQ(run.at("parallelism").at("data_parallel_shard_degree"), 2);
  EXPECT_EQ(run.at("training").at("global_batch_size"), 2);
}

TEST(FromElsewhere, a_megatron_script_or_its_flags_train_at_once) {
  const Scratch s;
  write_tiny(s);
  s.write("pretrain.sh", megatron_script);
  run_line(s, "train --from-megatron pretrain.sh --job.dump_folder=script");
  const size_t flags = megatron_script.find("--num-layers");
  std::string words = megatron_script.substr(flags);
  for (const std::string_view part : {")\npython pretrain_gpt.py ${MODEL[@]}", "\\\n", "\n"}) {
    for (size_t at = words.find(part); at != std::string::npos; at = words.find(part)) {
      words.replace(at, part.size(), " ");
    }
  }
  const Outcome direct = trireme(
      s, {"train", "--from-megatron", words, "--job.dump_folder=flags", "--training.steps=2"});
  EXPECT_EQ(direct.exit_code, 0) << direct.err;
  EXPECT_EQ(resolved(s, "script"), resolved(s, "flags"));
  EXPECT_EQ(resolved(s, "flags").at("model").at("dims").at("hidden"), 16);
  EXPECT_EQ(resolved(s, "flags").at("debug").at("seed"), 1234);
}

TEST(FromElsewhere, conversion_prints_json_and_refuses_what_it_cannot_keep) {
  const Scratch s;
  s.write("titan.toml", titan_file);
  const Json json = trireme_json(s, {"convert-config", "--from-torchtitan", "titan.toml"});
  EXPECT_EQ(json.at("keys").at("training.steps").at("from"), "training.steps");
  EXPECT_TRUE(json.at("dropped").contains("training.dataset"));
  s.write("run.toml", "mine\n");
  EXPECT_TRUE(
      has(run_line(s, "convert-config --from-torchtitan titan.toml --output run.toml", 1).err,
          "run.toml: already exists; give --overwrite"));
  EXPECT_EQ(s.read("run.toml"), "mine\n");
  for (const auto& [line, part] : std::vector<std::pair<std::string, std::string>>{
           {"convert-config", "give --from-torchtitan FILE or --from-megatron"},
           {"convert-config --from-torchtitan titan.toml --from-megatron '--lr 1'",
            "give one of them"},
           {"convert-config --from-megatron gone.sh", "neither a file nor flags"},
           {"convert-config --from-torchtitan gone.toml", "gone.toml: no such file"},
           {"train titan.toml --from-torchtitan titan.toml", "give one of them"}}) {
    EXPECT_TRUE(has(run_line(s, line, wrong_call).err, part)) << line;
  }
}

TEST(Init, its_file_trains_as_it_is) {
  const Scratch s;
  s.write("book.txt", tiny_text(300));
  const Outcome made = run_line(s, "init --data book.txt --gpus 0");
  EXPECT_TRUE(has(made.out, "start     trireme train run.toml")) << made.out;
  const std::string text = s.read("run.toml");
  EXPECT_LT(std::count(text.begin(), text.end(), '\n'), 50) << text;
  run_line(s, "train run.toml --training.steps=2 --training.seq_len=16");
  EXPECT_TRUE(s.has("runs/book-run/run.json"));
  EXPECT_TRUE(has(run_line(s, "init --data book.txt", 1).err, "run.toml: already exists"));
  EXPECT_EQ(s.read("run.toml"), text);
}

TEST(Init, the_vocabulary_is_that_of_the_data_and_the_model_fits_the_machine) {
  const Scratch s;
  s.write("book.txt", tiny_text(300));
  const Json large = trireme_json(
      s,
      words_of("init --data book.txt --model llama3.1-8b --gpus 8 --machine h100 --output a.toml"));
  EXPECT_LT(large.at("predicted_bytes").get<double>(), 80e9);
  EXPECT_TRUE(has(large.at("toml").get<std::string>(), "vocab_size = 256"));
  EXPECT_EQ(large.at("start"), "trireme launch -n 8 a.toml");
  const Json small = trireme_json(
      s, words_of("init --data book.txt --size 50M --gpus 1 --machine h100 --output b.toml"));
  EXPECT_TRUE(has(small.at("toml").get<std::string>(), "[model.dims]"));
  EXPECT_NEAR(small.at("parameters").get<double>(), 50e6, 5e6);
  for (const auto& [line, part] : std::vector<std::pair<std::string, std::string>>{
           {"init --data book.txt --model llama3.1-405b --gpus 1 --machine h100",
            "does not fit 1 x h100"},
           {"init --data gone", "gone: does not exist"},
           {"init --data book.txt --model a --size 10M", "give one of them"},
           {"init --data book.txt --size 10", "from 5M to 2T"}}) {
    EXPECT_TRUE(has(run_line(s, line, wrong_call).err, part)) << line;
    EXPECT_FALSE(s.has("run.toml")) << line;
  }
}

}  // namespace
}  // namespace trireme::tests
