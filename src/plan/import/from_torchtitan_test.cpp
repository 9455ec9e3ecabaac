// SPDX-License-Identifier: Apache-2.0
#include "plan/import/from_torchtitan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "config/files/machine_file.h"
#include "config/files/model_file.h"
#include "plan/price/price.h"
#include "plan/samples_test.h"
#include "plan/validate/published_row.h"

namespace trireme::plan {
namespace {

std::string titan_refusal(const std::string& text, int64_t gpus = 64) {
  try {
    (void)from_torchtitan(text, "job.toml", gpus, shipped_stack);
  } catch (const base::ConfigError& error) {
    return error.what();
  }
  return "";
}
bool notes(const Described& d, std::string_view part) {
  const auto is_here = [part](const std::string& one) { return has(one, part); };
  return std::ranges::any_of(d.assumed, is_here) || std::ranges::any_of(d.assumed_speed, is_here);
}
Described described(const std::string& text, int64_t gpus) {
  return from_torchtitan(text, "job.toml", gpus, shipped_stack);
}

// TorchTitan's file for Llama 3 70B.
const std::string titan_llama70 = R"([job]
dump_folder = "./outputs"
[profiling]
enable_profiling = true
[metrics]
log_freq = 10
[model]
name = "llama3"
flavor = "70B"
hf_assets_path = "./assets/hf/Llama-3.1-70B"
# converters = ["float8"]
[optimizer]
name = "AdamW"
lr = 1.5e-4
eps = 1e-8
[lr_scheduler]
warmup_steps = 200
[training]
local_batch_size = 8
seq_len = 8192
max_norm = 1.0
steps = 1000
dataset = "c4"
[parallelism]
data_parallel_replicate_degree = 1
data_parallel_shard_degree = -1
tensor_parallel_degree = 8
pipeline_parallel_degree = 1
context_parallel_degree = 1
[checkpoint]
interval = 500
[activation_checkpoint]
mode = "full"
[compile]
enable = false
components = ["model", "loss"]
[float8]
enable_fsdp_float8_all_gather = false
filter_fqns = ["output"]
[validation]
enabled = false
)";

TEST(FromTorchtitan, the_file_for_70b_is_the_shipped_model) {
  const Described d = described(titan_llama70, 64);
  const auto shipped = config::model_from_file("llama3-70b", {source_root() / "configs/models"});
  EXPECT_EQ(spec::parameter_count(d.job.model), spec::parameter_count(spec::make_model(shipped)));
  EXPECT_EQ(d.job.seq_len, 8192);
  EXPECT_EQ(d.job.global_batch, 64);
  EXPECT_EQ(d.gpus, 64);
  const Layout expected{.tp = 8,
                        .dp_shard = 8,
                        .zero_stage = 3,
                        .sequence_parallel = true,
                        .micro_batch = 8,
                        .recompute = spec::Recompute::full};
  EXPECT_TRUE(*d.layout == expected) << words(*d.layout);
  EXPECT_EQ(d.stack.name, "torchtitan-eager");
  EXPECT_TRUE(d.assumed.empty()) << d.assumed.front();
  EXPECT_TRUE(d.ignored.empty()) << d.ignored.front();
  const spec::Machine machine =
      config::machine_from_file("a100-80gb", {source_root() / "machines"});
  Pricer pricer(d.job, machine, d.stack);
  // 6 x 70e9 x 524e3 tokens on 64 of 312 TFLOP/s: 11 s at best.
  EXPECT_GT(pricer.price(*d.layout).seconds, 11);
}

TEST(FromTorchtitan, flavors_have_their_published_sizes) {
  const auto parameters = [](const std::string& flavor) {
    return spec::parameter_count(
        described("[model]\nname = \"llama3\"\nflavor = \"" + flavor + "\"\n", 1).job.model);
  };
  EXPECT_EQ(parameters("8B"), 8'030'261'248);
  EXPECT_EQ(parameters("70B"), 70'553'706'496);
  EXPECT_EQ(parameters("405B"), 405'853'388'800);
  EXPECT_LT(parameters("debugmodel"), 10'000'000);
}

TEST(FromTorchtitan, pipelines_and_data_parallelism) {
  const std::string text = R"([model]
name = "llama3"
flavor = "405B"
converters = ["quantize.linear.float8"]
[training]
local_batch_size = 16
global_batch_size = 256
seq_len = 8192
[parallelism]
data_parallel_replicate_degree = 2
data_parallel_shard_degree = 4
tensor_parallel_degree = 8
enable_async_tensor_parallel = true
pipeline_parallel_degree = 8
pipeline_parallel_schedule = "Interleaved1F1B"
pipeline_parallel_layers_per_stage = 4
pipeline_parallel_microbatch_size = 2
context_parallel_degree = 2
new_key = 3
[float8]
enable_fsdp_float8_all_gather = true
[activation_checkpoint]
mode = "selective"
selective_ac_option = "2"
)";
  Described other = described(text +
                                  "[experimental]\n"
                                  "context_parallel_rotate_method = \"alltoall\"\n",
                              0);
  EXPECT_EQ(other.layout->context_kind, spec::ContextKind::ring);
  const Described d = described(text, 0);
  const Layout expected{.tp = 8,
                        .cp = 2,
                        .pp = 8,
                        .dp_replicate = 2,
                        .dp_shard = 4,
                        .zero_stage = 2,  // pipelines keep gathered parameters
                        .sequence_parallel = true,
                        .schedule = Kind::interleaved,
                        .chunks = 4,
                        .micro_batch = 2,
                        .recompute = spec::Recompute::selective,
                        .precision = Precision::fp8};
  EXPECT_TRUE(*d.layout == expected) << words(*d.layout);
  EXPECT_EQ(d.gpus, 1024);
  EXPECT_EQ(d.job.global_batch, 256);
  EXPECT_EQ(d.stack.gather_bytes, 1);
  EXPECT_EQ(d.ignored, std::vector<std::string>{"parallelism.new_key"});
  for (const char* part : {"asynchronous", "one of 2", "one pipeline"}) {
    EXPECT_TRUE(notes(d, part)) << part;
  }
}

TEST(FromTorchtitan, keys_of_older_files_are_read) {
  const Described d = described(R"([model]
name = "llama3"
flavor = "8B"
[training]
batch_size = 2
seq_len = 4096
data_parallel_shard_degree = 4
tensor_parallel_degree = 2
compile = true
[experimental]
pipeline_parallel_degree = 2
pipeline_parallel_microbatches = 2
[float8]
enable_float8_linear = true
)",
                                16);
  EXPECT_EQ(d.layout->tp, 2);
  EXPECT_EQ(d.layout->pp, 2);
  EXPECT_EQ(d.layout->data_ranks(), 4);
  EXPECT_EQ(d.layout->micro_batch, 1);
  EXPECT_EQ(d.layout->precision, Precision::fp8);
  EXPECT_EQ(d.job.global_batch, 8);
  EXPECT_EQ(d.stack.name, "torchtitan");
}

TEST(FromTorchtitan, converters_are_recipes) {
  const auto run = [](const std::string& converter, const std::string& more) {
    return described("[model]\nflavor = \"8B\"\nconverters = [\"" + converter + "\"]\n" + more +
                         "[parallelism]\ndata_parallel_shard_degree = 8\n",
                     8);
  };
  EXPECT_EQ(run("float8", "").layout->precision, Precision::fp8);
  EXPECT_EQ(run("quantize.linear.mx", "").layout->precision, Precision::fp8_block);
  const Described rows = run("float8", "[float8]\nrecipe_name = \"rowwise\"\n");
  EXPECT_EQ(rows.layout->precision, Precision::fp8);
  EXPECT_TRUE(notes(rows, "float8.recipe_name = rowwise"));
}

// Words that change the price: understood, or refused with the key and what is allowed.
TEST(FromTorchtitan, formats_are_understood_or_refused) {
  struct Case {
    const char *converter, *more;
    std::optional<Precision> precision;  // none: refused
    const char* part;                    // of the assumption or the message
  };
  const std::vector<Case> cases = {
      {"float8", "[float8]\nrecipe_name = \"tensorwise\"\n", Precision::fp8, ""},
      {"quantize.linear.float8", "[quantize.linear.float8]\nrecipe_name = \"rowwise\"\n",
       Precision::fp8,
       "one scale a tensor instead of quantize.linear.float8.recipe_name = rowwise"},
      {"quantize.linear.float8",
       "[quantize.linear.float8]\nrecipe_name = \"columnwise\"\n",
       {},
       "found \"columnwise\", expected one of tensorwise, rowwise"},
      {"float8", "[float8]\nemulate = true\n", {}, "float8.emulate: true is not modelled"},
      {"float8", "[float8]\nfilter_fqns = [\"output\", \"wq\"]\n", Precision::fp8,
       "products of wq in 8 bits"},
      {"mx", "[mx]\nrecipe_name = \"mxfp8\"\n", Precision::fp8_block, "scales of 128"},
      {"quantize.linear.mx", "[quantize.linear.mx]\nrecipe_name = \"mxfp4_cutlass\"\n",
       Precision::fp4, ""},
      {"mx", "[mx]\nrecipe_name = \"mxfp6\"\n", {}, "mx.recipe_name: found \"mxfp6\""},
      {"bitnet", "", {}, "model.converters: \"bitnet\" is not modelled; expected float8, mx"},
      {"float8",
       "[training]\nmixed_precision_reduce = \"float8\"\n",
       {},
       "mixed_precision_reduce: found \"float8\""},
  };
  for (const Case& one : cases) {
    const std::string text = "[model]\nflavor = \"8B\"\nconverters = [\"" +
                             std::string(one.converter) + "\"]\n" + one.more +
                             "[parallelism]\ndata_parallel_shard_degree = 8\n";
    if (!one.precision) {
      EXPECT_TRUE(has(titan_refusal(text, 8), one.part)) << titan_refusal(text, 8);
      continue;
    }
    const Described d = described(text, 8);
    EXPECT_EQ(d.layout->precision, *one.precision) << text;
    EXPECT_TRUE(*one.part == 0 || notes(d, one.part)) << text;
    EXPECT_TRUE(d.ignored.empty()) << d.ignored.front();
  }
  const std::string half =
      "[model]\nflavor = \"8B\"\n[training]\nmixed_precision_reduce = \"bfloat16\"\n"
      "[parallelism]\ndata_parallel_shard_degree = 8\n";
  EXPECT_EQ(described(half, 8).stack.reduce_bytes, 2);
}

TEST(FromTorchtitan, replicas_without_shards_have_no_zero) {
  const Described d = described(
      "[model]\nflavor = \"8B\"\n[parallelism]\ndata_parallel_replicate_degree = 8\n"
      "data_parallel_shard_degree = 1\n",
      8);
  EXPECT_EQ(d.layout->zero_stage, 0);
  EXPECT_EQ(d.layout->data_ranks(), 8);
}

TEST(FromTorchtitan, wrong_keys_are_named_with_their_line) {
  EXPECT_TRUE(has(titan_refusal(titan_llama70, 0), "give --gpus"));
  EXPECT_TRUE(has(titan_refusal(titan_llama70, 12), "12 GPUs do not divide"));
  EXPECT_TRUE(
      has(titan_refusal("[parallelism]\ndata_parallel_shard_degree = 4\n", 8), "is 4 GPUs, not 8"));
  const std::string other = titan_refusal("[model]\nname = \"deepseek_v3\"\nflavor = \"671B\"\n");
  EXPECT_TRUE(has(other, "job.toml:2: model.name") && has(other, "405B") && has(other, "--from-hf"))
      << other;
  EXPECT_TRUE(has(titan_refusal("[model]\nflavor = \"9B\"\n"), "job.toml:2: model.flavor"));
  const std::string two = titan_refusal(
      "[parallelism]\ntensor_parallel_degree = 0\npipeline_parallel_degree = 2\n"
      "pipeline_parallel_schedule = \"LoopedBFS\"\n[activation_checkpoint]\nmode = \"some\"\n");
  EXPECT_TRUE(has(two, "tensor_parallel_degree: found 0")) << two;
  EXPECT_TRUE(has(two, "LoopedBFS is not modelled")) << two;
  EXPECT_TRUE(has(two, "expected one of none, selective, full")) << two;
  EXPECT_TRUE(has(two, "3 problems")) << two;
  EXPECT_TRUE(has(titan_refusal("[training]\nenable_cpu_offload = true\n"), "not modelled"));
  EXPECT_TRUE(has(titan_refusal("[training]\nglobal_batch_size = 100\n"), "does not divide"));
  EXPECT_TRUE(has(titan_refusal("[training]\nseq_len = \"long\"\n"), "expected an integer"));
  EXPECT_TRUE(has(titan_refusal("[parallelism]\nexpert_parallel_degree = 2\n"), "no experts"));
  EXPECT_TRUE(has(titan_refusal("[model"), "not TOML"));
}

}  // namespace
}  // namespace trireme::plan
