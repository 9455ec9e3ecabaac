// SPDX-License-Identifier: Apache-2.0
// Mixtures of experts against `transformers` (make_hf_goldens.py): loss, every gradient and the
// experts that routers choose, of Mixtral, Qwen3-MoE and OLMoE, and of DeepSeek-V3's module inside
// a Llama.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>

#include "base/text/json.h"
#include "ckpt/hf/hf_weights.h"
#include "ckpt/hf/safetensors.h"
#include "config/files/model_file.h"
#include "spec/experts/router_state.h"
#include "tests/engine/rig.h"

namespace trireme::tests {
namespace {

constexpr int64_t golden_sequences = 2, golden_length = 13;

template <typename T>
std::vector<T> golden_values(const ckpt::SafetensorsFile& file, const std::string& name) {
  const ckpt::SafetensorsView& view = file.tensor(name);
  std::vector<T> values(view.bytes.size() / sizeof(T));
  std::memcpy(values.data(), view.bytes.data(), view.bytes.size());
  return values;
}

std::filesystem::path experts_folder(const std::string& model) {
  return std::filesystem::path(TRIREME_SOURCE_DIR) / "tests/golden/hf" / model;
}

// The golden tokens; every one but the last of a sequence predicts the next.
class NextTokens final : public engine::MicrobatchSource {
 public:
  explicit NextTokens(std::vector<int32_t> ids) : ids_(std::move(ids)) {}
  void fill(int /*index*/, const engine::HostMicrobatch& out) override {
    engine::set_equal_sequences(out, golden_sequences, golden_length);
    for (size_t t = 0; t < ids_.size(); ++t) {
      out.tokens[t] = ids_[t];
      const bool is_last = t % golden_length == golden_length - 1;
      out.labels[t] = is_last ? -1 : ids_[t + 1];
    }
  }

 private:
  std::vector<int32_t> ids_;
};

double relative_error(std::span<const float> found, std::span<const double> wanted) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const double d = static_cast<double>(found[i]) - wanted[i];
    difference += d * d;
    size += wanted[i] * wanted[i];
  }
  return std::sqrt(difference / size);
}

struct ExpertsRun {
  double mean_loss = 0;
  std::map<std::string, std::vector<float>> grads;  // of the mean loss
  std::vector<double> counts;                       // [layers with experts, experts]
};

spec::ModelDims golden_dims(const std::string& model, const ckpt::SafetensorsFile& golden) {
  spec::ModelDims dims =
      golden.metadata().contains("model")
          ? config::dims_from_json(base::Json::parse(golden.metadata().at("model")), model)
          : config::model_from_file(experts_folder(model).string(), {});
  dims.moe->balance = {};  // the golden loss is that of the tokens
  return dims;
}

void write_golden_weights(const std::string& model, const spec::ModelDims& dims,
                          const ckpt::SafetensorsFile& golden, engine::Engine& engine) {
  if (!golden.metadata().contains("model")) {
    ckpt::import_hf(experts_folder(model), dims,
                    [&](const std::string& name, std::span<const float> values) {
                      engine.write_weights(name, values);
                    });
    return;
  }
  for (const auto& [name, view] : golden.tensors()) {
    if (!name.starts_with("weight.")) continue;
    engine.write_weights(name.substr(7), golden_values<float>(golden, name));
  }
  const std::vector<float> bias = golden_values<float>(golden, "bias");
  for (const auto& range : engine.state()) {
    if (range.tensor.name == spec::router_bias_state) engine.write_state(range, bias);
  }
}

ExpertsRun run_experts(const std::string& model, const spec::ModelDims& dims,
                       const ckpt::SafetensorsFile& golden) {
  Rig rig({.dims = dims, .sequences = golden_sequences, .seq_len = golden_length, .threads = 2});
  write_golden_weights(model, dims, golden, rig.engine);
  NextTokens batch(golden_values<int32_t>(golden, "input_ids"));
  rig.engine.accumulate(batch);
  ExpertsRun run;
  constexpr auto tokens = static_cast<float>(golden_sequences * (golden_length - 1));
  for (const auto& param : rig.engine.parameters()) {
    run.grads[param.name] = rig.engine.read_grads(param.name);
    for (float& value : run.grads[param.name]) value /= tokens;
  }
  rig.engine.apply(1e-3);
  run.mean_loss = rig.engine.report().mean_loss;
  for (const auto& layer : rig.engine.router_stats()) {
    for (int64_t e = 0; e < layer.at.experts; ++e) {
      run.counts.push_back(static_cast<double>(layer.stats[static_cast<size_t>(e)]));
    }
  }
  return run;
}

class HfExpertsTest : public testing::TestWithParam<const char*> {};

TEST_P(HfExpertsTest, loss_gradients_and_choices_are_those_of_transformers) {
  const auto golden =
      ckpt::SafetensorsFile::open(experts_folder(GetParam()) / "golden.safetensors");
  const ExpertsRun run = run_experts(GetParam(), golden_dims(GetParam(), golden), golden);
  const double loss = golden_values<double>(golden, "mean_loss").front();
  EXPECT_NEAR(run.mean_loss, loss, 1e-6 * loss);
  EXPECT_EQ(run.counts, golden_values<double>(golden, "counts"));
  size_t compared = 0;
  for (const auto& [name, view] : golden.tensors()) {
    if (!name.starts_with("grad.")) continue;
    ++compared;
    const std::vector<double> wanted = golden_values<double>(golden, name);
    const auto found = run.grads.find(name.substr(5));
    ASSERT_TRUE(found != run.grads.end() && found->second.size() == wanted.size()) << name;
    EXPECT_LE(relative_error(found->second, wanted), 1e-4) << name;
  }
  EXPECT_EQ(compared, run.grads.size());
}

// Settings that change the function change loss or gradients by far more than these bounds.
TEST_P(HfExpertsTest, wrong_settings_are_found) {
  const auto golden =
      ckpt::SafetensorsFile::open(experts_folder(GetParam()) / "golden.safetensors");
  const std::vector<double> wanted = golden_values<double>(golden, "grad.embedding.tokens");
  const spec::ModelDims right = golden_dims(GetParam(), golden);
  std::vector<spec::ModelDims> wrong(4, right);
  wrong[0].moe->router.renormalizes = !right.moe->router.renormalizes;
  wrong[1].moe->router.chosen -= 1;
  wrong[2].moe->router.scale *= 1.01F;
  wrong[3].clip_qkv = right.clip_qkv > 0 ? 0 : 0.1F;
  if (right.qk_norm && !right.qk_norm_whole) wrong.pop_back();  // has no limits
  for (size_t i = 0; i < wrong.size(); ++i) {
    const ExpertsRun run = run_experts(GetParam(), wrong[i], golden);
    EXPECT_GT(relative_error(run.grads.at("embedding.tokens"), wanted), 1e-3) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, HfExpertsTest,
                         testing::Values("mixtral", "qwen3_moe", "olmoe", "deepseek_moe"),
                         [](const auto& model) { return std::string(model.param); });

}  // namespace
}  // namespace trireme::tests
