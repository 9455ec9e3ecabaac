// SPDX-License-Identifier: Apache-2.0
// A forward that reads weights as it needs them computes the losses of the engine in the memory of
// half a block, and finds errors of exports that hashes of tensors do not find.
#include "engine/step/streamed_loss.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/error.h"
#include "ckpt/hf/hf_names.h"
#include "ckpt/hf/hf_stream.h"
#include "tests/engine/rig.h"
#include "train/checkpointing/export_loss.h"

namespace trireme::tests {
namespace {

namespace fs = std::filesystem;

spec::ModelDims tiny_qwen2() {
  spec::ModelDims dims = tiny_llama();
  dims.name = "tiny-qwen2";
  dims.tied_head = true;
  dims.qkv_bias = true;
  return dims;
}

std::vector<spec::ModelDims> families() {
  spec::ModelDims qwen3 = tiny_qwen3();
  qwen3.qkv_bias = false;  // Qwen3 files have no such bias, and one eps
  qwen3.qk_norm_eps = qwen3.norm_eps;
  return {tiny_gpt2(), tiny_llama(), tiny_qwen2(), qwen3};
}

// One sequence and its next token.
class OneSequence final : public engine::MicrobatchSource {
 public:
  explicit OneSequence(std::span<const int32_t> tokens) : tokens_(tokens) {}
  void fill(int /*index*/, const engine::HostMicrobatch& out) override {
    engine::set_equal_sequences(out, 1, std::ssize(out.tokens));
    std::copy(tokens_.begin(), tokens_.end() - 1, out.tokens.begin());
    std::copy(tokens_.begin() + 1, tokens_.end(), out.labels.begin());
  }

 private:
  std::span<const int32_t> tokens_;
};

// A model after some steps, so that norm weights are not one and biases are not zero. Evaluation
// windows are as long as its sequence.
struct Trained {
  explicit Trained(const spec::ModelDims& of)
      : dims(of),
        tokens(train::loss_tokens(of)),
        rig({.dims = of,
             .sequences = 1,
             .seq_len = std::ssize(tokens) - 1,
             .head_chunk_rows = std::ssize(tokens) - 1}) {
    rig.train(4, 2e-2);
  }

  ckpt::ReadBox read() {
    return ckpt::boxes_of(ckpt::hf_params(dims), [this](const std::string& name) {
      return rig.engine.read_weights(name);
    });
  }

  std::vector<float> streamed(const engine::ReadWeights& from,
                              const engine::StreamedLossOptions& options = {}) const {
    device::CpuDevice device(kernels::cpu_kernels(), {});
    return engine::streamed_losses(device, rig.model, tokens, from, options);
  }

  spec::ModelDims dims;
  std::vector<int32_t> tokens;
  Rig rig;
};

TEST(StreamedLossTest, losses_are_those_of_the_whole_model) {
  for (const spec::ModelDims& dims : families()) {
    Trained model(dims);
    OneSequence source(model.tokens);
    std::vector<float> whole(model.tokens.size() - 1);
    model.rig.engine.evaluate(source, whole);
    // With one window the head is one GEMM: the same bits.
    EXPECT_EQ(model.streamed(model.read()), whole) << dims.name;
    // With windows of some rows, sums over the vocabulary are added in another order.
    for (const int64_t window : {1, 100, 700}) {
      const std::vector<float> parts = model.streamed(model.read(), {.window_elements = window});
      ASSERT_EQ(parts.size(), whole.size());
      for (size_t t = 0; t < whole.size(); ++t) {
        EXPECT_NEAR(parts[t], whole[t], 1e-5F) << dims.name << " token " << t << " of " << window;
      }
    }
  }
}

TEST(StreamedLossTest, reads_each_parameter_once) {
  for (const spec::ModelDims& dims : families()) {
    Trained model(dims);
    int64_t elements = 0;
    const ckpt::ReadBox read = model.read();
    model.streamed([&](const std::string& name, const spec::Piece& box, std::span<float> values) {
      elements += std::ssize(values);
      read(name, box, values);
    });
    EXPECT_EQ(2 * elements, train::compared_elements(dims)) << dims.name;
  }
}

TEST(StreamedLossTest, needs_the_memory_of_half_a_block) {
  // A wide model, so that activations are small compared with weights.
  spec::ModelDims dims = tiny_llama();
  dims.hidden = 128;
  dims.heads = 4;
  dims.head_dim = 32;
  dims.ffn = 512;
  dims.vocab = 4000;
  int64_t first = 0;
  for (const int layers : {1, 2, 7}) {
    dims.layers = layers;
    device::CpuDevice device(kernels::cpu_kernels(), {});
    engine::streamed_losses(device, spec::make_model(dims), train::loss_tokens(dims),
                            [](const std::string&, const spec::Piece&, std::span<float> values) {
                              std::fill(values.begin(), values.end(), 0.01F);
                            },
                            {.window_elements = 64 * 128});
    const int64_t half = (3 * dims.hidden * dims.ffn + dims.hidden) * 4;
    const int64_t peak = device.ledger().peak(device::Mem::params);
    EXPECT_GE(peak, half);
    EXPECT_LE(peak, half + 4096);  // tensors begin at multiples of the grain
    EXPECT_LT(device.ledger().peak(), half + half / 2);
    if (first == 0) first = device.ledger().peak();
    EXPECT_EQ(device.ledger().peak(), first) << layers << " layers";
    EXPECT_EQ(device.ledger().live(), 0);
  }
}

class ExportLossTest : public testing::Test {
 protected:
  ExportLossTest()
      : folder_(fs::temp_directory_path() / ("trireme_export_loss_" + std::to_string(::getpid()))) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~ExportLossTest() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  fs::path folder_;
};

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const base::IoError& error) {
    return error.what();
  }
  return "";
}

TEST_F(ExportLossTest, exports_of_all_families_have_the_loss_of_their_source) {
  for (const spec::ModelDims& dims : families()) {
    Trained model(dims);
    const double as_is = [&] {
      double sum = 0;
      const std::vector<float> all = model.streamed(model.read());
      for (const float loss : all) sum += static_cast<double>(loss);
      return sum / static_cast<double>(all.size());
    }();
    for (const base::DType dtype : {base::DType::f32, base::DType::bf16}) {
      const fs::path out = folder_ / (dims.name + std::string(base::name_of(dtype)));
      ckpt::export_hf(out, dims, model.read(), {.dtype = dtype, .max_shard_bytes = 5000});
      const train::ExportLoss loss = train::compare_losses(dims, model.read(), out, dtype);
      EXPECT_EQ(loss.checkpoint, loss.exported) << dims.name;
      EXPECT_EQ(loss.tokens, model.tokens);
      // bf16 keeps eight bits of every weight.
      EXPECT_NEAR(loss.exported, as_is, 2e-2 * as_is) << dims.name;
      EXPECT_EQ(loss.exported == as_is, dtype == base::DType::f32) << dims.name;
    }
  }
}

// Every tensor of the folder is a tensor of the source, but under another name.
TEST_F(ExportLossTest, layers_in_another_order_are_found) {
  for (const spec::ModelDims& dims : families()) {
    Trained model(dims);
    const ckpt::ReadBox read = model.read();
    const ckpt::ReadBox swapped = [&](const std::string& name, const spec::Piece& box,
                                      std::span<float> values) {
      std::string other = name;
      if (name.starts_with("blocks.0.")) other.replace(0, 9, "blocks.1.");
      if (name.starts_with("blocks.1.")) other.replace(0, 9, "blocks.0.");
      read(other, box, values);
    };
    const fs::path out = folder_ / dims.name;
    const std::string text = refusal([&] {
      ckpt::export_hf(out, dims, swapped, {.reread = true, .check = [&](const fs::path& written) {
                                             train::compare_losses(dims, read, written,
                                                                   base::DType::f32);
                                           }});
    });
    EXPECT_NE(text.find("nothing was exported"), std::string::npos) << dims.name << ": " << text;
    EXPECT_TRUE(fs::is_empty(folder_)) << dims.name;
  }
}

TEST_F(ExportLossTest, a_changed_setting_in_config_json_is_found) {
  const auto refused = [&](const spec::ModelDims& dims, const std::string& key, double value) {
    Trained model(dims);
    const fs::path out = folder_ / dims.name;
    ckpt::export_hf(out, dims, model.read(), {});
    std::ifstream in(out / "config.json");
    std::string text{std::istreambuf_iterator<char>(in), {}};
    int times = 0;
    for (size_t at = 0; (at = text.find('"' + key + '"', at)) != std::string::npos; ++times) {
      at = text.find(':', at) + 1;
      text.replace(at, text.find_first_of(",\n}", at) - at, fmt::format(" {}", value));
    }
    ASSERT_GT(times, 0) << text;
    std::ofstream(out / "config.json") << text;
    const std::string message =
        refusal([&] { train::compare_losses(dims, model.read(), out, base::DType::f32); });
    EXPECT_NE(message.find("config.json"), std::string::npos) << dims.name << " " << key << message;
  };
  refused(tiny_gpt2(), "layer_norm_epsilon", 1e-3);
  refused(tiny_gpt2(), "n_positions", 9);
  refused(tiny_llama(), "rms_norm_eps", 1e-3);
  refused(tiny_qwen2(), "rope_theta", 5000);
}

TEST_F(ExportLossTest, weights_without_a_finite_loss_equal_only_themselves) {
  const spec::ModelDims dims = tiny_llama();
  Trained model(dims);
  const ckpt::ReadBox read = model.read();
  const ckpt::ReadBox broken = [&](const std::string& name, const spec::Piece& box,
                                   std::span<float> values) {
    read(name, box, values);
    if (name == "blocks.1.norm1.weight") values.back() = NAN;
  };
  const fs::path out = folder_ / "out";
  ckpt::export_hf(out, dims, broken, {});
  const train::ExportLoss loss = train::compare_losses(dims, broken, out, base::DType::f32);
  EXPECT_TRUE(std::isnan(loss.checkpoint) && std::isnan(loss.exported));
  EXPECT_NE(refusal([&] { train::compare_losses(dims, read, out, base::DType::f32); }), "");
}

}  // namespace
}  // namespace trireme::tests
