// SPDX-License-Identifier: Apache-2.0
// The decoder with a cache against the engine that recomputes the complete window: the same greedy
// tokens in every family of models, with weights written by `transformers` and with random ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>

#include "base/error.h"
#include "base/rng.h"
#include "device/cpu/cpu_device.h"
#include "kernels/table.h"
#include "spec/facts/facts.h"
#include "tests/engine/rig.h"
#include "train/generate/generator.h"
#include "train/generate/loaded_decoder.h"
#include "train/weights/inference.h"

namespace trireme::tests {
namespace {

std::filesystem::path golden_folder(const std::string& model) {
  return std::filesystem::path(TRIREME_SOURCE_DIR) / "tests/golden/hf" / model;
}

constexpr const char* hf_families[] = {"gpt2",  "llama",   "qwen2",    "qwen3",
                                       "olmoe", "mixtral", "qwen3_moe"};

// Random weights of a model, large enough that tokens differ, and random biases of routers.
class RandomWeights final : public train::WeightsSource {
 public:
  RandomWeights(spec::ModelDims dims, uint64_t seed) : dims_(std::move(dims)), seed_(seed) {}
  const spec::ModelDims& dims() const override { return dims_; }
  void read(const ckpt::WriteParam& write) override {
    const spec::ModelSpec model = spec::make_model(dims_);
    for (int layer = 0; layer < static_cast<int>(model.layers.size()); ++layer) {
      for (const spec::Param& param : spec::params_of(model, layer)) {
        if (param.shard.shape.empty() || param.tied_copy) continue;
        int64_t count = 1;
        for (const int64_t size : param.shard.shape) count *= size;
        std::vector<float> values(static_cast<size_t>(count));
        const base::RngKey key = base::rng_key(seed_, param.shard.name);
        for (size_t i = 0; i < values.size(); ++i) values[i] = base::rng_normal(key, i, 0.3F);
        write(param.shard.name, values);
      }
      for (const spec::StateTensor& tensor : spec::decode_state(model, layer)) {
        const std::string name = spec::saved_name(tensor, spec::name_of_layer(model, layer));
        std::vector<float> values(static_cast<size_t>(tensor.shard.shape.front()));
        const base::RngKey key = base::rng_key(seed_, name);
        for (size_t i = 0; i < values.size(); ++i) values[i] = base::rng_normal(key, i, 0.3F);
        write(name, values);
      }
    }
  }

 private:
  spec::ModelDims dims_;
  uint64_t seed_;
};

std::vector<int32_t> random_tokens(uint64_t seed, int64_t count, int64_t vocab) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<int32_t>(
        base::rng_below(seed, static_cast<uint64_t>(i), static_cast<uint64_t>(vocab))));
  }
  return tokens;
}

std::vector<std::vector<int32_t>> generated(train::LoadedDecoder& model,
                                            const std::vector<std::vector<int32_t>>& prompts,
                                            const train::GenerateOptions& options) {
  std::vector<train::GenerateRequest> requests;
  for (const auto& prompt : prompts) requests.push_back({.prompt = prompt});
  std::vector<std::vector<int32_t>> tokens(prompts.size());
  train::generate(model.decoder(), requests, options,
                  {.on_token =
                       [&](size_t request, int32_t token) {
                         tokens[request].push_back(token);
                         return true;
                       },
                   .on_end = {}});
  return tokens;
}

int32_t greedy(std::span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// Are the two highest logits as close as sums in another order may differ? Then either token is
// right, and later ones cannot be compared.
bool is_tie(std::vector<float> logits) {
  std::nth_element(logits.begin(), logits.begin() + 1, logits.end(), std::greater<>());
  return logits[0] - logits[1] <= 2e-5F * std::max(std::abs(logits[0]), 1.0F);
}

// Continues prompts with and without a cache to the end of the context.
// Adds the number of compared tokens to `all`.
void expect_same_tokens(train::WeightsSource& weights, uint64_t seed, int64_t* all) {
  const int64_t seq_len = std::min<int64_t>(weights.dims().max_seq, 40);
  train::Inference window(weights, {.seq_len = seq_len, .system = {.device = "cpu"}});
  train::LoadedDecoder cached(weights,
                              {.sequences = 2, .seq_len = seq_len, .system = {.device = "cpu"}});
  const int64_t capacity = cached.decoder().plan().capacity;
  std::vector<std::vector<int32_t>> prompts;
  for (const int64_t length : {int64_t{1}, capacity / 3, capacity - 3}) {
    prompts.push_back(
        random_tokens(seed + static_cast<uint64_t>(length), length, weights.dims().vocab));
  }
  for (const std::vector<int32_t>& prompt : prompts) {
    const int64_t count = std::min<int64_t>(16, capacity + 1 - std::ssize(prompt));
    std::vector<int32_t> expected = prompt;
    int64_t compared = 0;
    for (; compared < count; ++compared) {
      const std::vector<float> logits = window.logits(expected);
      if (is_tie(logits)) break;
      expected.push_back(greedy(logits));
    }
    if (compared == 0) continue;
    expected.erase(expected.begin(), expected.begin() + std::ssize(prompt));
    const auto tokens =
        generated(cached, {prompt}, {.max_tokens = compared, .sampling = {.temperature = 0}});
    EXPECT_EQ(tokens.front(), expected) << "a prompt of " << prompt.size();
    *all += compared;
  }
}

TEST(DecoderTest, norms_of_all_heads_and_limits_give_the_same_tokens) {
  int64_t compared = 0;
  for (const spec::ModelDims& dims : {tiny_whole_norm(), tiny_clipped()}) {
    for (const uint64_t seed : {2, 3, 4}) {
      RandomWeights random(dims, seed);
      expect_same_tokens(random, seed, &compared);
    }
  }
  EXPECT_GT(compared, 60);
}

TEST(DecoderTest, greedy_tokens_are_those_without_a_cache) {
  int64_t compared = 0;
  for (const char* family : hf_families) {
    SCOPED_TRACE(family);
    train::HfSource trained(golden_folder(family));
    expect_same_tokens(trained, 1, &compared);
    for (const uint64_t seed : {1, 2, 3}) {
      SCOPED_TRACE(seed);
      RandomWeights random(trained.dims(), seed);
      expect_same_tokens(random, seed, &compared);
    }
  }
  EXPECT_GE(compared, 700);  // of 1008: ties are rare
}

// A dense block, then one with shared experts and a router with groups and a bias, which changes
// choices.
TEST(DecoderTest, greedy_tokens_of_shared_experts_are_those_without_a_cache) {
  int64_t compared = 0;
  for (const uint64_t seed : {1, 2, 3}) {
    SCOPED_TRACE(seed);
    RandomWeights random(tiny_shared_moe(), seed);
    expect_same_tokens(random, seed, &compared);
  }
  EXPECT_GE(compared, 60);  // of 84
}

TEST(DecoderTest, logits_are_those_without_a_cache) {
  for (const char* family : hf_families) {
    for (const char* dtype : {"fp32", "bf16"}) {
      SCOPED_TRACE(fmt::format("{} {}", family, dtype));
      train::HfSource weights(golden_folder(family));
      train::Inference window(weights,
                              {.seq_len = 16, .dtype = dtype, .system = {.device = "cpu"}});
      train::LoadedDecoder cached(weights,
                                  {.seq_len = 16, .dtype = dtype, .system = {.device = "cpu"}});
      const std::vector<int32_t> tokens = random_tokens(5, 14, weights.dims().vocab);
      cached.decoder().prefill(0, std::span(tokens).first(9));
      for (size_t length = 9; length <= tokens.size(); ++length) {
        const std::vector<float> expected = window.logits(std::span(tokens).first(length));
        const std::span<const float> found = cached.decoder().logits(0);
        double largest = 0;
        for (const float x : expected) largest = std::max(largest, std::abs(double{x}));
        // Sums in another order; in bf16 intermediate results round to neighbours.
        const double allowed = largest * (std::string_view(dtype) == "fp32" ? 1e-5 : 5e-2);
        for (size_t v = 0; v < expected.size(); ++v) {
          ASSERT_NEAR(double{found[v]}, double{expected[v]}, allowed) << length << " tokens";
        }
        if (length < tokens.size()) {
          cached.decoder().step(std::vector<engine::Decoder::Next>{{0, tokens[length]}});
        }
      }
    }
  }
}

// A prompt of several parts, each of prompt_rows tokens, has the logits of one part.
TEST(DecoderTest, a_long_prompt_is_computed_in_parts) {
  train::HfSource weights(golden_folder("qwen3"));
  const spec::ModelSpec model = spec::make_model(weights.dims());
  device::CpuDevice device(kernels::cpu_kernels(), {});
  const std::vector<int32_t> tokens = random_tokens(9, 13, weights.dims().vocab);
  std::vector<std::vector<float>> logits;
  for (const int64_t rows : {13, 5, 1}) {
    engine::Decoder decoder(device, model, {.capacity = 16, .prompt_rows = rows},
                            spec::cpu_backend());
    weights.read([&](const std::string& name, std::span<const float> values) {
      decoder.write_weights(name, values);
    });
    decoder.prefill(0, tokens);
    logits.emplace_back(decoder.logits(0).begin(), decoder.logits(0).end());
    for (size_t v = 0; v < logits[0].size(); ++v) {
      EXPECT_NEAR(double{logits.back()[v]}, double{logits[0][v]}, 1e-4);
    }
  }
}

void expect_tokens_by_sequence(train::WeightsSource& weights) {
  for (const char* dtype : {"fp32", "bf16"}) {
    SCOPED_TRACE(dtype);
    std::vector<std::vector<int32_t>> prompts;
    for (const uint64_t i : {1, 2, 3, 4, 5, 6, 7}) {
      prompts.push_back(random_tokens(i, static_cast<int64_t>(2 * i), weights.dims().vocab));
    }
    // Ends in the middle of the others, and contexts that become full.
    const train::GenerateOptions options{
        .max_tokens = 40, .sampling = {.temperature = 1.5, .seed = 4}, .eos = 7};
    std::vector<std::vector<int32_t>> alone;
    for (const int64_t sequences : {1, 2, 3, 8}) {
      train::LoadedDecoder model(
          weights, {.sequences = sequences, .dtype = dtype, .system = {.device = "cpu"}});
      const auto tokens = generated(model, prompts, options);
      if (alone.empty()) alone = tokens;
      EXPECT_EQ(tokens, alone) << sequences;
      std::vector<std::vector<int32_t>> reversed(prompts.rbegin(), prompts.rend());
      auto of_reversed = generated(model, reversed, options);
      std::ranges::reverse(of_reversed);
      EXPECT_EQ(of_reversed, alone) << sequences;
    }
    size_t longest = 0;
    for (const auto& tokens : alone) longest = std::max(longest, tokens.size());
    EXPECT_EQ(longest, 40U);
  }
}

TEST(DecoderTest, tokens_do_not_depend_on_the_batch_or_the_order) {
  train::HfSource weights(golden_folder("qwen2"));
  expect_tokens_by_sequence(weights);
}

TEST(DecoderTest, tokens_of_experts_do_not_depend_on_the_batch_or_the_order) {
  for (const char* family : {"olmoe", "qwen3_moe"}) {
    SCOPED_TRACE(family);
    train::HfSource weights(golden_folder(family));
    expect_tokens_by_sequence(weights);
  }
  SCOPED_TRACE("shared experts");
  RandomWeights shared(tiny_shared_moe(), 2);
  expect_tokens_by_sequence(shared);
}

TEST(DecoderTest, a_full_context_continues_with_its_second_half) {
  train::HfSource weights(golden_folder("llama"));
  constexpr int64_t capacity = 8;
  train::LoadedDecoder model(weights, {.seq_len = capacity, .system = {.device = "cpu"}});
  const std::vector<int32_t> prompt = random_tokens(3, 11, weights.dims().vocab);
  const auto tokens =
      generated(model, {prompt}, {.max_tokens = 10, .sampling = {.temperature = 0}}).front();
  train::Inference window(weights, {.seq_len = capacity, .system = {.device = "cpu"}});
  std::vector<int32_t> all = prompt;
  size_t seen = 8;  // tokens of the context
  for (const int32_t token : tokens) {
    EXPECT_EQ(token, greedy(window.logits(std::span(all).last(seen))));
    all.push_back(token);
    seen = seen == capacity ? capacity / 2 : seen + 1;
  }
}

TEST(DecoderTest, takes_the_memory_that_is_predicted) {
  std::vector<spec::ModelDims> models = {tiny_shared_moe()};
  for (const char* family : hf_families) {
    models.push_back(train::HfSource(golden_folder(family)).dims());
  }
  for (const spec::ModelDims& dims : models) {
    const spec::ModelSpec model = spec::make_model(dims);
    device::CpuDevice device(kernels::cpu_kernels(), {});
    for (const base::DType dtype : {base::DType::f32, base::DType::bf16}) {
      const spec::DecodePlan plan{.dtype = dtype, .sequences = 3, .capacity = 16, .prompt_rows = 4};
      const engine::Decoder decoder(device, model, plan, spec::cpu_backend());
      const spec::DecodeMemory predicted = spec::decode_memory(model, plan, spec::cpu_backend());
      EXPECT_EQ(decoder.measured(), predicted) << dims.name;
      EXPECT_EQ(device.ledger().live(), predicted.total()) << dims.name;
    }
  }
}

TEST(DecoderTest, what_does_not_fit_is_refused_with_changes_that_do) {
  const spec::ModelSpec model = spec::make_model({.name = "m",
                                                  .family = spec::Family::llama,
                                                  .layers = 4,
                                                  .hidden = 256,
                                                  .heads = 4,
                                                  .ffn = 512,
                                                  .vocab = 1000,
                                                  .max_seq = 2048});
  const spec::DecodePlan plan = train::make_decode_plan(model, {.sequences = 16});
  const spec::Backend backend = spec::cpu_backend();
  const int64_t needed = spec::decode_memory(model, plan, backend).total();
  EXPECT_NO_THROW(train::check_decoder_fits(model, plan, backend, needed));
  try {
    train::check_decoder_fits(model, plan, backend, needed - 1);
    FAIL() << "accepted";
  } catch (const base::OutOfMemory& error) {
    const std::string message = error.what();
    for (const char* part : {"does not fit", "cache of keys and values", "--batch 8", "--seq 1024",
                             "--dtype bf16", "nothing was allocated"}) {
      EXPECT_NE(message.find(part), std::string::npos) << part << "\n" << message;
    }
  }
  EXPECT_THROW(train::make_decode_plan(model, {.sequences = 0}), base::ConfigError);
  EXPECT_THROW(train::make_decode_plan(model, {.seq_len = 2049}), base::ConfigError);
}

}  // namespace
}  // namespace trireme::tests
