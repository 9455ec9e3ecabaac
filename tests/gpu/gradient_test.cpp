// SPDX-License-Identifier: Apache-2.0
// The same model, weights and batch on the GPU and on the CPU: initial weights, loss, gradients.
#include <cmath>

#include "tests/gpu/gpu_rig.h"

namespace trireme::tests {
namespace {

using StartTest = GpuTest;
using GradientTest = GpuTest;

TEST_F(StartTest, weights_have_the_same_bits_as_on_the_cpu) {
  for (const spec::ModelDims& dims :
       {tiny_gpt2(), tiny_llama(), tiny_qwen3(), medium_llama(), model_file("gpt2-124m")}) {
    for (const char* recipe : {"fp32", "bf16"}) {
      const Trial trial{.dims = dims, .recipe = recipe, .sequences = 1};
      DeviceRig cpu(Where::cpu, trial), gpu(Where::gpu, trial);
      EXPECT_EQ(gpu.engine->weights_sha256(), cpu.engine->weights_sha256())
          << dims.name << " " << recipe;
    }
  }
}

// The results of one forward and backward.
struct Outcome {
  double loss = 0;
  int64_t tokens = 0;
  float norm = 0;
  std::vector<NamedValues> grads;
};

Outcome outcome_of(Where where, const Trial& trial) {
  DeviceRig rig(where, trial);
  PackedSource packed(3, trial);
  if (trial.document_mask) {
    rig.engine->accumulate(packed);
  } else {
    rig.engine->accumulate(rig.source);
  }
  Outcome outcome;
  outcome.grads = grads_of(*rig.engine);
  rig.engine->apply(1e-3);
  const engine::StepReport report = rig.engine->report();
  outcome.loss = report.mean_loss;
  outcome.tokens = report.tokens;
  outcome.norm = report.grad_norm;
  return outcome;
}

std::string name_of(const Trial& s) {
  return fmt::format("{} {} {}x{}x{} recompute {}{}", s.dims.name, s.recipe, s.microbatches,
                     s.sequences, s.seq_len, spec::name_of(s.recompute),
                     s.document_mask ? " documents" : "");
}

// fp32 on both: only the order of sums differs, and the GPU's exp and tanh by units in the last
// place. A gradient is the result of about a hundred such sums.
void expect_fp32(const Trial& trial) {
  const Outcome cpu = outcome_of(Where::cpu, trial), gpu = outcome_of(Where::gpu, trial);
  const std::string what = name_of(trial);
  EXPECT_EQ(gpu.tokens, cpu.tokens) << what;
  EXPECT_NEAR(gpu.loss, cpu.loss, 1e-5 * cpu.loss) << what;
  EXPECT_NEAR(gpu.norm, cpu.norm, 1e-4F * cpu.norm) << what;
  expect_near(gpu.grads, cpu.grads, 1e-4, what);
}

// bf16 keeps eight bits of the output of a layer, fp16 eleven. Both devices round at the same
// places, so their distances from fp32 are similar; a wrong term would change tens of percent.
struct Half {
  const char* recipe;
  double loss, grads;  // bounds
};
constexpr Half bf16 = {"bf16", 5e-3, 2e-2}, fp16 = {"fp16", 1e-3, 5e-3};

void expect_half(const Half& half, Trial trial) {
  trial.recipe = half.recipe;
  trial.engine.loss_scale.initial = 4096;  // few tokens: the first scale would overflow
  const Outcome cpu = outcome_of(Where::cpu, trial), gpu = outcome_of(Where::gpu, trial);
  const std::string what = name_of(trial);
  trial.recipe = "fp32";
  const Outcome exact = outcome_of(Where::cpu, trial);
  EXPECT_EQ(gpu.tokens, cpu.tokens) << what;
  EXPECT_NEAR(gpu.loss, exact.loss, half.loss * exact.loss) << what;
  EXPECT_NEAR(gpu.loss, cpu.loss, half.loss * cpu.loss) << what;
  const double of_cpu = largest_error(cpu.grads, exact.grads);
  std::printf("%s: %s on the CPU is within %.2e of fp32\n", what.c_str(), half.recipe, of_cpu);
  expect_near(gpu.grads, exact.grads, std::max(half.grads, 1.5 * of_cpu), what + " against fp32");
  expect_near(gpu.grads, cpu.grads, std::max(half.grads, 2 * of_cpu), what + " against the CPU's");
}
void expect_bf16(const Trial& trial) { expect_half(bf16, trial); }
void expect_fp16(const Trial& trial) { expect_half(fp16, trial); }

TEST_F(GradientTest, tiny_models_in_fp32) {
  for (const spec::ModelDims& dims : {tiny_gpt2(), tiny_llama(), tiny_qwen3(), tiny_whole_norm(),
                                      tiny_clipped(), tiny_moe(), tiny_shared_moe()}) {
    for (const int64_t seq_len : {13, 1}) {
      expect_fp32({.dims = dims, .sequences = 3, .seq_len = seq_len});
    }
    expect_fp32({.dims = dims, .head_chunk_rows = 10});
    expect_fp32({.dims = dims, .microbatches = 3});
    expect_fp32({.dims = dims, .recompute = spec::Recompute::full});
  }
}

TEST_F(GradientTest, tiny_models_in_bf16) {
  for (const spec::ModelDims& dims : {tiny_gpt2(), tiny_llama(), tiny_qwen3()}) {
    expect_bf16({.dims = dims});
    expect_bf16({.dims = dims, .microbatches = 3, .head_chunk_rows = 10});
  }
}

TEST_F(GradientTest, models_in_fp16) {
  for (const spec::ModelDims& dims : {tiny_gpt2(), tiny_qwen3(), tiny_moe(), tiny_shared_moe()}) {
    expect_fp16({.dims = dims, .microbatches = 3, .head_chunk_rows = 10});
  }
  expect_fp16({.dims = tiny_qwen3(), .sequences = 3, .document_mask = true});
  // Attention by cuDNN, in both modes.
  for (const bool deterministic : {true, false}) {
    for (const int64_t seq_len : {256, 200}) {
      expect_fp16({.dims = medium_llama(), .seq_len = seq_len, .deterministic = deterministic});
    }
  }
}

TEST_F(GradientTest, documents_are_independent) {
  for (const spec::ModelDims& dims : {tiny_gpt2(), tiny_qwen3(), medium_llama()}) {
    const int64_t seq_len = dims.max_seq > 16 ? 200 : 13;
    const Trial trial{.dims = dims, .sequences = 3, .seq_len = seq_len, .document_mask = true};
    expect_fp32(trial);
    expect_bf16(trial);
  }
}

// Sequences of equal length, heads of 64, bf16: computed by cuDNN, with and without grouped
// queries; 200 is no multiple of its blocks.
TEST_F(GradientTest, medium_models) {
  spec::ModelDims gpt2 = medium_llama();
  gpt2.name = "medium-gpt2";
  gpt2.family = spec::Family::gpt2;
  gpt2.kv_heads = 4;
  gpt2.tied_head = true;
  spec::ModelDims wide = medium_llama();
  wide.name = "medium-llama-128";
  wide.head_dim = 128;
  wide.qk_norm = true;
  for (const spec::ModelDims& dims : {medium_llama(), gpt2, wide}) {
    for (const int64_t seq_len : {256, 200}) {
      const Trial trial{.dims = dims, .seq_len = seq_len};
      expect_fp32(trial);
      expect_bf16(trial);
    }
  }
  expect_bf16({.dims = medium_llama(), .seq_len = 256, .deterministic = false});
}

TEST_F(GradientTest, gpt2_124m) {
  const Trial trial{.dims = model_file("gpt2-124m"), .sequences = 1, .seq_len = 128};
  expect_fp32(trial);
  expect_bf16(trial);
}

// Gradients accumulated in bf16 lose bits below 2^-9 of their value at every addition.
TEST_F(GradientTest, accumulation_in_bf16) {
  for (const spec::ModelDims& dims : {tiny_llama(), medium_llama()}) {
    Trial trial{.dims = dims, .recipe = "bf16", .microbatches = 3, .grad = base::DType::bf16};
    const Outcome cpu = outcome_of(Where::cpu, trial), gpu = outcome_of(Where::gpu, trial);
    EXPECT_NEAR(gpu.loss, cpu.loss, 5e-3 * cpu.loss) << dims.name;
    trial.grad = base::DType::f32;
    trial.recipe = "fp32";
    const Outcome exact = outcome_of(Where::cpu, trial);
    const double of_cpu = largest_error(cpu.grads, exact.grads);
    expect_near(gpu.grads, exact.grads, std::max(3e-2, 1.5 * of_cpu), dims.name + " bf16 sums");
  }
}

}  // namespace
}  // namespace trireme::tests
