// SPDX-License-Identifier: Apache-2.0
// Complete steps on the GPU against the CPU: clipping and skipping, weights after some steps,
// evaluation, logits, and the loss curve of a model that learns.
#include <cmath>

#include "data/yardsticks/markov.h"
#include "tests/gpu/gpu_rig.h"

namespace trireme::tests {
namespace {

using StepTest = GpuTest;
using CurveTest = GpuTest;

void expect_same_report(const engine::StepReport& gpu, const engine::StepReport& cpu,
                        const std::string& what) {
  EXPECT_EQ(gpu.was_skipped, cpu.was_skipped) << what;
  EXPECT_EQ(gpu.applied, cpu.applied) << what;
  EXPECT_EQ(gpu.skipped, cpu.skipped) << what;
  EXPECT_EQ(gpu.skipped_in_a_row, cpu.skipped_in_a_row) << what;
  EXPECT_EQ(gpu.tokens, cpu.tokens) << what;
  EXPECT_EQ(gpu.learning_rate, cpu.learning_rate) << what;
  if (!std::isfinite(cpu.grad_norm)) {
    EXPECT_EQ(gpu.grad_norm, cpu.grad_norm) << what;
    return;
  }
  EXPECT_NEAR(gpu.mean_loss, cpu.mean_loss, 1e-4 * cpu.mean_loss) << what;
  EXPECT_NEAR(gpu.grad_norm, cpu.grad_norm, 1e-3F * cpu.grad_norm) << what;
  if (std::isfinite(cpu.clip_limit)) {
    EXPECT_NEAR(gpu.clip_limit, cpu.clip_limit, 1e-3F * cpu.clip_limit) << what;
  } else {
    EXPECT_EQ(gpu.clip_limit, cpu.clip_limit) << what;  // infinite: no clipping
  }
}

TEST_F(StepTest, clipping_and_skipping_agree_with_the_cpu) {
  for (const auto kind :
       {kernels::ClipKind::none, kernels::ClipKind::fixed, kernels::ClipKind::adaptive}) {
    Trial trial{.dims = tiny_llama(), .microbatches = 2};
    trial.engine.clip = {.kind = kind, .norm = 0.2F, .guard_multiple = 5, .guard_warmup = 3};
    DeviceRig cpu(Where::cpu, trial), gpu(Where::gpu, trial);
    const auto step = [&](const std::string& what) {
      cpu.train(1, 1e-3);
      gpu.train(1, 1e-3);
      const engine::StepReport expected = cpu.engine->report();
      expect_same_report(gpu.engine->report(), expected,
                         fmt::format("clip {}, {}", static_cast<int>(kind), what));
      return expected;
    };
    const auto write = [&](const std::vector<float>& values) {
      cpu.engine->write_weights("head.norm.weight", values);
      gpu.engine->write_weights("head.norm.weight", values);
    };
    for (int i = 0; i < 5; ++i) EXPECT_FALSE(step("step " + std::to_string(i)).was_skipped);
    // A gradient that is 300 times too large, then one that is NaN; both are skipped.
    const std::vector<float> good = cpu.engine->read_weights("head.norm.weight");
    std::vector<float> bad = good;
    for (float& value : bad) value *= 300;
    write(bad);
    EXPECT_TRUE(step("huge").was_skipped);
    bad[1] = std::nanf("");
    write(bad);
    EXPECT_EQ(step("not a number").skipped_in_a_row, 2);
    write(good);
    EXPECT_FALSE(step("good again").was_skipped);
  }
}

// Five steps move the weights by much more than the two devices differ. Adam divides by the size of
// the gradient: if that is rounding only, the step is noise, so eps is above it here.
void expect_near_after_five_steps(const Trial& trial, double bound) {
  DeviceRig cpu(Where::cpu, trial), gpu(Where::gpu, trial);
  const std::vector<NamedValues> start = weights_of(*cpu.engine);
  cpu.train(5, 1e-3);
  gpu.train(5, 1e-3);
  std::vector<NamedValues> moved_cpu = weights_of(*cpu.engine);
  std::vector<NamedValues> moved_gpu = weights_of(*gpu.engine);
  for (size_t i = 0; i < start.size(); ++i) {
    for (size_t e = 0; e < start[i].values.size(); ++e) {
      moved_cpu[i].values[e] -= start[i].values[e];
      moved_gpu[i].values[e] -= start[i].values[e];
    }
  }
  expect_near(moved_gpu, moved_cpu, bound, trial.dims.name + " after five steps");
}

TEST_F(StepTest, weights_after_five_steps) {
  for (const spec::ModelDims& dims : {tiny_llama(), tiny_qwen3(), tiny_gpt2(), medium_llama()}) {
    Trial trial{.dims = dims, .seq_len = dims.max_seq > 16 ? 128 : 13, .microbatches = 2};
    trial.engine.adamw.eps = 1e-5F;
    expect_near_after_five_steps(trial, 1e-2);
  }
}

// Iterations amplify roundings of the smallest singular values of a gradient by up to 3.5^5.
TEST_F(StepTest, weights_after_five_steps_of_muon) {
  for (const spec::ModelDims& dims : {tiny_qwen3(), tiny_gpt2(), medium_llama()}) {
    Trial trial{.dims = dims, .seq_len = dims.max_seq > 16 ? 128 : 13, .microbatches = 2};
    trial.engine.adamw.eps = 1e-5F;
    trial.optimizer = spec::OptimizerKind::muon;
    expect_near_after_five_steps(trial, 2e-2);
  }
}

// Six steps, all but the first from a captured graph, in fp32 so that both devices agree closely.
TEST_F(StepTest, signals_are_those_of_the_cpu) {
  for (const auto optimizer : {spec::OptimizerKind::adamw, spec::OptimizerKind::muon}) {
    Trial trial{.dims = tiny_llama(), .microbatches = 2, .optimizer = optimizer};
    trial.engine.adamw.eps = 1e-4F;
    DeviceRig cpu(Where::cpu, trial), gpu(Where::gpu, trial);
    std::vector<engine::StepSignals> found, expected;
    for (int i = 0; i < 6; ++i) {
      cpu.train(1, 1e-3);
      gpu.train(1, 1e-3);
      for (engine::StepSignals& step : gpu.engine->take_signals()) found.push_back(step);
    }
    for (engine::StepSignals& step : gpu.engine->drain_signals()) found.push_back(step);
    expected = cpu.engine->drain_signals();
    EXPECT_TRUE(gpu.engine->is_captured());
    ASSERT_EQ(found.size(), expected.size());
    const auto expect_near = [](double a, double b) { EXPECT_NEAR(a, b, 1e-3 * std::abs(b)); };
    for (size_t i = 0; i < found.size(); ++i) {
      SCOPED_TRACE(i);
      const engine::StepSignals &a = found[i], &b = expected[i];
      EXPECT_EQ(a.index, static_cast<int64_t>(i));
      EXPECT_EQ(a.tokens, b.tokens);
      EXPECT_EQ(a.masked, b.masked);
      EXPECT_EQ(a.padding, 0);
      EXPECT_EQ(a.was_clipped, b.was_clipped);
      EXPECT_EQ(a.loss_min, a.mean_loss);
      EXPECT_EQ(a.loss_max, a.mean_loss);
      expect_near(a.mean_loss, b.mean_loss);
      expect_near(a.grad_norm, b.grad_norm);
      expect_near(a.update_norm, b.update_norm);
      ASSERT_EQ(a.layer_grad_norms.size(), b.layer_grad_norms.size());
      for (size_t layer = 0; layer < a.layer_grad_norms.size(); ++layer) {
        expect_near(a.layer_grad_norms[layer], b.layer_grad_norms[layer]);
      }
    }
    EXPECT_EQ(found.back().mean_loss, gpu.engine->report().mean_loss);
  }
}

TEST_F(StepTest, evaluation_and_logits) {
  for (const spec::ModelDims& dims : {tiny_gpt2(), tiny_qwen3(), medium_llama()}) {
    for (const bool is_bf16 : {false, true}) {
      const bool is_medium = dims.max_seq > 16;
      const Trial trial{.dims = dims,
                        .recipe = is_bf16 ? "bf16" : "fp32",
                        .seq_len = is_medium ? 256 : 13,
                        .inference = true};
      const std::string what = dims.name + " " + trial.recipe;
      DeviceRig cpu(Where::cpu, trial), gpu(Where::gpu, trial);
      const auto tokens = static_cast<size_t>(trial.sequences * trial.seq_len);
      std::vector<float> expected(tokens), found(tokens, -1);
      const engine::EvalReport a = cpu.engine->evaluate(cpu.source, expected);
      const engine::EvalReport b = gpu.engine->evaluate(gpu.source, found);
      EXPECT_EQ(a.tokens, b.tokens) << what;
      EXPECT_NEAR(b.loss_sum, a.loss_sum, (is_bf16 ? 5e-3 : 1e-5) * a.loss_sum) << what;
      EXPECT_LE(relative_error(found, expected), is_bf16 ? 1e-2 : 1e-5) << what;
      for (const int64_t token :
           {int64_t{0}, trial.seq_len - 1, trial.seq_len, static_cast<int64_t>(tokens) - 1}) {
        const auto theirs = cpu.engine->logits(cpu.source, token);
        const auto ours = gpu.engine->logits(gpu.source, token);
        ASSERT_EQ(ours.size(), theirs.size());
        EXPECT_LE(relative_error(ours, theirs), is_bf16 ? 3e-2 : 1e-4)
            << what << " token " << token;
      }
    }
  }
}

// Every sequence is a separate stream of a source that can be learnt.
class MarkovBatches final : public engine::MicrobatchSource {
 public:
  MarkovBatches(const data::MarkovSource& source, int64_t sequences, int64_t seq_len)
      : source_(source), sequences_(sequences), seq_len_(seq_len) {}

  void fill(int /*index*/, const engine::HostMicrobatch& out) override {
    engine::set_equal_sequences(out, sequences_, seq_len_);
    std::vector<int32_t> tokens(static_cast<size_t>(seq_len_) + 1);
    for (int64_t s = 0; s < sequences_; ++s) {
      source_.generate(stream_++, tokens);
      const auto at = static_cast<ptrdiff_t>(s * seq_len_);
      std::copy(tokens.begin(), tokens.end() - 1, out.tokens.begin() + at);
      std::copy(tokens.begin() + 1, tokens.end(), out.labels.begin() + at);
    }
  }

 private:
  const data::MarkovSource& source_;
  int64_t sequences_, seq_len_;
  uint64_t stream_ = 0;
};

// An order-1 source at this rate is learnt without a sudden drop of the loss: on the CPU a change
// of 3e-3 in one matrix moves the bf16 curve by 3e-4. (An order-2 source at twice the rate moves by
// 2e-2.)
TEST_F(CurveTest, two_hundred_steps_follow_the_cpu) {
  const data::MarkovSource source(11, 24, 1, 5.0);
  // Heads of 64 and 64 tokens: in bf16 cuDNN computes attention.
  const spec::ModelDims dims{.name = "markov",
                             .family = spec::Family::llama,
                             .layers = 2,
                             .hidden = 64,
                             .heads = 2,
                             .kv_heads = 1,
                             .head_dim = 64,
                             .ffn = 128,
                             .vocab = 24,
                             .max_seq = 64};
  for (const char* recipe : {"fp32", "bf16"}) {
    const Trial trial{.dims = dims, .recipe = recipe, .sequences = 16, .seq_len = 64};
    DeviceRig cpu(Where::cpu, trial), gpu(Where::gpu, trial);
    MarkovBatches for_cpu(source, 16, 64), for_gpu(source, 16, 64);
    double worst = 0, first = 0, last = 0;
    for (int step = 0; step < 200; ++step) {
      const double learning_rate = 2e-3 * std::min(1.0, (step + 1) / 20.0);
      cpu.engine->step(for_cpu, learning_rate);
      gpu.engine->step(for_gpu, learning_rate);
      last = cpu.engine->report().mean_loss;
      if (step == 0) first = last;
      worst = std::max(worst, std::abs(gpu.engine->report().mean_loss - last));
    }
    std::printf("%s: loss %.4f to %.4f, largest difference %.2e\n", recipe, first, last, worst);
    EXPECT_LT(last, 0.8 * first);
    EXPECT_LE(worst, 1e-2) << recipe;
  }
}

}  // namespace
}  // namespace trireme::tests
