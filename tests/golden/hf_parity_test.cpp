// SPDX-License-Identifier: Apache-2.0
// Models in Hugging Face form, written by `transformers` (make_hf_goldens.py): our logits and
// losses match it, and our exports read back to the same bits.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>

#include "ckpt/hf/hf_folder.h"
#include "ckpt/hf/hf_weights.h"
#include "ckpt/hf/safetensors.h"
#include "config/files/model_file.h"
#include "device/cpu/cpu_device.h"
#include "engine/step/streamed_loss.h"
#include "kernels/table.h"
#include "train/weights/inference.h"

namespace trireme::tests {
namespace {

template <typename T>
std::vector<T> hf_values_of(const ckpt::SafetensorsFile& file, const std::string& name) {
  const ckpt::SafetensorsView& view = file.tensor(name);
  std::vector<T> values(view.bytes.size() / sizeof(T));
  std::memcpy(values.data(), view.bytes.data(), view.bytes.size());
  return values;
}

std::filesystem::path folder_of(const std::string& model) {
  return std::filesystem::path(TRIREME_SOURCE_DIR) / "tests/golden/hf" / model;
}

class HfParityTest : public testing::TestWithParam<const char*> {};

TEST_P(HfParityTest, logits_and_losses_are_those_of_transformers) {
  const auto golden = ckpt::SafetensorsFile::open(folder_of(GetParam()) / "golden.safetensors");
  const std::vector<int32_t> ids = hf_values_of<int32_t>(golden, "input_ids");  // [2, 13]
  const std::vector<double> logits = hf_values_of<double>(golden, "logits_f64");
  const std::vector<float> theirs = hf_values_of<float>(golden, "logits");
  const std::vector<double> losses = hf_values_of<double>(golden, "loss");  // [2, 12]
  constexpr size_t length = 13;
  const size_t vocab = logits.size() / ids.size();

  // The root mean square error of transformers' float32 run, over more than a thousand logits, is
  // the size of rounding errors; none of our errors may exceed 8 times that (as in golden_run.h).
  double squares = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    const double difference = static_cast<double>(theirs[i]) - logits[i];
    squares += difference * difference;
  }
  const double allowed = 8 * std::sqrt(squares / static_cast<double>(logits.size()));
  train::Inference one(folder_of(GetParam()), {.seq_len = length});
  double worst = 0;
  for (size_t s = 0; s < 2; ++s) {
    for (size_t t = 0; t < length; ++t) {
      const std::vector<float> ours = one.logits(std::span(ids).subspan(s * length, t + 1));
      ASSERT_EQ(ours.size(), vocab);
      for (size_t v = 0; v < vocab; ++v) {
        worst = std::max(
            worst, std::abs(static_cast<double>(ours[v]) - logits[(s * length + t) * vocab + v]));
      }
    }
  }
  EXPECT_LE(worst, allowed);

  train::Inference both(folder_of(GetParam()), {.sequences = 2, .seq_len = length});
  std::vector<int32_t> labels(ids.size(), -1);
  for (size_t i = 0; i + 1 < ids.size(); ++i) {
    if (i % length != length - 1) labels[i] = ids[i + 1];
  }
  const auto sums = both.losses(ids, labels);
  ASSERT_EQ(sums.size(), 2U);
  for (size_t s = 0; s < 2; ++s) {
    double expected = 0;
    for (size_t t = 0; t < length - 1; ++t) expected += losses[s * (length - 1) + t];
    EXPECT_EQ(sums[s].tokens, static_cast<int64_t>(length - 1));
    EXPECT_NEAR(sums[s].loss_sum, expected, 1e-5 * expected);
  }

  // bf16 keeps eight bits of every number.
  train::Inference rounded(folder_of(GetParam()),
                           {.sequences = 2, .seq_len = length, .dtype = "bf16"});
  for (size_t s = 0; s < 2; ++s) {
    EXPECT_NEAR(rounded.losses(ids, labels)[s].loss_sum, sums[s].loss_sum, 2e-2 * sums[s].loss_sum);
  }
}

// The forward pass that checks an export, which holds half a block at a time.
TEST_P(HfParityTest, streamed_losses_are_those_of_transformers) {
  const auto golden = ckpt::SafetensorsFile::open(folder_of(GetParam()) / "golden.safetensors");
  const std::vector<int32_t> ids = hf_values_of<int32_t>(golden, "input_ids");  // [2, 13]
  const std::vector<double> losses = hf_values_of<double>(golden, "loss");      // [2, 12]
  const spec::ModelDims dims = config::model_from_file(folder_of(GetParam()).string(), {});
  const ckpt::HfFolder weights(folder_of(GetParam()), dims);
  device::CpuDevice device(kernels::cpu_kernels(), {});
  constexpr size_t length = 13;
  for (size_t s = 0; s < 2; ++s) {
    const std::vector<float> ours = engine::streamed_losses(
        device, spec::make_model(dims), std::span(ids).subspan(s * length, length),
        [&](const std::string& name, const spec::Piece& box, std::span<float> values) {
          weights.read(name, box, values);
        },
        {.window_elements = 200});
    ASSERT_EQ(ours.size(), length - 1);
    for (size_t t = 0; t + 1 < length; ++t) {
      const double theirs = losses[s * (length - 1) + t];
      EXPECT_NEAR(static_cast<double>(ours[t]), theirs, 1e-5 * theirs);
    }
  }
}

TEST_P(HfParityTest, exports_are_read_back_to_the_same_bits) {
  const spec::ModelDims dims = config::model_from_file(folder_of(GetParam()).string(), {});
  std::map<std::string, std::vector<float>> weights;
  ckpt::import_hf(folder_of(GetParam()), dims,
                  [&](const std::string& name, std::span<const float> values) {
                    weights[name].assign(values.begin(), values.end());
                  });
  const auto folder =
      std::filesystem::path(testing::TempDir()) / ("hf_parity_" + std::string(GetParam()));
  ckpt::export_hf(folder, dims, [&](const std::string& name) { return weights.at(name); }, {});
  std::map<std::string, std::vector<float>> again;
  EXPECT_EQ(spec::make_model(config::model_from_file(folder.string(), {})).layers,
            spec::make_model(dims).layers);
  ckpt::import_hf(folder, dims, [&](const std::string& name, std::span<const float> values) {
    again[name].assign(values.begin(), values.end());
  });
  EXPECT_EQ(weights, again);
  // The tensors equal those of the original file, to the byte.
  const auto original = ckpt::SafetensorsFile::open(folder_of(GetParam()) / "model.safetensors");
  const auto ours = ckpt::SafetensorsFile::open(folder / "model.safetensors");
  for (const auto& [name, view] : ours.tensors()) {
    ASSERT_TRUE(original.contains(name)) << name;
    EXPECT_EQ(original.tensor(name).shape, view.shape) << name;
    EXPECT_TRUE(
        std::equal(view.bytes.begin(), view.bytes.end(), original.tensor(name).bytes.begin()))
        << name;
  }
  std::filesystem::remove_all(folder);
}

INSTANTIATE_TEST_SUITE_P(Models, HfParityTest,
                         testing::Values("gpt2", "llama", "qwen2", "qwen3", "mixtral", "qwen3_moe",
                                         "olmoe"),
                         [](const auto& model) { return std::string(model.param); });

}  // namespace
}  // namespace trireme::tests
