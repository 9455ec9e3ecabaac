// SPDX-License-Identifier: Apache-2.0
#include "config/layout.h"

#include <set>

#include "base/text/json.h"
#include "config/files_test.h"
#include "config/schema.h"
#include "spec/layout/rule_samples_test.h"

namespace trireme::config {
namespace {

LoadOptions with(std::vector<std::string> overrides, int world) {
  overrides.emplace_back("model.name=llama-15m");
  return {.overrides = std::move(overrides), .model_folders = {shipped_models()}, .world = world};
}

std::string override_text(const Key& key) {
  const base::Json value = value_json(key);
  return value.is_string() ? value.get<std::string>() : value.dump();
}

TEST(LayoutConfig, the_remaining_ranks_are_sharded) {
  const auto four = [](std::vector<std::string> overrides) {
    return load_solved("", with(std::move(overrides), 4));
  };
  const Config fsdp = four({});
  EXPECT_EQ(fsdp.parallelism.data_parallel_shard_degree, 4);
  EXPECT_EQ(fsdp.parallelism.zero_stage, 3);
  EXPECT_EQ(fsdp.parallelism.logical_dp, 4);
  EXPECT_EQ(fsdp.parallelism.reduce, "once");
  EXPECT_EQ(fsdp.training.global_batch_size, 32);
  EXPECT_EQ(four({"training.global_batch_size=64"}).parallelism.reduce, "each");
  const Config hybrid = four({"parallelism.tensor_parallel_degree=2", "parallelism.zero_stage=1",
                              "parallelism.logical_dp=6"});
  EXPECT_EQ(hybrid.parallelism.data_parallel_shard_degree, 2);
  EXPECT_EQ(hybrid.training.global_batch_size, 48);
  const Config replicas = four({"parallelism.data_parallel_replicate_degree=-1"});
  EXPECT_EQ(replicas.parallelism.data_parallel_replicate_degree, 4);
  EXPECT_EQ(replicas.parallelism.data_parallel_shard_degree, 1);
  EXPECT_EQ(replicas.parallelism.zero_stage, 0);
  // A resolved configuration does not change.
  const TemporaryFolder folder;
  const LoadOptions again{.overrides = {}, .model_folders = {shipped_models()}, .world = 4};
  EXPECT_TRUE(load_solved(folder.write("run.json", to_json(hybrid).dump()), again) == hybrid);
}

TEST(LayoutConfig, open_keys_take_the_values_of_the_run_that_is_resumed) {
  const auto resumed = [](const SavedSums& saved, std::vector<std::string> overrides, int world) {
    return load_solved("", with(std::move(overrides), world), saved);
  };
  const SavedSums saved{.logical_dp = 4, .reduce = spec::ReduceWhen::each, .global_batch_size = 64};
  for (const int world : {1, 2, 4}) {
    const Config c = resumed(saved, {}, world);
    EXPECT_EQ(c.parallelism.logical_dp, 4) << world;
    EXPECT_EQ(c.parallelism.reduce, "each") << world;
    EXPECT_EQ(c.training.global_batch_size, 64) << world;
    EXPECT_EQ(c.parallelism.data_parallel_shard_degree, world);
  }
  // Given keys are kept.
  const Config given = resumed(saved, {"parallelism.logical_dp=2", "parallelism.reduce=once"}, 1);
  EXPECT_EQ(given.parallelism.logical_dp, 2);
  EXPECT_EQ(given.parallelism.reduce, "once");
  EXPECT_EQ(given.training.global_batch_size, 64);
  EXPECT_EQ(resumed(saved, {"training.global_batch_size=32"}, 1).training.global_batch_size, 32);
  // ZeRO-3 with several micro-batches of a worker needs reduce = "each"; the rest is taken.
  const SavedSums once{.logical_dp = 4, .reduce = spec::ReduceWhen::once, .global_batch_size = 64};
  const Config sharded = resumed(once, {}, 2);
  EXPECT_EQ(sharded.parallelism.reduce, "each");
  EXPECT_EQ(sharded.parallelism.logical_dp, 4);
  EXPECT_EQ(resumed(once, {"parallelism.zero_stage=1"}, 2).parallelism.reduce, "once");
  // Eight data ranks cannot be four workers, but they can have the batch; sixteen cannot.
  const Config more = resumed(saved, {}, 8);
  EXPECT_EQ(more.parallelism.logical_dp, 8);
  EXPECT_EQ(more.training.global_batch_size, 64);
  EXPECT_EQ(resumed(saved, {}, 16).training.global_batch_size, 128);
}

TEST(LayoutConfig, all_wrong_degrees_are_refused_at_once) {
  const LoadOptions options = with(
      {"parallelism.tensor_parallel_degree=3", "parallelism.data_parallel_replicate_degree=2",
       "parallelism.sequence_parallel=true", "training.seq_len=10", "training.local_batch_size=1",
       "parallelism.logical_dp=5", "parallelism.context_parallel_degree=2"},
      12);
  const std::string message = message_of([&] { (void)load("", options); });
  for (const char* part :
       {"4 problems", "2 x parallelism.context_parallel_degree = 4",
        "kv_heads = 2 and ffn = 1024 do not divide", "nearest: 2 [tp.divides]",
        "training.seq_len = 10", "nearest: 6 or 12",
        "logical_dp = 5: must be a multiple of the 2 data ranks; nearest: 4 or 6"}) {
    expect_contains(message, part);
  }
}

TEST(LayoutConfig, keys_of_context_parallelism_become_the_layout) {
  const Config c = load_solved("", with({"parallelism.context_parallel_degree=4",
                                         "parallelism.context_parallel_kind=ulysses_gather",
                                         "parallelism.context_parallel_slices=striped"},
                                        8));
  EXPECT_EQ(c.parallelism.data_parallel_shard_degree, 2);
  const spec::Layout layout = settled_layout(c);
  EXPECT_EQ(layout.cp, 4);
  EXPECT_EQ(layout.context_kind, spec::ContextKind::ulysses_gather);
  EXPECT_EQ(layout.context_slices, spec::ContextSlices::striped);
  EXPECT_EQ(layout.ulysses, 2) << "llama-15m has 2 kv heads";
  EXPECT_EQ(layout.zero_stage, 3);
  Config other = c;
  set_layout(other, layout);
  EXPECT_EQ(settled_layout(other), layout);
}

TEST(LayoutConfig, keys_of_a_recipe_become_the_layout) {
  const Config c = load_solved("", with({"precision.recipe=fp8", "precision.bf16_first=2",
                                         "precision.bf16_last=0", "precision.bf16_blocks=[3,4]"},
                                        1));
  EXPECT_EQ(c.precision.recipe, "fp8-tensor");
  const spec::Layout layout = settled_layout(c);
  EXPECT_EQ(layout.precision, spec::Precision::fp8);
  EXPECT_EQ(layout.bf16_first, 2);
  EXPECT_EQ(layout.bf16_last, 0);
  EXPECT_EQ(layout.bf16_blocks, (std::vector<int>{3, 4}));
  Config other = c;
  set_layout(other, layout);
  EXPECT_EQ(settled_layout(other), layout);
  const TemporaryFolder folder;
  EXPECT_TRUE(load_solved(folder.write("run.json", to_json(c).dump()), with({}, 1)) == c);
}

TEST(LayoutConfig, the_alias_of_the_recipe_must_agree_with_it) {
  const auto recipe = [](const std::string& file, std::vector<std::string> overrides) {
    const TemporaryFolder folder;
    return load_solved(folder.write("run.toml", file), with(std::move(overrides), 1))
        .precision.recipe;
  };
  const auto message = [&](const std::string& file, const std::vector<std::string>& overrides) {
    return message_of([&] { (void)recipe(file, overrides); });
  };
  EXPECT_EQ(recipe("", {"training.dtype=bfloat16"}), "bf16");
  EXPECT_EQ(recipe("", {"training.dtype=FP8", "precision.recipe=fp8-tensor"}), "fp8-tensor");
  const std::string both = "[training]\ndtype = \"bf16\"\n[precision]\nrecipe = \"fp8-block\"\n";
  expect_contains(message(both, {}),
                  "run.toml:4: precision.recipe = \"fp8-block\", but training.dtype = \"bf16\" (");
  expect_contains(message(both, {}), "run.toml:2): both name the recipe; remove one of them");
  // An override replaces what the file gives under the other name.
  EXPECT_EQ(recipe("[training]\ndtype = \"bf16\"\n", {"precision.recipe=fp16"}), "fp16");
  EXPECT_EQ(recipe("[precision]\nrecipe = \"bf16\"\n", {"training.dtype=fp32"}), "fp32");
  expect_contains(message("", {"precision.recipe=fp16", "training.dtype=fp32"}),
                  "override precision.recipe=fp16: precision.recipe = \"fp16\", but");
  expect_contains(message("", {"precision.recipe=fp4"}),
                  "precision.recipe = \"fp4\": must be one of auto, fp32, bf16, fp16, fp8-tensor, "
                  "fp8-block, fp8-delayed; fp4 is not supported here");
  // Rules name the key that was given.
  expect_contains(message("", {"training.dtype=fp16", "optimizer.master_dtype=u16"}),
                  "optimizer.master_dtype = u16: must be f32 if training.dtype = fp16");
}

// ---- pipelines (llama-15m: 6 blocks, with embedding and head 8 layers)

TEST(LayoutConfig, pipeline_keys_become_the_layout) {
  const Config c =
      load_solved("", with({"parallelism.pipeline_parallel_degree=2",
                            "parallelism.pipeline_parallel_schedule=Interleaved",
                            "parallelism.pipeline_parallel_first_layers=[0, 3,5, 7]",
                            "parallelism.pipeline_parallel_send_buffers=3",
                            "training.local_batch_size=1", "training.global_batch_size=8"},
                           4));
  EXPECT_EQ(c.parallelism.data_parallel_shard_degree, 2);
  const spec::Layout layout = settled_layout(c);
  EXPECT_EQ(layout.pp, 2);
  EXPECT_EQ(layout.schedule, schedule::Kind::interleaved);
  EXPECT_EQ(layout_of(c).chunks, 0);
  EXPECT_EQ(layout.chunks, 2);
  EXPECT_EQ(layout.first_layers, (std::vector<int>{0, 3, 5, 7}));
  EXPECT_EQ(layout.send_buffers, 3);
  EXPECT_TRUE(layout.keeps_params());  // ZeRO-3 in a pipeline
  EXPECT_EQ(layout.ranks(), 4);
  const TemporaryFolder folder;
  const LoadOptions again{.overrides = {}, .model_folders = {shipped_models()}, .world = 4};
  EXPECT_TRUE(load_solved(folder.write("run.json", to_json(c).dump()), again) == c);
}

TEST(LayoutConfig, the_remaining_ranks_may_be_the_pipeline) {
  const Config c = load_solved(
      "", with({"parallelism.pipeline_parallel_degree=-1", "parallelism.tensor_parallel_degree=2",
                "training.global_batch_size=32"},
               8));
  EXPECT_EQ(c.parallelism.pipeline_parallel_degree, 4);
  EXPECT_EQ(c.parallelism.data_parallel_shard_degree, 1);
  EXPECT_FALSE(settled_layout(c).keeps_params());
}

TEST(LayoutConfig, sharded_parameters_are_released_as_configured) {
  const auto keeps = [](const std::string& asked, const std::string& pp) {
    return settled_layout(load_solved("", with({"parallelism.fsdp_reshard_after_forward=" + asked,
                                                "parallelism.pipeline_parallel_degree=" + pp},
                                               4)))
        .keeps_params();
  };
  EXPECT_FALSE(keeps("default", "1"));
  EXPECT_TRUE(keeps("never", "1"));
  EXPECT_FALSE(keeps("always", "2"));
  EXPECT_TRUE(keeps("default", "2"));
}

TEST(LayoutConfig, a_custom_schedule_is_read_and_compared) {
  const TemporaryFolder folder;
  const auto message = [&](const std::string& text, const std::string& sequences = "2") {
    const std::string file = folder.write("mine.txt", text).string();
    return message_of([&] {
      (void)load("",
                 with({"parallelism.pipeline_parallel_degree=2",
                       "parallelism.pipeline_parallel_schedule_file=" + file,
                       "training.local_batch_size=1", "training.global_batch_size=" + sequences},
                      2));
    });
  };
  const std::string good = "0F0 0F1 0BW0 0BW1\n1F0 1BW0 1F1 1BW1\n";
  EXPECT_EQ(message(good), "");
  expect_contains(message(good, "3"),
                  "schedule_file: it has 2 micro-batches, but a rank runs 3 in a step; nearest: "
                  "training.global_batch_size = 2");
  expect_contains(message("0F0 0BW0 1F0 1BW0\n", "1"), "it is for 1 ranks, but");
  expect_contains(message("0F0 0F1 0BW0 0BW1\n1F0 1BX0\n"), "mine.txt: line 2, column 6");
  expect_contains(message("0F0 0F1 0BW0 0BW1\n1F0 1F1 1BW0\n"), "schedule_file: ");
  const std::string sends = "0F0 0SendY0>1 0RecvDy0<1 0BW0\n1RecvX0<0 1F0 1BW0 1SendDx0>0\n";
  EXPECT_EQ(message(sends, "1"), "");
  expect_contains(message("0F0 0BW0\n1F0 1R0 1BW0\n", "1"), "leave R out");
  const std::string gone = message_of(
      [&] { (void)load("", with({"parallelism.pipeline_parallel_schedule_file=nosuch.txt"}, 1)); });
  expect_contains(gone, "nosuch.txt: no such file");
}

// ---- rules

std::string model_text(const spec::ModelDims& d) {
  return fmt::format(
      "family = \"llama\"\nlayers = {}\nhidden = {}\nheads = {}\nkv_heads = {}\nffn = {}\nvocab = "
      "{}\nmax_seq = {}\ntied_head = {}\nqk_norm = {}\nqk_norm_whole = {}\n",
      d.layers, d.hidden, d.heads, d.kv_heads, d.ffn, d.vocab, d.max_seq, d.tied_head, d.qk_norm,
      d.qk_norm_whole);
}

// Loading a file reports every broken rule with its id. The schema refuses values that it does not
// allow.
TEST(LayoutConfig, every_rule_is_named_by_its_id) {
  const std::set<std::string> without_key = {
      "degree.one_rest",       "placement.engine",   "ep.ranks",           "etp.divides",
      "ep.sequence",           "ep.ffn_rows",        "row_budget.range",   "cp.seq_len",
      "expert_capacity.range", "batch.accumulation", "inference.one_rank", "batch.micro_batches",
      "batch.activations"};
  const std::set<std::string> outside_schema = {
      "degree.range",          "batch.micro_batch", "batch.tokens",   "precision.engine",
      "grad_dtype.kind",       "reduce_dtype.kind", "prefetch.range", "send_buffers.range",
      "head_chunk_rows.range", "ffn_rows.range"};
  for (const spec::BrokenSample& sample : spec::broken_samples()) {
    if (without_key.contains(sample.id)) continue;
    const TemporaryFolder folder;
    Config c;
    set_layout(c, sample.asked);
    c.model.name = folder.write("model.toml", model_text(spec::sample_dims(sample))).string();
    if (sample.asked.custom_schedule) {
      c.parallelism.pipeline_parallel_schedule_file =
          folder.write("schedule.txt", schedule::to_text(*sample.asked.custom_schedule)).string();
    }
    if (sample.asked.accumulation > 0) {
      const int workers =
          sample.asked.logical_dp > 0 ? sample.asked.logical_dp : sample.asked.data_ranks();
      c.training.global_batch_size = sample.asked.micro_batch * sample.asked.accumulation * workers;
    }
    if (sample.work.global_batch > 0) c.training.global_batch_size = sample.work.global_batch;
    c.training.seq_len = sample.work.seq_len;
    std::vector<std::string> overrides;
    for (const Key& key : keys_of(c)) {
      const bool is_layout = key.section == "parallelism" || key.section == "training" ||
                             key.section == "activation_checkpoint" || key.name == "master_dtype" ||
                             key.section == "precision" || key.path() == "optimizer.name" ||
                             key.path() == "model.name";
      if (is_layout) overrides.push_back(key.path() + "=" + override_text(key));
    }
    const std::string message = message_of(
        [&] { (void)load("", {.overrides = overrides, .world = static_cast<int>(sample.ranks)}); });
    const bool is_named = message.find("[" + sample.id + "]") != std::string::npos;
    // The schema refuses the value before any rule is checked.
    EXPECT_EQ(is_named, !outside_schema.contains(sample.id)) << sample.id << ": " << message;
    EXPECT_NE(message, "") << sample.id;
  }
}

}  // namespace
}  // namespace trireme::config
