// SPDX-License-Identifier: Apache-2.0
// Logits and losses of Hugging Face models on the GPU against those of `transformers`: the tiny
// goldens of this tree, and the larger ones that hf_check.py writes into sub-folders of
// TRIREME_HF_GOLDENS (config.json, model.safetensors, golden.safetensors with input_ids [S, T] and
// logits F32 [S, T, V]). Goldens of single modules have no config.json.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "ckpt/hf/safetensors.h"
#include "tests/gpu/gpu_rig.h"
#include "train/weights/inference.h"

namespace trireme::tests {
namespace {

namespace fs = std::filesystem;
using HfLogitsTest = GpuTest;

template <typename T>
std::vector<T> values_of(const ckpt::SafetensorsFile& file, const std::string& name) {
  const ckpt::SafetensorsView& view = file.tensor(name);
  std::vector<T> values(view.bytes.size() / sizeof(T));
  std::memcpy(values.data(), view.bytes.data(), view.bytes.size());
  return values;
}

std::vector<fs::path> folders() {
  std::vector<fs::path> found;
  const char* larger = std::getenv("TRIREME_HF_GOLDENS");
  const fs::path tiny = fs::path(TRIREME_SOURCE_DIR) / "tests/golden/hf";
  for (const fs::path& root : {tiny, fs::path(larger != nullptr ? larger : "")}) {
    if (root.empty()) continue;
    for (const auto& entry : fs::directory_iterator(root)) {
      if (fs::exists(entry.path() / "golden.safetensors") &&
          fs::exists(entry.path() / "config.json"))
        found.push_back(entry.path());
    }
  }
  return found;
}

double token_loss(std::span<const float> logits, int32_t label) {
  double largest = -HUGE_VAL, sum = 0;
  for (const float l : logits) largest = std::max(largest, static_cast<double>(l));
  for (const float l : logits) sum += std::exp(static_cast<double>(l) - largest);
  return std::log(sum) + largest - static_cast<double>(logits[static_cast<size_t>(label)]);
}

TEST_F(HfLogitsTest, logits_and_losses_are_those_of_transformers) {
  ASSERT_GE(folders().size(), 7U);
  for (const fs::path& folder : folders()) {
    const auto golden = ckpt::SafetensorsFile::open(folder / "golden.safetensors");
    const std::vector<int32_t> ids = values_of<int32_t>(golden, "input_ids");
    const std::vector<float> logits = values_of<float>(golden, "logits");
    const auto sequences = static_cast<size_t>(golden.tensor("input_ids").shape[0]);
    const size_t length = ids.size() / sequences, vocab = logits.size() / ids.size();
    std::vector<int32_t> labels(ids.size(), -1);
    double expected = 0;
    for (size_t i = 0; i < ids.size(); ++i) {
      if (i % length == length - 1) continue;
      labels[i] = ids[i + 1];
      expected += token_loss(std::span(logits).subspan(i * vocab, vocab), labels[i]);
    }
    for (const bool is_bf16 : {false, true}) {
      const std::string what = folder.filename().string() + (is_bf16 ? " bf16" : " fp32");
      const train::InferenceOptions options{.sequences = static_cast<int64_t>(sequences),
                                            .seq_len = static_cast<int64_t>(length),
                                            .dtype = is_bf16 ? "bf16" : "fp32",
                                            .system = {.device = "cuda"}};
      double sum = 0;
      train::Inference whole(folder, options);
      for (const auto& loss : whole.losses(ids, labels)) sum += loss.loss_sum;
      EXPECT_NEAR(sum, expected, (is_bf16 ? 2e-2 : 1e-5) * expected) << what;

      train::InferenceOptions single = options;
      single.sequences = 1;
      train::Inference one(folder, single);
      std::vector<double> errors;
      // Every token of a short sequence; some tokens of a long one, including the last.
      const size_t stride = length > 32 ? 31 : 1;
      for (size_t s = 0; s < sequences; ++s) {
        for (size_t back = 0; back < length; back += stride) {
          const size_t t = length - 1 - back;
          const auto ours = one.logits(std::span(ids).subspan(s * length, t + 1));
          ASSERT_EQ(ours.size(), vocab);
          const auto theirs = std::span(logits).subspan((s * length + t) * vocab, vocab);
          errors.push_back(relative_error(ours, theirs));
        }
      }
      std::ranges::sort(errors, std::greater{});
      // Rounded to bf16, two of a token's router scores may change places: one token may then have
      // the result of another expert. Without experts every token is near.
      const bool may_reroute = is_bf16 && spec::expert_blocks(one.dims()) > 0;
      const double worst = errors.at(may_reroute ? 1 : 0);
      std::printf("%s: logits within %.2e, loss %.6f against %.6f\n", what.c_str(), worst, sum,
                  expected);
      EXPECT_LE(worst, is_bf16 ? 5e-2 : 1e-4) << what;
    }
  }
}

}  // namespace
}  // namespace trireme::tests
