// SPDX-License-Identifier: Apache-2.0
// Mixtures of experts against `transformers` (make_hf_goldens.py): loss, every gradient and the
// experts that routers choose, of Mixtral, Qwen3-MoE and OLMoE, and of DeepSeek-V3's module inside
// a Llama.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>

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

double relative_error(std::span<const float> found, std::span<const double> wanted, double scale) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const double d = static_cast<double>(found[i]) / scale - wanted[i];
    difference += d * d;
    size += wanted[i] * wanted[i];
  }
  return std::sqrt(difference / size);
}

class HfExpertsTest : public testing::TestWithParam<const char*> {};

TEST_P(HfExpertsTest, loss_gradients_and_choices_are_those_of_transformers) {
  const std::string model = GetParam();
  const auto golden = ckpt::SafetensorsFile::open(experts_folder(model) / "golden.safetensors");
  const bool is_module = model == "deepseek_moe";
  spec::ModelDims dims =
      is_module ? config::dims_from_json(base::Json::parse(golden.metadata().at("model")), model)
                : config::model_from_file(experts_folder(model).string(), {});
  ASSERT_TRUE(dims.moe);
  dims.moe->balance = {};  // the golden loss is that of the tokens
  RigOptions options{
      .dims = dims, .sequences = golden_sequences, .seq_len = golden_length, .threads = 2};
  Rig rig(options);
  if (is_module) {
    for (const auto& [name, view] : golden.tensors()) {
      if (!name.starts_with("weight.")) continue;
      rig.engine.write_weights(name.substr(7), golden_values<float>(golden, name));
    }
    const std::vector<float> bias = golden_values<float>(golden, "bias");
    int biases = 0;
    for (const auto& range : rig.engine.state()) {
      if (range.tensor.name != spec::router_bias_state) continue;
      rig.engine.write_state(range, bias);
      ++biases;
    }
    EXPECT_EQ(biases, 1);
  } else {
    ckpt::import_hf(experts_folder(model), dims,
                    [&](const std::string& name, std::span<const float> values) {
                      rig.engine.write_weights(name, values);
                    });
  }
  NextTokens batch(golden_values<int32_t>(golden, "input_ids"));
  rig.engine.accumulate(batch);
  const double tokens = golden_sequences * (golden_length - 1);
  size_t compared = 0;
  for (const auto& param : rig.engine.parameters()) {
    const std::vector<double> wanted = golden_values<double>(golden, "grad." + param.name);
    const std::vector<float> found = rig.engine.read_grads(param.name);
    ASSERT_EQ(found.size(), wanted.size()) << param.name;
    EXPECT_LE(relative_error(found, wanted, tokens), 1e-4) << param.name;
    ++compared;
  }
  size_t grads = 0;
  for (const auto& [name, view] : golden.tensors()) grads += name.starts_with("grad.") ? 1 : 0;
  EXPECT_EQ(compared, grads);

  rig.engine.apply(1e-3);
  const double loss = golden_values<double>(golden, "mean_loss").front();
  EXPECT_NEAR(rig.engine.report().mean_loss, loss, 1e-6 * loss);
  const std::vector<double> counts = golden_values<double>(golden, "counts");
  const auto stats = rig.engine.router_stats();
  const auto experts = static_cast<size_t>(dims.moe->router.experts);
  ASSERT_EQ(stats.size() * experts, counts.size());
  for (size_t layer = 0; layer < stats.size(); ++layer) {
    for (size_t e = 0; e < experts; ++e) {
      EXPECT_EQ(static_cast<double>(stats[layer].stats[e]), counts[layer * experts + e])
          << "expert " << e << " of layer " << stats[layer].layer;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, HfExpertsTest,
                         testing::Values("mixtral", "qwen3_moe", "olmoe", "deepseek_moe"),
                         [](const auto& model) { return std::string(model.param); });

}  // namespace
}  // namespace trireme::tests
