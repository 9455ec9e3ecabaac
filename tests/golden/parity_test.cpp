// SPDX-License-Identifier: Apache-2.0
// Parity with PyTorch: five tiny models against an fp64 golden (make_goldens.py). Loss, every
// gradient and the weights after ten clipped AdamW steps may be at most twice as far from it as
// PyTorch's own fp32 run.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/json.h"
#include "ckpt/safetensors.h"
#include "tests/engine/rig.h"

namespace trireme::tests {
namespace {

using base::Json;

template <typename T>
std::vector<T> values_of(const ckpt::SafetensorsFile& file, const std::string& name) {
  const ckpt::SafetensorsView& view = file.tensor(name);
  std::vector<T> values(view.bytes.size() / sizeof(T));
  std::memcpy(values.data(), view.bytes.data(), view.bytes.size());
  return values;
}

spec::ModelDims dims_of(const std::string& name, const Json& c) {
  spec::ModelDims d;
  d.name = name;
  d.family = c.at("family") == "gpt2" ? spec::Family::gpt2 : spec::Family::llama;
  d.layers = c.at("layers");
  d.hidden = c.at("hidden");
  d.heads = c.at("heads");
  d.kv_heads = c.at("kv_heads");
  d.head_dim = c.at("head_dim");
  d.ffn = c.at("ffn");
  d.vocab = c.at("vocab");
  d.max_seq = c.at("max_seq");
  d.norm_eps = c.at("norm_eps");
  d.tied_head = c.at("tied_head");
  if (d.family == spec::Family::gpt2) return d;
  d.qkv_bias = c.at("qkv_bias");
  d.qk_norm = c.at("qk_norm");
  if (d.qk_norm) d.qk_norm_eps = c.at("qk_norm_eps");
  d.rope.theta = c.at("rope_theta");
  const Json& scaling = c.at("rope_scaling");
  if (!scaling.is_null()) {
    d.rope.scaling =
        spec::RopeScaling{scaling.at("factor"), scaling.at("low_freq_factor"),
                          scaling.at("high_freq_factor"), scaling.at("original_max_position")};
  }
  return d;
}

class GoldenBatches final : public engine::MicrobatchSource {
 public:
  explicit GoldenBatches(const ckpt::SafetensorsFile& file)
      : tokens_(values_of<int32_t>(file, "tokens")), labels_(values_of<int32_t>(file, "labels")) {}

  void fill(int /*index*/, const engine::HostMicrobatch& out) override {
    engine::set_equal_sequences(out, 2, static_cast<int64_t>(out.tokens.size()) / 2);
    const size_t first = step_ * out.tokens.size();
    for (size_t t = 0; t < out.tokens.size(); ++t) {
      out.tokens[t] = tokens_[first + t];
      out.labels[t] = labels_[first + t];
    }
  }
  void next_step() { ++step_; }

 private:
  std::vector<int32_t> tokens_, labels_;
  size_t step_ = 0;
};

// The result is stored in fp32, so even the exact value is off by up to half a unit in the last
// place.
constexpr double fp32_resolution = 0x1p-24;

struct Distance {
  double relative = 0, largest = 0;
};

Distance distance(std::span<const float> ours, std::span<const double> golden, double scale) {
  double error = 0, norm = 0;
  Distance d;
  for (size_t i = 0; i < ours.size(); ++i) {
    const double difference = ours[i] * scale - golden[i];
    error += difference * difference;
    norm += golden[i] * golden[i];
    d.largest = std::max(d.largest, std::abs(difference));
  }
  d.relative = std::sqrt(error / norm);
  return d;
}

// One parameter, or one of the q, k, v segments of a fused bias.
struct Part {
  std::string key;
  size_t begin, end;
};

std::vector<Part> parts_of(const std::string& name, size_t elements, const spec::ModelDims& d) {
  if (!name.ends_with("qkv.bias")) return {{name, 0, elements}};
  const auto q = static_cast<size_t>(d.heads * d.head_dim);
  const auto kv = static_cast<size_t>(d.kv_heads * d.head_dim);
  return {{name + "[q]", 0, q}, {name + "[k]", q, q + kv}, {name + "[v]", q + kv, q + 2 * kv}};
}

class ParityTest : public testing::TestWithParam<const char*> {};

TEST_P(ParityTest, is_as_close_to_fp64_as_twice_pytorch_fp32) {
  const std::string name = GetParam();
  const auto file = ckpt::SafetensorsFile::open(std::string(TRIREME_SOURCE_DIR) + "/tests/golden/" +
                                                name + ".safetensors");
  const auto meta = [&file](const char* key) { return Json::parse(file.metadata().at(key)); };
  const Json distances = meta("distances"), training = meta("training");
  const spec::ModelDims dims = dims_of(name, meta("config"));
  RigOptions o{.dims = dims, .threads = 2};
  o.engine.adamw = {.beta1 = training.at("beta1"),
                    .beta2 = training.at("beta2"),
                    .eps = training.at("eps"),
                    .weight_decay = training.at("weight_decay")};
  o.engine.clip.norm = training.at("clip_norm");
  Rig rig(o);
  std::vector<std::string> names;
  for (const auto& param : rig.engine.parameters()) {
    names.push_back(param.name);
    rig.engine.write_weights(param.name, values_of<float>(file, "init." + param.name));
  }
  size_t golden_params = 0;
  for (const auto& [key, view] : file.tensors()) golden_params += key.starts_with("init.") ? 1 : 0;
  ASSERT_EQ(names.size(), golden_params);

  // Measured against `name`'s golden tensor, compared with the distances stored under `kind`.
  double worst = 0;
  const auto compare = [&](const std::string& param, const char* kind, std::span<const float> ours,
                           double scale) {
    const auto golden = values_of<double>(file, std::string(kind) + "." + param);
    ASSERT_EQ(ours.size(), golden.size());
    for (const Part& part : parts_of(param, ours.size(), dims)) {
      const Json& d = distances.at(part.key);
      const Distance found =
          distance(ours.subspan(part.begin, part.end - part.begin),
                   std::span(golden).subspan(part.begin, part.end - part.begin), scale);
      const std::string prefix = kind;
      // A key bias adds the same number to all scores of a query, which softmax does not see; RoPE
      // changes that only for fast frequencies. Its gradient is rounding noise where it is zero,
      // and Adam makes steps of noise: compare by absolute error, with the learning rate as the
      // unit.
      const double lr = training.at("lr");
      if (d.contains("zero_in_theory")) {
        EXPECT_LE(found.largest, prefix == "grad" ? 1e-7 : 10 * lr) << kind << " " << part.key;
        continue;
      }
      if (prefix == "final" && part.key.ends_with("[k]")) {
        EXPECT_LE(found.largest, 0.1 * lr) << kind << " " << part.key;
        continue;
      }
      const double theirs = d.at(prefix + "_relative");
      const double limit = 2 * std::max(theirs, fp32_resolution);
      worst = std::max(worst, found.relative / std::max(theirs, fp32_resolution));
      EXPECT_LE(found.relative, limit) << kind << " " << part.key;
    }
  };

  GoldenBatches batches(file);
  for (int step = 0; step < training.at("steps").get<int>(); ++step) {
    rig.engine.accumulate(batches);
    if (step == 0) {
      const double valid = training.at("golden")[0].at("valid_tokens");
      for (const std::string& param : names) {
        compare(param, "grad", rig.engine.read_grads(param), 1 / valid);
      }
    }
    rig.engine.apply(training.at("lr"));
    const engine::StepReport report = rig.engine.report();
    const double golden = training.at("golden")[static_cast<size_t>(step)].at("loss_mean");
    const double theirs = training.at("pytorch_fp32")[static_cast<size_t>(step)].at("loss_mean");
    if (step == 0) {
      EXPECT_LE(std::abs(report.mean_loss - golden),
                2 * std::max(std::abs(theirs - golden), fp32_resolution * golden));
    }
    EXPECT_NEAR(report.mean_loss, golden, 1e-5 * golden) << "step " << step;
    EXPECT_EQ(report.tokens, training.at("golden")[static_cast<size_t>(step)].at("valid_tokens"));
    batches.next_step();
  }
  for (const std::string& param : names) {
    compare(param, "final", rig.engine.read_weights(param), 1);
  }
  std::printf("%s: worst distance is %.2f of PyTorch's\n", name.c_str(), worst);
}

INSTANTIATE_TEST_SUITE_P(Goldens, ParityTest,
                         testing::Values("gpt2", "llama_tied", "llama_untied", "qwen2", "qwen3"),
                         [](const auto& model) { return std::string(model.param); });

}  // namespace
}  // namespace trireme::tests
