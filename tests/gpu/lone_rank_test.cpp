// SPDX-License-Identifier: Apache-2.0
// A rank without its peers on a GPU: steps that are captured with the work of all their streams
// have the bits and bytes of others, and memory is as predicted.
#include <fmt/format.h>

#include "device/accelerator.h"
#include "spec/layout/layout_text.h"
#include "tests/gpu/gpu_rig.h"
#include "train/measure/lone_rank/lone_rank.h"
#include "train/measure/lone_rank/lone_transfers.h"
#include "train/measure/random_batches.h"

namespace trireme::tests {
namespace {

using LoneRankTest = GpuTest;

struct Steps {
  std::string weights;
  std::vector<double> grad_norms;
  spec::TrafficTable sent;
  bool were_captured = false;
};

// Steps with other learning rates; the waits of one are measured, so that it is not replayed.
Steps run_alone(const spec::ModelSpec& model, const spec::Plan& plan, int rank, bool captures,
                bool fixed_order = true) {
  const spec::Backend backend = spec::cuda_backend(true);
  const auto device = device::make_gpu(kernels::cuda_kernels(), {});
  train::LoneRank lone(*device, model, plan, rank, fixed_order);
  engine::EngineOptions options;
  lone.set_options(options);
  options.capture = captures;
  engine::Engine engine(*device, model, plan, backend, options, &lone.mesh());
  train::RandomBatches source(spec::vocab_of(model), plan.layout.micro_batch, plan.seq_len);
  Steps steps;
  for (int step = 0; step < 6; ++step) {
    engine.watch_waits(step == 4);
    engine.step(source, 1e-3 * (step + 1));
    steps.grad_norms.push_back(engine.report().grad_norm);
  }
  EXPECT_EQ(engine.measured(), engine.predicted_memory());
  steps.sent = engine.traffic();
  steps.were_captured = engine.is_captured();
  steps.weights = engine.weights_sha256();
  return steps;
}

spec::ModelSpec four_blocks() {
  spec::ModelDims dims = tiny_llama();
  dims.layers = 4;
  dims.hidden = 32;
  dims.heads = dims.kv_heads = 4;
  dims.ffn = 48;
  dims.max_seq = 24;
  return spec::make_model(dims);
}

TEST_F(LoneRankTest, captured_steps_have_the_bits_and_bytes_of_others) {
  const spec::ModelSpec model = four_blocks();
  for (const char* text :
       {"tp=2 sp bf16 accumulate=2", "dp=2 bf16", "dp=2 zero=1 fp32", "dp=2 zero=3 bf16",
        "pp=2 1f1b bf16 accumulate=3", "pp=2 zb-h1 fp32 accumulate=4", "cp=2 kind=ring bf16",
        "tp=2 sp pp=2 dp=2 zero=2 bf16 selective accumulate=2"}) {
    const spec::Plan plan = spec::solve_or_throw(
        model, {.seq_len = 24}, spec::layout_from_text(text, 0), spec::cuda_backend(true));
    for (const int rank : {0, static_cast<int>(plan.layout.ranks()) - 1}) {
      SCOPED_TRACE(fmt::format("{}, rank {}", text, rank));
      const Steps expected = run_alone(model, plan, rank, false);
      const Steps captured = run_alone(model, plan, rank, true);
      EXPECT_FALSE(expected.were_captured);
      EXPECT_TRUE(captured.were_captured);
      EXPECT_EQ(captured.grad_norms, expected.grad_norms);
      EXPECT_EQ(captured.weights, expected.weights);
      EXPECT_EQ(captured.sent, expected.sent);
      const Steps library = run_alone(model, plan, rank, true, false);
      EXPECT_TRUE(library.were_captured);
      EXPECT_EQ(library.sent, expected.sent);
    }
  }
}

TEST_F(LoneRankTest, steps_are_captured_again_without_transfers) {
  const spec::ModelSpec model = four_blocks();
  const spec::Backend backend = spec::cuda_backend(true);
  const spec::Plan plan =
      spec::solve_or_throw(model, {.seq_len = 24}, spec::layout_from_text("dp=2 bf16", 0), backend);
  const auto device = device::make_gpu(kernels::cuda_kernels(), {});
  train::LoneRank lone(*device, model, plan, 1, true);
  engine::EngineOptions options;
  lone.set_options(options);
  engine::Engine engine(*device, model, plan, backend, options, &lone.mesh());
  train::RandomBatches source(spec::vocab_of(model), plan.layout.micro_batch, plan.seq_len);
  for (int step = 0; step < 3; ++step) engine.step(source, 1e-3);
  const train::LoneTransfers found = train::measure_transfers(engine, source, lone, 2);
  EXPECT_TRUE(engine.is_captured());
  EXPECT_GT(found.seconds, 0);
  EXPECT_LE(found.exposed_seconds, found.seconds * 1.000001);
  EXPECT_GT(found.op_seconds, 0);
  EXPECT_GT(found.op_seconds_alone, 0);
  EXPECT_GT(found.step_seconds_alone, 0);
}

}  // namespace
}  // namespace trireme::tests
