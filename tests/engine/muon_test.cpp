// SPDX-License-Identifier: Apache-2.0
// Muon in the engine against plain loops in double precision, which receive the engine's gradients
// of every step: 50 steps of two model families. tests/golden/muon_check.py makes the same
// comparison of the loops with PyTorch.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "tests/engine/rig.h"

namespace trireme::tests {
namespace {

using Values = std::vector<double>;

constexpr double muon_rate = 0.01, muon_decay = 0.1, muon_momentum = 0.95;
constexpr int train_steps = 50, ns_steps = 5;

// x [rows, cols], row-major, is replaced by its direction.
void orthogonalize(double* x, int64_t rows, int64_t cols) {
  const auto at = [&](int64_t i, int64_t j) -> double& { return x[i * cols + j]; };
  double squares = 0;
  for (int64_t i = 0; i < rows * cols; ++i) squares += x[i] * x[i];
  for (int64_t i = 0; i < rows * cols; ++i) x[i] /= std::max(std::sqrt(squares), 1e-7);
  for (int step = 0; step < ns_steps; ++step) {
    // X + (b X X^T + c (X X^T)^2) X for any shape, by the smaller square.
    Values a(static_cast<size_t>(rows * rows)), b = a;
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < rows; ++j) {
        double sum = 0;
        for (int64_t k = 0; k < cols; ++k) sum += at(i, k) * at(j, k);
        a[static_cast<size_t>(i * rows + j)] = sum;
      }
    }
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < rows; ++j) {
        double sum = 0;
        for (int64_t k = 0; k < rows; ++k) {
          sum += a[static_cast<size_t>(i * rows + k)] * a[static_cast<size_t>(k * rows + j)];
        }
        b[static_cast<size_t>(i * rows + j)] =
            -4.7750 * a[static_cast<size_t>(i * rows + j)] + 2.0315 * sum;
      }
    }
    Values next(static_cast<size_t>(rows * cols));
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < cols; ++j) {
        double sum = 0;
        for (int64_t k = 0; k < rows; ++k) sum += b[static_cast<size_t>(i * rows + k)] * at(k, j);
        next[static_cast<size_t>(i * cols + j)] = 3.4445 * at(i, j) + sum;
      }
    }
    std::copy(next.begin(), next.end(), x);
  }
}

// One parameter in double precision.
struct Reference {
  spec::Param param;
  Values p, m, v;

  void step(const std::vector<float>& grads, double scale, int t) {
    m.resize(p.size());
    v.resize(p.size());
    param.matrices.empty() ? adamw(grads, scale, t) : muon(grads, scale);
  }

 private:
  void adamw(const std::vector<float>& grads, double scale, int t) {
    const double b1 = 0.9F, b2 = 0.95F, eps = 1e-8F;
    for (size_t i = 0; i < p.size(); ++i) {
      const double g = static_cast<double>(grads[i]) * scale;
      m[i] = b1 * m[i] + (1 - b1) * g;
      v[i] = b2 * v[i] + (1 - b2) * g * g;
      const double change =
          m[i] / (1 - std::pow(b1, t)) / (std::sqrt(v[i] / (1 - std::pow(b2, t))) + eps);
      p[i] -= muon_rate * (change + (param.decays ? muon_decay : 0) * p[i]);
    }
  }

  void muon(const std::vector<float>& grads, double scale) {
    Values u(p.size());
    for (size_t i = 0; i < p.size(); ++i) {
      const double g = static_cast<double>(grads[i]) * scale;
      m[i] = muon_momentum * m[i] + g;
      u[i] = g + muon_momentum * m[i];
    }
    const int64_t cols = param.shard.shape[1];
    int64_t first = 0;
    for (const int64_t rows : param.matrices) {
      orthogonalize(u.data() + first * cols, rows, cols);
      const double factor = 0.2 * std::sqrt(static_cast<double>(std::max(rows, cols)));
      for (int64_t i = first * cols; i < (first + rows) * cols; ++i) {
        const auto at = static_cast<size_t>(i);
        p[at] -= muon_rate * (factor * u[at] + muon_decay * p[at]);
      }
      first += rows;
    }
  }
};

spec::Plan muon_plan(const RigOptions& o, const spec::ModelSpec& model) {
  spec::Layout layout = plan_of(o, model).layout;
  layout.optimizer = spec::OptimizerKind::muon;
  return spec::solve_or_throw(model, {.seq_len = o.seq_len}, layout, {});
}

TEST(MuonTest, fifty_steps_follow_the_formula_in_double_precision) {
  for (const spec::ModelDims& dims : {tiny_gpt2(), tiny_qwen3()}) {
    const RigOptions options{.dims = dims, .microbatches = 2};
    const spec::ModelSpec model = spec::make_model(dims);
    device::CpuDevice device(kernels::cpu_kernels(), {});
    engine::Engine engine(device, model, muon_plan(options, model), {}, {});
    RandomSource source(7, dims.vocab, options.sequences, options.seq_len);
    std::map<std::string, Reference> reference;
    for (int layer = 0; layer < static_cast<int>(model.layers.size()); ++layer) {
      for (const spec::Param& param : spec::params_of(model, layer)) {
        if (param.tied_copy || param.shard.shape.empty()) continue;
        const std::vector<float> start = engine.read_weights(param.shard.name);
        reference[param.shard.name] = {param, {start.begin(), start.end()}, {}, {}};
      }
    }
    for (int t = 1; t <= train_steps; ++t) {
      engine.accumulate(source);
      std::map<std::string, std::vector<float>> grads;
      for (const auto& [name, _] : reference) grads[name] = engine.read_grads(name);
      engine.apply(muon_rate);
      source.next_step();
      ASSERT_FALSE(engine.report().was_skipped);
      const double scale = static_cast<double>(engine.step_state().grad_scale);
      for (auto& [name, param] : reference) param.step(grads.at(name), scale, t);
    }
    for (const auto& [name, param] : reference) {
      const std::vector<float> found = engine.read_weights(name);
      double squares = 0, largest = 0;
      for (size_t i = 0; i < found.size(); ++i) {
        squares += std::pow(static_cast<double>(found[i]) - param.p[i], 2);
        largest = std::max(largest, std::abs(param.p[i]));
      }
      // 50 roundings of a weight are a random walk of 7 times 6e-8. The direction of a step is
      // rounded, too, and iterations amplify that in the smallest singular values.
      const double rms = std::sqrt(squares / static_cast<double>(found.size()));
      EXPECT_LT(rms, 3e-6 * largest) << dims.name << " " << name;
    }
  }
}

TEST(MuonTest, memory_is_as_predicted_and_smaller_than_adamws) {
  for (const char* recipe : {"fp32", "bf16"}) {
    for (const base::DType master : {base::DType::f32, base::DType::u16}) {
      if (master == base::DType::u16 && std::string(recipe) == "fp32") continue;
      const RigOptions options{.dims = tiny_llama(), .recipe = recipe, .master = master};
      const spec::ModelSpec model = spec::make_model(options.dims);
      const spec::Plan plan = muon_plan(options, model);
      device::CpuDevice device(kernels::cpu_kernels(), {});
      engine::Engine engine(device, model, plan, {}, {});
      RandomSource source(7, options.dims.vocab, options.sequences, options.seq_len);
      for (int i = 0; i < 2; ++i) engine.step(source, muon_rate);
      EXPECT_EQ(engine.measured(), engine.predicted_memory());
      EXPECT_EQ(device.ledger().peak(), engine.predicted_memory().total());
      // By hand, for two blocks: q has 32 rows of 24, k and v 16, gate and up 56; out is 24 x 32,
      // down 24 x 56, which is padded by 64 elements to a multiple of 128.
      const int64_t matrices = 2 * (24 * (32 + 16 + 16 + 56 + 56) + 24 * 32 + 24 * 56 + 64);
      EXPECT_EQ(plan_of(options, model).predicted.largest().optim - engine.predicted_memory().optim,
                4 * matrices);
    }
  }
}

// A step whose gradients are not finite changes neither weights nor momentum.
TEST(MuonTest, a_skipped_step_changes_nothing) {
  const RigOptions options{.dims = tiny_llama()};
  const spec::ModelSpec model = spec::make_model(options.dims);
  device::CpuDevice device(kernels::cpu_kernels(), {});
  engine::EngineOptions engine_options;
  engine_options.clip.guard_multiple = 1e-6F;
  engine_options.clip.guard_warmup = 1;
  engine_options.clip.skip_row = 0;
  engine::Engine engine(device, model, muon_plan(options, model), {}, engine_options);
  RandomSource source(7, options.dims.vocab, options.sequences, options.seq_len);
  engine.step(source, muon_rate);
  const std::string weights = engine.weights_sha256();
  std::vector<std::vector<float>> before;
  for (const auto& part : engine.state()) before.push_back(engine.read_state(part));
  engine.step(source, muon_rate);
  EXPECT_TRUE(engine.report().was_skipped);
  EXPECT_EQ(engine.weights_sha256(), weights);
  size_t i = 0;
  for (const auto& part : engine.state()) EXPECT_EQ(engine.read_state(part), before[i++]);
}

}  // namespace
}  // namespace trireme::tests
