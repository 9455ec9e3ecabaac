// SPDX-License-Identifier: Apache-2.0
// What converted files mean: they are read back as configurations.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "base/text/json.h"
#include "plan/convert/convert_megatron.h"
#include "plan/convert/convert_torchtitan.h"
#include "plan/import/from_torchtitan.h"
#include "plan/samples_test.h"
#include "plan/validate/published_row.h"

namespace trireme::plan {
namespace {

const std::string titan_job = R"([job]
dump_folder = "out/titan"
[profiling]
enable_profiling = true
[model]
name = "llama3"
flavor = "debugmodel"
hf_assets_path = "./assets/hf/Llama-3.1-8B"
[optimizer]
name = "AdamW"
lr = 1.5e-4
[lr_scheduler]
warmup_steps = 20
[training]
local_batch_size = 4
seq_len = 512
max_norm = 0.5
steps = 100
dataset = "c4"
[parallelism]
tensor_parallel_degree = 2
fsdp_reshard_after_forward = "never"
[checkpoint]
enable = true
[activation_checkpoint]
mode = "full"
[surprise]
colour = "blue"
)";

const std::string megatron_job =
    "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 128 "
    "--max-position-embeddings 128 --vocab-size 1000 --make-vocab-size-divisible-by 8 --swiglu "
    "--normalization RMSNorm --disable-bias-linear --position-embedding-type rope "
    "--untie-embeddings-and-output-weights --hidden-dropout 0 --attention-dropout 0 "
    "--micro-batch-size 2 --global-batch-size 16 --bf16 --use-distributed-optimizer "
    "--lr 6e-4 --min-lr 6e-5 --lr-decay-style cosine --lr-warmup-iters 10 --train-iters 200 "
    "--adam-beta2 0.95 --weight-decay 0.1 --split 949,50,1 --eval-iters 5 --eval-interval 50 "
    "--data-path 0.3 a/b 0.7 c --save ck --load ck --save-interval 40 --seed 7 --wandb-project x ";

config::Config read_back(const Conversion& conversion, int world = 0) {
  const std::string text = to_toml(conversion);
  return config::load(config::ConfigText{.name = "converted.toml", .folder = ".", .text = text},
                      {.world = world});
}
Conversion titan(const std::string& text, const ConvertOptions& options = {}) {
  return convert_torchtitan(text, "job.toml", options, shipped_stack);
}
Conversion megatron(const std::string& text, const ConvertOptions& options = {}) {
  return convert_megatron(text, "Megatron's flags", options, shipped_stack);
}
template <typename Convert>
std::string refusal(const Convert& convert, const std::string& text) {
  try {
    (void)convert(text, ConvertOptions{});
  } catch (const base::ConfigError& error) {
    return error.what();
  }
  return "";
}
// REQUIRES: `text` contains `from`.
std::string replaced_text(std::string text, std::string_view from, std::string_view to) {
  return text.replace(text.find(from), from.size(), to);
}
bool drops(const Conversion& conversion, std::string_view setting, std::string_view reason) {
  return std::ranges::any_of(conversion.dropped, [&](const Dropped& one) {
    return one.setting == setting && has(one.reason, reason);
  });
}

TEST(ConvertTorchTitan, the_configuration_has_the_job_and_torchtitans_defaults) {
  const Conversion conversion = titan(titan_job);
  const config::Config c = read_back(conversion, 8);
  EXPECT_EQ(c.dims.hidden, 256);
  EXPECT_EQ(c.dims.layers, 6);
  EXPECT_EQ(c.job.dump_folder, "out/titan");
  EXPECT_EQ(c.optimizer.lr, 1.5e-4);
  EXPECT_EQ(c.training.steps, 100);
  EXPECT_EQ(c.training.max_norm, 0.5);
  EXPECT_EQ(c.training.seq_len, 512);
  EXPECT_EQ(c.lr_scheduler.warmup_steps, 20);
  EXPECT_EQ(c.lr_scheduler.decay_type, "linear");  // TorchTitan's defaults
  EXPECT_EQ(c.lr_scheduler.min_lr_factor, 0);
  EXPECT_EQ(c.checkpoint.interval, 500);
  EXPECT_EQ(c.checkpoint.keep_latest_k, 10);
  EXPECT_EQ(c.parallelism.tensor_parallel_degree, 2);
  EXPECT_TRUE(c.parallelism.sequence_parallel);
  EXPECT_EQ(c.parallelism.fsdp_reshard_after_forward, "never");
  EXPECT_EQ(c.activation_checkpoint.mode, "full");
  EXPECT_EQ(c.precision.recipe, "bf16");
  const config::Config solved = config::solved(c, 8);
  EXPECT_EQ(solved.parallelism.data_parallel_shard_degree, 4);
  EXPECT_EQ(solved.parallelism.zero_stage, 3);
  EXPECT_EQ(solved.training.global_batch_size, 16);
}

TEST(ConvertTorchTitan, every_key_has_its_origin_or_the_reason_why_it_was_dropped) {
  const Conversion conversion = titan(titan_job);
  EXPECT_EQ(conversion.origins.at("optimizer.lr"), "optimizer.lr");
  EXPECT_EQ(conversion.origins.at("lr_scheduler.decay_type"), "TorchTitan's default");
  EXPECT_TRUE(has(to_toml(conversion), "lr = 0.00015  # optimizer.lr\n"));
  EXPECT_TRUE(drops(conversion, "training.dataset", "data build"));
  EXPECT_TRUE(drops(conversion, "profiling.enable_profiling", "--trace-steps"));
  EXPECT_TRUE(drops(conversion, "model.hf_assets_path", "training.tokenizer"));
  EXPECT_TRUE(drops(conversion, "surprise.colour", "no such setting"));
  const base::Json json = to_json(conversion);
  EXPECT_EQ(json.at("keys").at("training.steps").at("value"), 100);
  EXPECT_EQ(json.at("dropped").size(), 4U);
  EXPECT_EQ(config::load(config::ConfigText{.name = "data.toml",
                                            .folder = ".",
                                            .text = to_toml(titan(titan_job, {.data = "my.txt"}))},
                         {})
                .training.dataset_path,
            "my.txt");
}

TEST(ConvertTorchTitan, a_number_of_gpus_closes_the_degrees) {
  const std::string pipe =
      replaced_text(titan_job, "tensor_parallel_degree = 2", "pipeline_parallel_degree = 2");
  EXPECT_TRUE(has(refusal(titan, pipe), "--gpus N"));
  const config::Config c = read_back(titan(pipe, {.gpus = 4}), 4);
  EXPECT_EQ(c.parallelism.data_parallel_shard_degree, 2);
  EXPECT_EQ(c.training.local_batch_size, 1);  // micro-batches of the pipeline
  EXPECT_EQ(c.training.global_batch_size, 8);
}

TEST(ConvertTorchTitan, settings_without_a_counterpart_are_refused_or_named) {
  EXPECT_TRUE(has(refusal(titan, replaced_text(titan_job, "\"AdamW\"", "\"Shampoo\"")),
                  "job.toml:10: optimizer.name: found \"Shampoo\""));
  EXPECT_TRUE(
      has(refusal(titan, replaced_text(titan_job, "enable = true", "initial_load_path = \"dcp\"")),
          "a checkpoint of PyTorch cannot be read"));
  EXPECT_TRUE(
      has(refusal(titan, replaced_text(titan_job, "warmup_steps = 20", "decay_type = \"step\"")),
          "expected one of linear, sqrt, cosine"));
  const Conversion sqrt = titan(
      replaced_text(titan_job, "warmup_steps = 20", "decay_type = \"sqrt\"\ndecay_ratio = 0.1"));
  EXPECT_EQ(sqrt.config.lr_scheduler.decay_type, "wsd");
  EXPECT_TRUE(std::ranges::any_of(sqrt.changed, [](const std::string& text) {
    return has(text, "a linear decay instead of lr_scheduler.decay_type = sqrt");
  }));
}

TEST(ConvertMegatron, the_configuration_has_the_job_and_megatrons_defaults) {
  const Conversion conversion = megatron(megatron_job);
  const config::Config c = read_back(conversion, 4);
  EXPECT_EQ(c.dims.hidden, 64);
  EXPECT_EQ(c.dims.vocab, 1000);
  EXPECT_EQ(c.optimizer.lr, 6e-4);
  EXPECT_EQ(c.optimizer.beta2, 0.95);
  EXPECT_EQ(c.lr_scheduler.decay_type, "cosine");
  EXPECT_DOUBLE_EQ(c.lr_scheduler.min_lr_factor, 0.1);
  EXPECT_EQ(c.lr_scheduler.warmup_steps, 10);
  EXPECT_EQ(c.training.steps, 200);
  EXPECT_EQ(c.training.max_norm, 1);
  EXPECT_EQ(c.debug.seed, 7);
  EXPECT_EQ(c.metrics.log_freq, 100);  // Megatron's default
  EXPECT_EQ(c.checkpoint.interval, 40);
  EXPECT_TRUE(c.validation.enable);
  EXPECT_DOUBLE_EQ(c.validation.split, 50.0 / 999);
  EXPECT_EQ(c.validation.steps, 5);
  ASSERT_EQ(c.training.dataset.size(), 2U);
  EXPECT_EQ(c.training.dataset[0].path, "a/b");
  EXPECT_EQ(c.training.dataset[1].weight, 0.7);
  const config::Config solved = config::solved(c, 4);
  EXPECT_EQ(solved.parallelism.data_parallel_shard_degree, 4);
  EXPECT_EQ(solved.parallelism.zero_stage, 1);
  EXPECT_EQ(solved.training.global_batch_size, 16);
  EXPECT_TRUE(drops(conversion, "--wandb-project", "metrics.command"));
  EXPECT_TRUE(drops(conversion, "--save", "job.dump_folder"));
  EXPECT_EQ(conversion.origins.at("lr_scheduler.min_lr_factor"), "--min-lr");
}

TEST(ConvertMegatron, flags_without_a_counterpart_are_refused) {
  const auto refused = [](const std::string& more) {
    return refusal(megatron, megatron_job + more);
  };
  EXPECT_TRUE(has(refused("--optimizer sgd"), "--optimizer: found sgd"));
  EXPECT_TRUE(has(refused("--load elsewhere"), "a checkpoint of Megatron cannot be read"));
  EXPECT_TRUE(has(refused("--lr-decay-style inverse-square-root"), "expected one of constant"));
  EXPECT_TRUE(has(refused("--data-path $DATA"), "the shell's variables are unknown"));
  EXPECT_TRUE(has(refused("--rotary-percent 0.5"), "rotates whole heads"));
  EXPECT_TRUE(has(refused("--micro-batch-sze 4"), "did you mean --micro-batch-size?"));
  EXPECT_TRUE(has(refused("--normalization LayerNorm"), "none of Trireme's families"));
  EXPECT_TRUE(has(refusal(megatron, replaced_text(megatron_job, "--train-iters 200", "")),
                  "--train-iters: required"));
  EXPECT_TRUE(
      has(refusal(megatron, replaced_text(megatron_job, "--lr 6e-4", "")), "--lr: required"));
}

TEST(ConvertMegatron, samples_become_steps_and_no_clipping_is_none) {
  const std::string by_samples =
      replaced_text(replaced_text(megatron_job, "--train-iters 200", "--train-samples 330"),
                    "--lr-warmup-iters 10", "--lr-warmup-samples 33 --clip-grad 0");
  const config::Config c = megatron(by_samples).config;
  EXPECT_EQ(c.training.steps, 21);
  EXPECT_EQ(c.lr_scheduler.warmup_steps, 3);
  EXPECT_EQ(c.training.clip, "none");
}

}  // namespace
}  // namespace trireme::plan
