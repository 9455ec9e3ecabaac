// SPDX-License-Identifier: Apache-2.0
#include "plan/import/from_megatron.h"

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

Described megatron_run(std::string_view text, int64_t gpus) {
  return from_megatron(text, gpus, shipped_stack);
}

std::string megatron_refusal(const std::string& text, int64_t gpus = 0) {
  try {
    (void)megatron_run(text, gpus);
  } catch (const base::ConfigError& error) {
    return error.what();
  }
  return "";
}
bool notes(const std::vector<std::string>& list, std::string_view part) {
  return std::any_of(list.begin(), list.end(),
                     [part](const std::string& one) { return has(one, part); });
}
double seconds_of(const Described& d, const std::string& machine_name) {
  const spec::Machine machine =
      config::machine_from_file(machine_name, {source_root() / "machines"});
  Pricer pricer(d.job, machine, d.stack);
  const Price price = pricer.price(*d.layout);
  EXPECT_GT(price.bytes, 0);
  return price.seconds;
}

// The flags of Megatron's example for 175B, in the form of its script.
constexpr const char* gpt3 = R"(#!/bin/bash
GPUS_PER_NODE=8
NUM_NODES=128
DATA_PATH=$5 # a prefix
LAUNCH=(
    --nproc_per_node $GPUS_PER_NODE
    --nnodes $NUM_NODES
    --master_addr localhost
)
MODEL=(
    --num-layers 96
    --hidden-size 12288
    --num-attention-heads 96
    --seq-length 2048
    --max-position-embeddings 2048
    --attention-backend auto # (flash/fused/unfused/local)
)
TRAINING=(
    --micro-batch-size 1 --global-batch-size 1536 --rampup-batch-size 16 16 5859375
    --train-iters 500000 --weight-decay 0.1 --adam-beta1 0.9 --init-method-std 0.006
    --clip-grad 1.0 --fp16 --lr 6.0e-5 --lr-decay-style cosine --min-lr 6.0e-6
)
PARALLEL=(
	--tensor-model-parallel-size 8
	--pipeline-model-parallel-size 16
)
DATA=( --data-path $DATA_PATH --vocab-file $3 --merge-file $4 --split 949,50,1 )
LOGS=( --log-interval 100 --save-interval 10000 --save $1 --load $1 --tensorboard-dir $2 )
torchrun ${LAUNCH[@]} pretrain_gpt.py ${MODEL[@]} ${TRAINING[@]} ${PARALLEL[@]} ${DATA[@]} ${LOGS[@]}
)";

constexpr const char* megatron_llama70 =
    "torchrun --nproc-per-node=8 --nnodes=32 pretrain_gpt.py --use-mcore-models --num-layers 80 "
    "--hidden-size 8192 --ffn-hidden-size 28672 --num-attention-heads 64 --group-query-attention "
    "--num-query-groups 8 --seq-length 8192 --max-position-embeddings 8192 --padded-vocab-size "
    "128256 --swiglu --normalization RMSNorm --disable-bias-linear --position-embedding-type rope "
    "--rotary-base 500000 --untie-embeddings-and-output-weights --hidden-dropout 0.0 "
    "--attention-dropout 0.0 --tensor-model-parallel-size 4 --pipeline-model-parallel-size 4 "
    "--num-layers-per-virtual-pipeline-stage 5 --context-parallel-size 2 --sequence-parallel "
    "--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather --tp-comm-overlap "
    "--micro-batch-size 1 --global-batch-size 128 --bf16 --recompute-activations ";

TEST(FromMegatron, the_example_of_175b_is_the_shipped_model) {
  const Described d = megatron_run(gpt3, 0);
  spec::ModelDims dims = config::model_from_file("gpt3-175b", {source_root() / "configs/models"});
  dims.vocab = 51200;  // Megatron pads to 128 tp
  dims.name = d.job.model.name;
  EXPECT_TRUE(d.job.model == spec::make_model(dims));
  ASSERT_TRUE(d.dims);
  EXPECT_TRUE(spec::make_model(*d.dims) == d.job.model);
  EXPECT_EQ(d.job.seq_len, 2048);
  EXPECT_EQ(d.job.global_batch, 1536);
  EXPECT_EQ(d.gpus, 1024);
  const Layout expected{.tp = 8, .pp = 16, .dp_replicate = 8, .precision = Precision::fp16};
  EXPECT_TRUE(*d.layout == expected) << words(*d.layout);
  EXPECT_EQ(d.stack.name, "megatron-core");
  EXPECT_EQ(d.stack.dp_overlap, 0);
  EXPECT_TRUE(d.ignored.empty()) << d.ignored.front();
  for (const char* part : {"GPT2BPETokenizer", "51200", "ramp", "dropout", "49152"}) {
    EXPECT_TRUE(notes(d.assumed, part)) << part;
  }
  EXPECT_TRUE(notes(d.assumed_speed, "fp16"));
  // About 140 TFLOP/s per GPU: 6 x 175e9 x 3.1e6 tokens on 1024 of them take 23 s.
  // The price is 13 % below it.
  EXPECT_NEAR(seconds_of(d, "a100-80gb"), 23, 0.2 * 23);
}

TEST(FromMegatron, types_of_context_parallelism_become_kinds) {
  const auto read = [](const std::string& more) {
    return *megatron_run(std::string(megatron_llama70) + more, 0).layout;
  };
  EXPECT_EQ(read("--cp-comm-type p2p").context_kind, spec::ContextKind::ring);
  EXPECT_EQ(read("--cp-comm-type allgather").context_kind, spec::ContextKind::gather);
  EXPECT_EQ(read("--cp-comm-type all_gather").context_kind, spec::ContextKind::gather);
  EXPECT_EQ(read("--cp-comm-type a2a a2a").context_kind, spec::ContextKind::ulysses);
  const Layout product = read(
      "--context-parallel-size 4 --cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 2 2");
  EXPECT_EQ(product.context_kind, spec::ContextKind::ulysses_ring);
  EXPECT_EQ(product.ulysses, 2);
  const auto refusal = [](const std::string& more) {
    return megatron_refusal(std::string(megatron_llama70) + more, 0);
  };
  EXPECT_TRUE(
      has(refusal("--cp-comm-type a2a+p2p"), "needs --hierarchical-context-parallel-sizes"));
  EXPECT_TRUE(has(refusal("--cp-comm-type nvlink"), "expected p2p, a2a, allgather or a2a+p2p"));
  EXPECT_TRUE(
      notes(megatron_run(std::string(megatron_llama70) + "--cp-comm-type p2p a2a", 0).assumed,
            "--cp-comm-type p2p in all layers"));
}

TEST(FromMegatron, the_callers_number_of_gpus_overrides_the_flags) {
  const Described d = megatron_run(gpt3, 1536);
  EXPECT_EQ(d.gpus, 1536);
  EXPECT_EQ(d.layout->data_ranks(), 12);
  EXPECT_TRUE(notes(d.assumed, "not the 1024 of the flags"));
  EXPECT_TRUE(has(megatron_refusal(gpt3, 100), "a multiple of 128"));
}

TEST(FromMegatron, a_llama_has_all_its_axes) {
  const Described d = megatron_run(megatron_llama70, 0);
  const Layout expected{.tp = 4,
                        .cp = 2,
                        .pp = 4,
                        .dp_shard = 8,
                        .zero_stage = 1,
                        .sequence_parallel = true,
                        .context_kind = spec::ContextKind::ring,
                        .schedule = Kind::interleaved,
                        .chunks = 4,
                        .recompute = spec::Recompute::selective};
  EXPECT_TRUE(*d.layout == expected) << words(*d.layout);
  ASSERT_TRUE(d.dims);
  const auto shipped = config::model_from_file("llama3-70b", {source_root() / "configs/models"});
  EXPECT_EQ(spec::parameter_count(d.job.model), spec::parameter_count(spec::make_model(shipped)));
  EXPECT_TRUE(d.assumed.empty()) << d.assumed.front();
  EXPECT_TRUE(d.ignored.empty()) << d.ignored.front();
  EXPECT_GT(d.stack.dp_overlap, 0);
  EXPECT_GT(seconds_of(d, "h100"), 1);
}

TEST(FromMegatron, experts_are_read) {
  const Described d = megatron_run(
      std::string(megatron_llama70) +
          "--num-experts 8 --moe-ffn-hidden-size 4096 --moe-shared-expert-intermediate-size 512 "
          "--moe-layer-freq \"([0]*2+[1]*78)\" --expert-model-parallel-size 4 "
          "--moe-aux-loss-coeff 1e-2 --moe-token-dispatcher-type alltoall "
          "--expert-tensor-parallel-size 2 --moe-router-group-topk 1 --moe-router-num-groups 4",
      0);
  const spec::MoeSpec& moe = *spec::moe_of(d.job.model);
  EXPECT_EQ(moe.router.experts, 8);
  EXPECT_EQ(moe.router.chosen, 2);
  EXPECT_EQ(moe.router.groups, 4);
  EXPECT_EQ(moe.router.chosen_groups, 1);
  EXPECT_EQ(moe.ffn, 4096);
  EXPECT_EQ(moe.shared_ffn, 512);
  EXPECT_EQ(d.layout->ep, 4);
  EXPECT_EQ(d.layout->etp, 2);
  ASSERT_TRUE(d.dims);
  EXPECT_EQ(d.dims->dense_layers, 2);
  EXPECT_TRUE(d.ignored.empty()) << d.ignored.front();
  EXPECT_FALSE(d.stack.two_level_dispatch);
  EXPECT_GT(seconds_of(d, "h100"), 0.1);
}

TEST(FromMegatron, flags_of_fp8_are_a_recipe) {
  const std::string small =
      "--num-layers 8 --hidden-size 512 --num-attention-heads 8 --seq-length 256 "
      "--micro-batch-size 2 --vocab-size 32000 --bf16 --use-distributed-optimizer "
      "--fp8-format hybrid ";
  const auto run = [&](const std::string& more) { return megatron_run(small + more, 8); };
  EXPECT_EQ(run("--fp8-amax-history-len 16").layout->precision, Precision::fp8_delayed);
  EXPECT_EQ(run("--fp8-recipe delayed").layout->precision, Precision::fp8_delayed);
  EXPECT_EQ(run("--fp8-recipe tensorwise").layout->precision, Precision::fp8);
  EXPECT_EQ(run("--fp8-recipe blockwise").layout->precision, Precision::fp8_block);
  EXPECT_EQ(run("--fp8-recipe mxfp8").layout->precision, Precision::fp8_block);
  EXPECT_TRUE(run("--fp8-recipe mxfp8").ignored.empty());
  EXPECT_TRUE(has(megatron_refusal(small + "--fp8-recipe rows", 8),
                  "--fp8-recipe: found rows, expected one of delayed, tensorwise, blockwise"));
  // Numbers of blocks count only with the flag that switches them on.
  EXPECT_EQ(run("--num-layers-at-start-in-bf16 2").layout->bf16_first, 0);
  EXPECT_EQ(run("--first-last-layers-bf16").layout->bf16_first, 1);
  const Described d =
      run("--first-last-layers-bf16 --num-layers-at-start-in-bf16 0 --num-layers-at-end-in-bf16 3");
  EXPECT_EQ(d.layout->bf16_first, 0);
  EXPECT_EQ(d.layout->bf16_last, 3);
  EXPECT_TRUE(d.ignored.empty());
  EXPECT_EQ(run("--fp8-param-gather").stack.gather_bytes, 1);
  EXPECT_EQ(run("").stack.gather_bytes, 2);
  for (const char* recipe : {"delayed", "tensorwise", "blockwise"}) {
    EXPECT_GT(seconds_of(run(std::string("--fp8-recipe ") + recipe), "h100"), 0) << recipe;
  }
}

TEST(FromMegatron, words_that_change_the_price_are_understood_or_refused) {
  const std::string small =
      "--num-layers 8 --hidden-size 512 --num-attention-heads 8 --seq-length 256 "
      "--micro-batch-size 2 --vocab-size 32000 --bf16 ";
  const std::vector<std::pair<const char*, const char*>> refused = {
      {"--fp8-format e6m1", "--fp8-format: found e6m1, expected one of e4m3, hybrid"},
      {"--fp4-format e3m0", "--fp4-format: found e3m0, expected one of e2m1"},
      {"--attention-backend triton", "--attention-backend: found triton, expected one of auto"},
      {"--transformer-impl fast", "--transformer-impl: found fast, expected one of local"},
      {"--main-grads-dtype int8", "--main-grads-dtype: found int8, expected one of fp32"},
      {"--optimizer-cpu-offload", "--optimizer-cpu-offload: not modelled"},
  };
  for (const auto& [flags, message] : refused) {
    const std::string found = megatron_refusal(small + flags, 8);
    EXPECT_TRUE(has(found, message)) << flags << ": " << found;
  }
  const Described d = megatron_run(
      small + "--use-precision-aware-optimizer --exp-avg-dtype bf16 --main-params-dtype fp32", 8);
  EXPECT_TRUE(d.ignored.empty()) << d.ignored.front();
  EXPECT_TRUE(std::ranges::find(d.assumed, "fp32 instead of --exp-avg-dtype bf16") !=
              d.assumed.end());
}

TEST(FromMegatron, sharding_recompute_and_precision_have_their_flags) {
  const std::string small =
      "--num-layers 4 --hidden-size 512 --num-attention-heads 8 --seq-length 256 "
      "--micro-batch-size 2 --vocab-size 32000 --untie-embeddings-and-output-weights ";
  const auto layout = [&](const std::string& more) {
    return *megatron_run(small + more, 8).layout;
  };
  EXPECT_EQ(layout("").precision, Precision::fp32);
  EXPECT_EQ(layout("").zero_stage, 0);
  EXPECT_EQ(layout("--use-distributed-optimizer --bf16").zero_stage, 1);
  EXPECT_EQ(layout("--use-torch-fsdp2").zero_stage, 3);
  EXPECT_EQ(layout("--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads").zero_stage,
            2);
  EXPECT_EQ(
      layout("--use-custom-fsdp --data-parallel-sharding-strategy=optim_grads_params").zero_stage,
      3);
  EXPECT_EQ(layout("--fp16").precision, Precision::fp16);
  EXPECT_EQ(layout("--recompute-granularity full --recompute-method uniform").recompute,
            spec::Recompute::full);
  EXPECT_EQ(layout("--recompute-granularity selective").recompute, spec::Recompute::selective);
  EXPECT_EQ(layout("--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2 "
                   "--global-batch-size 64")
                .chunks,
            2);
  // Megatron's default: one micro-batch per rank.
  EXPECT_EQ(megatron_run(small, 8).job.global_batch, 16);
  // A mix that is none of Trireme's families can still be priced.
  const Described mixed = megatron_run(small + "--swiglu --position-embedding-type rope --bf16", 8);
  EXPECT_FALSE(mixed.dims);
  const auto& block = spec::typical_block(mixed.job.model);
  EXPECT_TRUE(block.linear_bias && block.rope && block.norm == spec::NormKind::layer);
  EXPECT_EQ(block.ffn, 1344);  // 8/3 of the width, in 64s
  EXPECT_GT(seconds_of(mixed, "h100"), 0);
  EXPECT_EQ(megatron_run(small + "--use-legacy-models", 8).stack.name, "megatron-2021");
  EXPECT_EQ(megatron_run(small + "--bf16 --grad-reduce-in-bf16", 8).stack.reduce_bytes, 2);
  const Described old = megatron_run(small + "--activations-checkpoint-method uniform --fp16", 8);
  EXPECT_EQ(old.stack.name, "megatron-2021");
  EXPECT_EQ(old.layout->recompute, spec::Recompute::full);
}

TEST(FromMegatron, without_gpus_the_batch_must_be_given) {
  const std::string text =
      "--num-layers 4 --hidden-size 512 --num-attention-heads 8 --seq-length 256 "
      "--micro-batch-size 2 --bf16 ";
  EXPECT_TRUE(has(megatron_refusal(text), "--global-batch-size: required"));
  const Described d = megatron_run(text + "--global-batch-size 64", 0);
  EXPECT_EQ(d.gpus, 0);
  EXPECT_EQ(d.layout->data_ranks(), 1);
  EXPECT_EQ(d.job.global_batch, 64);
}

TEST(FromMegatron, all_missing_flags_are_named_at_once) {
  const std::string text = megatron_refusal("--bf16 --hidden-size x");
  for (const char* flag :
       {"--num-layers", "--num-attention-heads", "--seq-length", "--micro-batch-size"}) {
    EXPECT_TRUE(has(text, std::string(flag) + ": required, but not given")) << text;
  }
  EXPECT_TRUE(has(text, "--hidden-size: found x, expected a whole number")) << text;
  EXPECT_TRUE(has(text, "5 problems")) << text;
  EXPECT_TRUE(has(megatron_refusal("--num-layers $LAYERS"), "the shell's variables are unknown"));
}

TEST(FromMegatron, contradictions_name_their_flag) {
  const auto with = [](const std::string& more) {
    return megatron_refusal(megatron_llama70 + more);
  };
  EXPECT_EQ(with(""), "");
  EXPECT_TRUE(has(with("--tensor-model-parallel-size 3 --world-size 72"),
                  "--tensor-model-parallel-size = 3: heads = 64, kv_heads = 8 and ffn = 28672 do "
                  "not divide by it; nearest: 2 or 4 [tp.divides]"));
  EXPECT_TRUE(has(with("--pipeline-model-parallel-size 3"), "3 does not divide --num-layers 80"));
  EXPECT_TRUE(has(with("--num-layers-per-virtual-pipeline-stage 3"), "the 20 layers of a rank"));
  EXPECT_TRUE(has(with("--num-virtual-stages-per-pipeline-rank 4"), "give one of them"));
  EXPECT_TRUE(has(with("--pipeline-model-parallel-size 1"), "has no effect without"));
  EXPECT_TRUE(has(with("--fp16"), "--fp16: contradicts --bf16"));
  EXPECT_TRUE(has(with("--global-batch-size 100"),
                  "--global-batch-size = 100: must be a multiple of --micro-batch-size"));
  EXPECT_TRUE(has(with("--seq-length 9000"), "above --max-position-embeddings 8192"));
  EXPECT_TRUE(has(with("--expert-model-parallel-size 2"),
                  "--expert-model-parallel-size = 2: the model has no experts"));
  EXPECT_TRUE(has(with("--num-experts 6 --expert-model-parallel-size 4"),
                  "--expert-model-parallel-size = 4: 6 experts do not divide by it"));
  EXPECT_TRUE(
      has(with("--num-experts 8 --moe-layer-freq 2"), "--moe-layer-freq: 2 is not modelled"));
  EXPECT_TRUE(
      has(with("--num-experts 8 --moe-token-dispatcher-type ring"), "--moe-token-dispatcher-type"));
  EXPECT_TRUE(has(with("--multi-latent-attention"), "--multi-latent-attention: not modelled"));
  EXPECT_TRUE(has(with("--use-torch-fsdp2"), "contradicts --use-distributed-optimizer"));
  EXPECT_TRUE(has(with("--num-layers 80 40"), "takes one value"));
  EXPECT_TRUE(has(with("--bf16=1"), "takes no value"));
  EXPECT_TRUE(has(with("--tokenizer-type HuggingFaceTokenizer --padded-vocab-size 0"),
                  "--padded-vocab-size: found 0"));
  EXPECT_TRUE(has(megatron_refusal(megatron_llama70, -1), "-1 GPUs"));
}

TEST(FromMegatron, damaged_text_is_read_or_rejected) {
  constexpr std::string_view letters = "\"'$(){}=-#\\\n 0179aZ[]+;";
  uint64_t state = 1;
  const auto next = [&state](size_t below) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    return static_cast<size_t>(state >> 33) % below;
  };
  int refused = 0;
  for (int round = 0; round < 2000; ++round) {
    std::string text = round % 2 == 0 ? gpt3 : megatron_llama70;
    for (size_t edits = 1 + next(4); edits > 0; --edits) {
      const size_t at = next(text.size());
      text.replace(at, next(3), 1, letters[next(letters.size())]);
    }
    try {
      const Described d = megatron_run(text, 0);
      EXPECT_GT(d.layout->tp, 0);
    } catch (const base::ConfigError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 100);
  EXPECT_LT(refused, 1900);
}

TEST(FromMegatron, flags_that_were_not_read_are_listed) {
  const Described d =
      megatron_run(std::string(megatron_llama70) +
                       "--cross-entropy-loss-fusion --swigluu --lr 1e-4 --micro-batch-size 2 "
                       "--num-layers 80",
                   0);
  const std::vector<std::string> expected = {"--cross-entropy-loss-fusion",
                                             "--swigluu (did you mean --swiglu?)"};
  EXPECT_EQ(d.ignored, expected);
  EXPECT_EQ(d.layout->micro_batch, 2);
  EXPECT_TRUE(notes(d.assumed, "--micro-batch-size 2, the last of several"));
}

}  // namespace
}  // namespace trireme::plan
