// SPDX-License-Identifier: Apache-2.0
// Signals of steps on one rank: against reports, gradients and weights that are read by name; the
// ring between device and host.
#include <gtest/gtest.h>

#include <cmath>
#include <future>
#include <limits>
#include <map>

#include "base/token_label.h"
#include "spec/facts/facts.h"
#include "tests/engine/rig.h"

namespace trireme::tests {
namespace {

using engine::StepSignals;

constexpr double step_rate = 1e-2;

std::map<std::string, std::vector<float>> weights_of(engine::Engine& engine) {
  std::map<std::string, std::vector<float>> all;
  for (const auto& param : engine.parameters()) all[param.name] = engine.read_weights(param.name);
  return all;
}

double distance(const std::map<std::string, std::vector<float>>& a,
                const std::map<std::string, std::vector<float>>& b) {
  double squares = 0;
  for (const auto& [name, values] : a) {
    for (size_t i = 0; i < values.size(); ++i) {
      const double change = static_cast<double>(b.at(name)[i]) - static_cast<double>(values[i]);
      squares += change * change;
    }
  }
  return std::sqrt(squares);
}

// The norms by layer of the gradients that the engine holds.
std::vector<double> layer_norms(const spec::ModelSpec& model, engine::Engine& engine) {
  std::vector<double> norms;
  for (int layer = 0; layer < static_cast<int>(model.layers.size()); ++layer) {
    double squares = 0;
    for (const spec::Param& param : spec::params_of(model, layer)) {
      if (param.tied_copy || param.shard.shape.empty()) continue;
      for (const float g : engine.read_grads(param.shard.name)) {
        squares += static_cast<double>(g) * static_cast<double>(g);
      }
    }
    norms.push_back(std::sqrt(squares));
  }
  return norms;
}

// Fills some labels with masks, and the last tokens of a micro-batch with padding.
class PaddedSource final : public engine::MicrobatchSource {
 public:
  PaddedSource(engine::MicrobatchSource& from, size_t padding) : from_(from), padding_(padding) {}
  void fill(int index, const engine::HostMicrobatch& out) override {
    from_.fill(index, out);
    for (int32_t& label : out.labels.last(padding_)) label = base::padding_label;
    for (const int32_t label : out.labels) masked += label == base::masked_label ? 1 : 0;
  }
  int64_t masked = 0;  // so far

 private:
  engine::MicrobatchSource& from_;
  size_t padding_;
};

TEST(SignalsTest, they_are_those_of_reports_gradients_and_weights) {
  struct Formats {
    const char* recipe;
    base::DType grad, master;
  };
  using base::DType;
  for (const auto& [dims, formats] :
       {std::pair{tiny_llama(), Formats{"fp32", DType::f32, DType::f32}},
        {tiny_gpt2(), Formats{"fp32", DType::f32, DType::f32}},
        {tiny_qwen3(), Formats{"bf16", DType::f32, DType::f32}},
        {tiny_shared_moe(), Formats{"bf16", DType::bf16, DType::u16}}}) {
    SCOPED_TRACE(dims.name);
    Rig rig({.dims = dims,
             .recipe = formats.recipe,
             .microbatches = 2,
             .grad = formats.grad,
             .master = formats.master});
    double last_update = 0;
    for (int64_t step = 0; step < 4; ++step) {
      const auto before = weights_of(rig.engine);
      rig.engine.accumulate(rig.source);
      const std::vector<double> norms = layer_norms(rig.model, rig.engine);
      rig.engine.apply(step_rate);
      rig.source.next_step();
      const std::vector<StepSignals> all = rig.engine.drain_signals();
      ASSERT_EQ(all.size(), 1U);
      const StepSignals& found = all.front();
      const engine::StepReport report = rig.engine.report();
      EXPECT_EQ(found.index, step);
      EXPECT_EQ(found.mean_loss, report.mean_loss);
      EXPECT_EQ(found.loss_min, report.mean_loss);  // one data rank
      EXPECT_EQ(found.loss_median, report.mean_loss);
      EXPECT_EQ(found.loss_max, report.mean_loss);
      EXPECT_EQ(found.grad_norm, report.grad_norm);
      EXPECT_EQ(found.clip_limit, report.clip_limit);
      EXPECT_EQ(found.learning_rate, report.learning_rate);
      EXPECT_FALSE(found.was_skipped);
      EXPECT_EQ(found.was_clipped, report.grad_norm > report.clip_limit);
      EXPECT_EQ(found.tokens, report.tokens);
      EXPECT_EQ(found.tokens + found.masked, 2 * 2 * 13);
      EXPECT_EQ(found.padding, 0);
      ASSERT_EQ(found.layer_grad_norms.size(), rig.model.layers.size());
      double squares = 0;
      for (size_t layer = 0; layer < norms.size(); ++layer) {
        const auto norm = static_cast<double>(found.layer_grad_norms[layer]);
        // Sums in fp64 of a few thousand fp32 values; the signal is rounded to fp32.
        EXPECT_NEAR(norm, norms[layer] / static_cast<double>(report.tokens), 1e-6 * norm) << layer;
        squares += norm * norm;
      }
      EXPECT_NEAR(std::sqrt(squares), report.grad_norm, 1e-6 * report.grad_norm);
      EXPECT_NEAR(found.update_norm, last_update, 1e-6 * last_update);
      last_update = distance(before, weights_of(rig.engine));
      EXPECT_GT(last_update, 0);
    }
  }
}

TEST(SignalsTest, tokens_are_counted_by_kind) {
  for (const int microbatches : {1, 3}) {
    Rig rig({.dims = tiny_llama(), .microbatches = microbatches});
    PaddedSource source(rig.source, 4);
    rig.engine.step(source, step_rate);
    const StepSignals found = rig.engine.drain_signals().front();
    EXPECT_GT(source.masked, 0);
    EXPECT_EQ(found.masked, source.masked);
    EXPECT_EQ(found.padding, 4 * microbatches);
    EXPECT_EQ(found.tokens + found.masked + found.padding, int64_t{2} * 13 * microbatches);
  }
}

TEST(SignalsTest, clipped_and_skipped_steps_are_marked) {
  RigOptions options{.dims = tiny_llama()};
  options.engine.clip.norm = 1e-3F;
  Rig rig(options);
  PaddedSource nothing(rig.source, 2 * 13);
  rig.engine.step(rig.source, step_rate);
  rig.engine.step(nothing, step_rate);
  rig.engine.step(rig.source, step_rate);
  const std::vector<StepSignals> all = rig.engine.drain_signals();
  ASSERT_EQ(all.size(), 3U);
  EXPECT_TRUE(all[0].was_clipped);
  EXPECT_FALSE(all[0].was_skipped);
  EXPECT_GT(all[1].update_norm, 0);
  EXPECT_TRUE(all[1].was_skipped);
  EXPECT_FALSE(all[1].was_clipped);
  EXPECT_EQ(all[1].tokens, 0);
  EXPECT_EQ(all[1].loss_max, 0);
  for (const float norm : all[1].layer_grad_norms) EXPECT_EQ(norm, 0);
  EXPECT_EQ(all[2].update_norm, 0);  // the step before changed nothing
}

// The weight of a block is infinite, so every layer that gets gradients from behind it has
// gradients that are no numbers, and the loss is none.
TEST(SignalsTest, norms_that_are_not_finite_are_infinite) {
  Rig rig({.dims = tiny_llama()});
  const std::string name = spec::params_of(rig.model, 1).front().shard.name;
  std::vector<float> weights = rig.engine.read_weights(name);
  weights.front() = std::numeric_limits<float>::infinity();
  rig.engine.write_weights(name, weights);
  rig.engine.step(rig.source, step_rate);
  const StepSignals found = rig.engine.drain_signals().front();
  EXPECT_TRUE(found.was_skipped);
  EXPECT_TRUE(std::isinf(found.grad_norm));
  EXPECT_FALSE(std::isfinite(found.loss_max));
  EXPECT_TRUE(std::isinf(found.layer_grad_norms[1]));
}

TEST(SignalsTest, the_last_steps_are_kept_if_they_are_not_taken) {
  constexpr int64_t slots = engine::SignalRing::slots;
  for (const auto streams :
       {device::StreamMode::inline_calls, device::StreamMode::worker_threads}) {
    Rig rig({.dims = tiny_llama(), .sequences = 1, .seq_len = 4, .streams = streams});
    rig.train(static_cast<int>(slots) + 5, step_rate);
    const std::vector<StepSignals> all = rig.engine.drain_signals();
    ASSERT_EQ(std::ssize(all), slots);
    for (int64_t i = 0; i < slots; ++i) EXPECT_EQ(all[static_cast<size_t>(i)].index, i + 5);
    EXPECT_EQ(all.back().mean_loss, rig.engine.report().mean_loss);
    EXPECT_TRUE(rig.engine.drain_signals().empty());
    rig.train(2, step_rate);
    EXPECT_EQ(rig.engine.drain_signals().size(), 2U);
  }
}

TEST(SignalsTest, taking_them_does_not_wait_for_the_device) {
  Rig rig({.dims = tiny_llama(), .streams = device::StreamMode::worker_threads});
  std::promise<void> release;
  rig.engine.compute().call_host([go = release.get_future().share()] { go.wait(); });
  rig.engine.step(rig.source, step_rate);
  EXPECT_TRUE(rig.engine.take_signals().empty());
  release.set_value();
  EXPECT_EQ(rig.engine.drain_signals().size(), 1U);
}

}  // namespace
}  // namespace trireme::tests
