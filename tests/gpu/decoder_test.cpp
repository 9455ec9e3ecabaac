// SPDX-License-Identifier: Apache-2.0
// The decoder on the GPU against the CPU, with steps that are replayed from a graph; and that a
// sequence has the same bits in every batch.
#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/rng.h"
#include "tests/gpu/gpu_rig.h"
#include "train/generate/generator.h"
#include "train/generate/loaded_decoder.h"

namespace trireme::tests {
namespace {

using DecoderTest = GpuTest;

std::vector<int32_t> tokens_for(uint64_t seed, uint64_t count) {
  std::vector<int32_t> tokens;
  for (uint64_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<int32_t>(base::rng_below(seed, i, 61)));
  }
  return tokens;
}

std::filesystem::path hf_folder(const std::string& family) {
  return std::filesystem::path(TRIREME_SOURCE_DIR) / "tests/golden/hf" / family;
}

TEST_F(DecoderTest, logits_are_those_of_the_cpu) {
  for (const char* family : {"gpt2", "llama", "qwen2", "qwen3"}) {
    for (const char* dtype : {"fp32", "bf16"}) {
      SCOPED_TRACE(fmt::format("{} {}", family, dtype));
      train::HfSource weights(hf_folder(family));
      const auto options = [&](const char* device) {
        return train::DecodeOptions{
            .sequences = 3, .seq_len = 19, .dtype = dtype, .system = {.device = device}};
      };
      train::LoadedDecoder cpu(weights, options("cpu")), gpu(weights, options("cuda"));
      for (const int64_t slot : {0, 2}) {
        const auto prompt = tokens_for(static_cast<uint64_t>(slot), 9);
        cpu.decoder().prefill(slot, prompt);
        gpu.decoder().prefill(slot, prompt);
      }
      for (int32_t step = 0; step < 8; ++step) {
        double largest = 0, worst = 0;
        for (const int64_t slot : {0, 2}) {
          const auto a = cpu.decoder().logits(slot), b = gpu.decoder().logits(slot);
          for (size_t v = 0; v < a.size(); ++v) {
            largest = std::max(largest, std::abs(double{a[v]}));
            worst = std::max(worst, std::abs(double{a[v]} - double{b[v]}));
          }
        }
        // Sums in another order; in bf16 intermediate results round to neighbours.
        EXPECT_LE(worst, largest * (std::string_view(dtype) == "fp32" ? 1e-4 : 5e-2)) << step;
        const std::vector<engine::Decoder::Next> next = {{2, step}, {0, 7 * step}};
        cpu.decoder().step(next);
        gpu.decoder().step(next);
      }
      EXPECT_TRUE(gpu.decoder().is_captured());
      EXPECT_FALSE(cpu.decoder().is_captured());
    }
  }
}

TEST_F(DecoderTest, tokens_do_not_depend_on_the_batch) {
  train::HfSource weights(hf_folder("qwen2"));
  std::vector<train::GenerateRequest> requests;
  for (const uint64_t i : {1, 2, 3, 4, 5, 6, 7}) requests.push_back({tokens_for(i, 3 * i)});
  std::vector<std::vector<int32_t>> alone;
  for (const int64_t sequences : {1, 2, 7, 16}) {
    train::LoadedDecoder model(weights, {.sequences = sequences, .system = {.device = "cuda"}});
    std::vector<std::vector<int32_t>> tokens(requests.size());
    train::generate(model.decoder(), requests, {.max_tokens = 60, .sampling = {.temperature = 1.5}},
                    {.on_token =
                         [&](size_t request, int32_t token) {
                           tokens[request].push_back(token);
                           return true;
                         },
                     .on_end = {}});
    if (alone.empty()) alone = tokens;
    EXPECT_EQ(tokens, alone) << sequences;
  }
}

}  // namespace
}  // namespace trireme::tests
