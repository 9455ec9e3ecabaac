// SPDX-License-Identifier: Apache-2.0
// Delayed scaling: which magnitudes a history has after steps, how a run begins, and how its state
// moves to an engine with other blocks in 8 bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "spec/state/float8_state.h"
#include "tests/engine/rig.h"
#include "train/run/state/engine_state.h"

namespace trireme::tests {
namespace {

using spec::Quantized;

spec::ModelDims delayed_dims() {
  spec::ModelDims dims = tiny_llama();
  dims.layers = 3;
  dims.hidden = 32;
  dims.heads = dims.kv_heads = 4;
  dims.head_dim = 8;
  dims.ffn = 48;
  dims.max_seq = 16;
  return dims;
}

// An engine with delayed scaling, of which some blocks stay in bf16.
struct DelayedRig {
  explicit DelayedRig(std::vector<int> bf16_blocks = {}, const engine::EngineOptions& options = {})
      : model(spec::make_model(delayed_dims())),
        device(kernels::cpu_kernels(), {}),
        engine(device, model, plan_with(model, std::move(bf16_blocks)), {}, options),
        source(7, model_vocab, 2, 16) {}

  static spec::Plan plan_with(const spec::ModelSpec& model, std::vector<int> bf16_blocks) {
    const RigOptions o{.dims = delayed_dims(), .recipe = "fp8-delayed", .seq_len = 16};
    spec::Layout layout = plan_of(o, model).layout;
    layout.bf16_blocks = std::move(bf16_blocks);
    return spec::solve_or_throw(model, {.seq_len = 16}, layout, {});
  }

  void train(int steps) {
    for (int i = 0; i < steps; ++i) {
      engine.step(source, 1e-3);
      source.next_step();
    }
  }
  // [8][16] of a block, newest first.
  std::vector<std::vector<float>> history(int block) {
    return rows_of(block, spec::amax_history_state);
  }
  std::vector<std::vector<float>> rows_of(int block, const char* name) {
    for (const engine::Engine::StateRange& range : engine.state()) {
      if (range.layer != block + 1 || range.tensor.name != name) continue;
      const std::vector<float> flat = engine.read_state(range);
      std::vector<std::vector<float>> rows;
      const size_t length = flat.size() / static_cast<size_t>(spec::delayed_count);
      for (size_t first = 0; first < flat.size(); first += length) {
        rows.emplace_back(flat.begin() + static_cast<int64_t>(first),
                          flat.begin() + static_cast<int64_t>(first + length));
      }
      return rows;
    }
    ADD_FAILURE() << "block " << block << " has no " << name;
    return {};
  }

  static constexpr int64_t model_vocab = 61;
  spec::ModelSpec model;
  device::CpuDevice device;
  engine::Engine engine;
  RandomSource source;
};

int entries_of(const std::vector<float>& history) {
  return static_cast<int>(std::ranges::count_if(history, [](float a) { return a > 0; }));
}

TEST(DelayedScalesTest, a_history_has_the_magnitudes_of_the_last_steps) {
  DelayedRig rig;
  std::vector<std::vector<double>> found;  // by step: of block 1
  for (int step = 1; step <= 20; ++step) {
    rig.train(1);
    std::vector<double>& amaxes = found.emplace_back();
    for (const engine::RoleNumerics& role : rig.engine.numerics()[1].by) {
      amaxes.push_back(role.amax);
    }
    const auto history = rig.history(1);
    ASSERT_EQ(history.size(), static_cast<size_t>(spec::delayed_count));
    for (size_t q = 0; q < history.size(); ++q) {
      ASSERT_EQ(history[q].size(), 16U);
      // The first one is that of the run before the first step.
      EXPECT_EQ(entries_of(history[q]), std::min(16, step + 1));
      for (size_t age = 0; age < std::min<size_t>(16, found.size()); ++age) {
        EXPECT_EQ(static_cast<double>(history[q][age]), found[found.size() - 1 - age][q]);
      }
    }
    for (const std::vector<float>& row : rig.rows_of(1, spec::amax_state)) {
      EXPECT_EQ(row, std::vector<float>{0});
    }
  }
}

// The run before the first step counts nothing.
TEST(DelayedScalesTest, the_first_step_reports_its_batch_once) {
  DelayedRig rig;
  const RigOptions o{.dims = delayed_dims(), .recipe = "bf16", .seq_len = 16};
  Rig other(o);
  rig.engine.step(rig.source, 0);
  other.engine.step(other.source, 0);
  EXPECT_EQ(rig.engine.report().tokens, other.engine.report().tokens);
  EXPECT_EQ(rig.engine.report().sample_hash, other.engine.report().sample_hash);
  EXPECT_NEAR(rig.engine.report().mean_loss, other.engine.report().mean_loss, 0.05);
  EXPECT_NEAR(rig.engine.report().grad_norm, other.engine.report().grad_norm,
              0.05F * other.engine.report().grad_norm);
  // Scales of the step itself: nothing is beyond them by more than the roundings before.
  rig.engine.measure_numerics(true);
  rig.engine.step(rig.source, 0);
  for (const engine::LayerNumerics& layer : rig.engine.numerics()) {
    for (const engine::RoleNumerics& role : layer.by) {
      EXPECT_LT(role.saturated, 3);
      EXPECT_GT(10 * std::log10(role.signal / role.noise), 20);
    }
  }
}

TEST(DelayedScalesTest, a_skipped_step_enters_nothing) {
  engine::EngineOptions options;
  options.clip.guard_multiple = 1e-6F;
  options.clip.guard_warmup = 2;
  DelayedRig rig({}, options);
  rig.train(2);
  const auto before = rig.history(0);
  rig.train(1);
  ASSERT_TRUE(rig.engine.report().was_skipped);
  EXPECT_EQ(rig.history(0), before);
}

TEST(DelayedScalesTest, a_block_that_leaves_8_bits_has_no_history_until_it_returns) {
  DelayedRig first;
  first.train(3);
  DelayedRig second({1});
  train::put_state(second.engine, second.model, {},
                   train::take_state(first.engine, first.model, {}));
  EXPECT_EQ(second.history(0), first.history(0));
  EXPECT_EQ(entries_of(second.history(1)[0]), 0);
  second.train(2);
  EXPECT_EQ(entries_of(second.history(0)[0]), 4 + 2);
  EXPECT_EQ(entries_of(second.history(1)[0]), 0);
  DelayedRig third;
  train::put_state(third.engine, third.model, {},
                   train::take_state(second.engine, second.model, {}));
  third.train(1);
  // The step's micro-batches ran once before it.
  for (const int block : {0, 1}) {
    for (const std::vector<float>& row : third.history(block)) {
      EXPECT_EQ(entries_of(row), block == 0 ? 6 + 2 : 2);
    }
  }
}

// Every matrix that is quantised has a history, also those of experts.
TEST(DelayedScalesTest, all_matrices_have_histories) {
  spec::ModelDims experts = delayed_dims();
  experts.ffn = 0;
  experts.moe = tiny_moe().moe;
  for (const spec::ModelDims& dims : {delayed_dims(), experts}) {
    Rig rig({.dims = dims, .recipe = "fp8-delayed", .seq_len = 16});
    rig.train(2, 1e-3);
    int blocks = 0;
    for (const engine::Engine::StateRange& range : rig.engine.state()) {
      if (range.tensor.name != spec::amax_history_state) continue;
      ++blocks;
      const std::vector<float> history = rig.engine.read_state(range);
      for (int64_t q = 0; q < spec::delayed_count; ++q) {
        EXPECT_GT(history[static_cast<size_t>(q * 16 + 2)], 0)
            << range.layer << " " << spec::name_of(static_cast<Quantized>(q));
      }
    }
    EXPECT_EQ(blocks, 3);
  }
}

TEST(DelayedScalesTest, an_engine_that_receives_state_continues_with_the_same_bits) {
  for (const int steps : {1, 3}) {
    DelayedRig whole, begin, end;
    whole.train(6);
    begin.train(steps);
    train::put_state(end.engine, end.model, {}, train::take_state(begin.engine, begin.model, {}));
    for (int i = 0; i < steps; ++i) end.source.next_step();
    end.train(6 - steps);
    EXPECT_EQ(end.engine.weights_sha256(), whole.engine.weights_sha256()) << steps;
    EXPECT_EQ(end.history(2), whole.history(2)) << steps;
  }
}

}  // namespace
}  // namespace trireme::tests
