// SPDX-License-Identifier: Apache-2.0
// Shared by tests of whole models on a GPU: the same engine on the CPU or on the GPU, and
// comparison of two engines. On a machine without a GPU every test is skipped with the reason; with
// TRIREME_GPU_REQUIRED in the environment it fails instead.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "device/device.h"
#include "engine/engine.h"
#include "spec/plan.h"
#include "tests/engine/rig.h"

namespace trireme::tests {

// Test suites that need a GPU are aliases of this class.
class GpuTest : public testing::Test {
 protected:
  void SetUp() override;
};

enum class Where { cpu, gpu };

struct Trial {
  spec::ModelDims dims;
  std::string recipe = "fp32";
  spec::Recompute recompute = spec::Recompute::none;
  int64_t sequences = 2, seq_len = 13;
  int microbatches = 1;
  base::DType grad = base::DType::f32;
  spec::OptimizerKind optimizer = spec::OptimizerKind::adamw;
  int64_t head_chunk_rows = 0;  // 0: the default of the back end
  bool document_mask = false;
  bool inference = false;
  bool deterministic = true;
  engine::EngineOptions engine;
  std::optional<schedule::Schedule> schedule;  // default: 1F1B
};

// A model with its device and engine. Measured choices of GPU algorithms are cached in a folder of
// this process, so that a second engine makes the same choices.
struct DeviceRig {
  DeviceRig(Where where, const Trial& trial);

  void train(int steps, double learning_rate);

  spec::ModelSpec model;
  spec::Backend backend;
  std::unique_ptr<device::Device> device;
  std::unique_ptr<engine::Engine> engine;
  RandomSource source;
};

// Documents of many lengths, from one token to the whole sequence, packed into the sequences of
// RandomSource: positions restart at the start of a document.
class PackedSource final : public engine::MicrobatchSource {
 public:
  PackedSource(uint64_t seed, const Trial& trial);
  void fill(int index, const engine::HostMicrobatch& out) override;

 private:
  RandomSource source_;
  base::RngKey key_;
  int64_t sequences_, seq_len_;
};

// Sizes for which cuDNN computes attention, with grouped queries: heads of 64.
spec::ModelDims medium_llama();
spec::ModelDims medium_moe();  // the same with experts
// Reads a file of configs/models.
spec::ModelDims model_file(const std::string& name);

// |a - b| / |b|, in the 2-norm.
double relative_error(std::span<const float> a, std::span<const float> b);
double norm_of(std::span<const float> values);

// Gradients of all parameters, by name, in the order of the engine.
struct NamedValues {
  std::string name;
  std::vector<float> values;
};
std::vector<NamedValues> grads_of(engine::Engine& engine);
std::vector<NamedValues> weights_of(engine::Engine& engine);

// Expects |a - b| <= tolerance |b| for every parameter. If |b| is less than 1e-3 of the largest
// norm, as for sums that are zero except for rounding, it is replaced by that.
void expect_near(const std::vector<NamedValues>& a, const std::vector<NamedValues>& b,
                 double tolerance, const std::string& what);
// Returns the largest |a - b| / |b| of these.
double largest_error(const std::vector<NamedValues>& a, const std::vector<NamedValues>& b,
                     std::string* where = nullptr);

}  // namespace trireme::tests
