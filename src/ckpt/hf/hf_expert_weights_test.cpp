// SPDX-License-Identifier: Apache-2.0
// Weights of mixtures of experts: one tensor for each matrix of each expert in files, two fused
// parameters in a block.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <map>
#include <set>

#include "base/rng.h"
#include "base/text/json.h"
#include "ckpt/hf/hf_folder.h"
#include "ckpt/hf/hf_names.h"
#include "ckpt/hf/hf_stream.h"
#include "ckpt/hf/hf_weights.h"
#include "ckpt/hf/safetensors.h"
#include "config/files/hf_config.h"

namespace trireme::ckpt {
namespace {

using std::filesystem::path;
using Weights = std::map<std::string, std::vector<float>>;

constexpr int64_t moe_experts = 3, moe_width = 12, moe_ffn = 5;

class ExpertFolder {
 public:
  ExpertFolder() {
    static int count = 0;
    path_ = std::filesystem::temp_directory_path() /
            ("trireme_hf_experts_" + std::to_string(::getpid()) + "_" + std::to_string(count++));
    std::filesystem::create_directories(path_);
  }
  ~ExpertFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ExpertFolder(const ExpertFolder&) = delete;
  ExpertFolder& operator=(const ExpertFolder&) = delete;
  path operator/(const char* name) const { return path_ / name; }

 private:
  path path_;
};

spec::ModelDims mixtral() {
  spec::ModelDims dims{.name = "mixtral",
                       .layers = 2,
                       .hidden = moe_width,
                       .heads = 3,
                       .kv_heads = 1,
                       .vocab = 31,
                       .max_seq = 9,
                       .tied_head = false,
                       .moe = spec::MoeSpec{}};
  dims.moe->router = {.experts = moe_experts, .chosen = 2, .renormalizes = true};
  dims.moe->ffn = moe_ffn;
  dims.moe->balance.aux = 0.02F;
  return dims;
}

spec::ModelDims qwen3_moe() {
  spec::ModelDims dims = mixtral();
  dims.name = "qwen3_moe";
  dims.layers = 3;
  dims.dense_layers = 1;
  dims.ffn = 7;
  dims.head_dim = 6;
  dims.qk_norm = true;
  dims.qk_norm_eps = dims.norm_eps;
  return dims;
}

spec::ModelDims olmoe() {
  spec::ModelDims dims = mixtral();
  dims.name = "olmoe";
  dims.qk_norm = dims.qk_norm_whole = true;
  dims.qk_norm_eps = dims.norm_eps;
  dims.clip_qkv = 8;
  dims.moe->router.renormalizes = false;
  return dims;
}

Weights random_weights_of(const spec::ModelDims& dims) {
  Weights weights;
  for (const HfParam& param : hf_params(dims)) {
    const base::RngKey key = base::rng_key(7, param.name);
    std::vector<float>& values = weights[param.name];
    for (int64_t i = 0; i < param.elements(); ++i) {
      values.push_back(base::rng_normal(key, static_cast<uint64_t>(i), 0.5F));
    }
  }
  return weights;
}

std::string bytes_of_file(const path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::map<std::string, std::string> files_of(const path& dir) {
  std::map<std::string, std::string> content;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    content[entry.path().filename().string()] = bytes_of_file(entry.path());
  }
  return content;
}

TEST(HfExpertWeights, export_import_export_gives_identical_bytes) {
  for (const auto& dims : {mixtral(), qwen3_moe(), olmoe()}) {
    for (const base::DType dtype : {base::DType::f32, base::DType::bf16}) {
      for (const int64_t max_shard_bytes : {int64_t{5'000'000'000}, int64_t{2000}}) {
        SCOPED_TRACE(dims.name + std::string(base::name_of(dtype)) +
                     std::to_string(max_shard_bytes));
        const ExpertFolder folder;
        const ExportOptions options{
            .dtype = dtype, .max_shard_bytes = max_shard_bytes, .reread = true};
        const Weights weights = random_weights_of(dims);
        const auto reader = [](const Weights& from) {
          return ReadParam([&from](const std::string& name) { return from.at(name); });
        };
        export_hf(folder / "a", dims, reader(weights), options);
        const auto json = base::Json::parse(bytes_of_file(folder / "a" / "config.json"));
        EXPECT_EQ(json["model_type"], dims.name);
        Weights back;
        import_hf(folder / "a", config::dims_from_hf(json, dims.name),
                  [&](const std::string& name, std::span<const float> values) {
                    back[name].assign(values.begin(), values.end());
                  });
        if (dtype == base::DType::f32) {
          EXPECT_EQ(back, weights);
        }
        export_hf(folder / "b", dims, reader(back), options);
        EXPECT_EQ(files_of(folder / "a"), files_of(folder / "b"));
      }
    }
  }
}

TEST(HfExpertWeights, experts_are_rows_of_the_fused_parameters_under_the_known_names) {
  struct Case {
    spec::ModelDims dims;
    int block;
    std::string mlp, gate, up, down;
  };
  const std::vector<Case> cases = {
      {mixtral(), 1, "model.layers.1.block_sparse_moe.", "w1", "w3", "w2"},
      {qwen3_moe(), 2, "model.layers.2.mlp.", "gate_proj", "up_proj", "down_proj"},
      {olmoe(), 1, "model.layers.1.mlp.", "gate_proj", "up_proj", "down_proj"}};
  for (const Case& one : cases) {
    const ExpertFolder folder;
    const Weights weights = random_weights_of(one.dims);
    export_hf(folder / "a", one.dims,
              ReadParam([&](const std::string& name) { return weights.at(name); }), {});
    const SafetensorsFile file = SafetensorsFile::open(folder / "a" / "model.safetensors");
    const std::string block = "blocks." + std::to_string(one.block) + ".";
    const auto expect = [&](const std::string& name, const std::vector<int64_t>& shape,
                            const std::string& ours, int64_t first) {
      const SafetensorsView& view = file.tensor(name);
      EXPECT_EQ(view.shape, shape) << name;
      const auto* values = reinterpret_cast<const float*>(view.bytes.data());
      for (int64_t i = 0; i < shape[0] * shape[1]; ++i) {
        ASSERT_EQ(values[i], weights.at(ours)[static_cast<size_t>(first + i)]) << name;
      }
    };
    expect(one.mlp + "gate.weight", {moe_experts, moe_width}, block + "router.weight", 0);
    for (int64_t e = 0; e < moe_experts; ++e) {
      const std::string expert = one.mlp + "experts." + std::to_string(e) + ".";
      const std::string up = block + "experts.gate_up.weight";
      const int64_t matrix = moe_ffn * moe_width;
      expect(expert + one.gate + ".weight", {moe_ffn, moe_width}, up, 2 * e * matrix);
      expect(expert + one.up + ".weight", {moe_ffn, moe_width}, up, (2 * e + 1) * matrix);
      expect(expert + one.down + ".weight", {moe_width, moe_ffn}, block + "experts.down.weight",
             e * matrix);
    }
    if (one.dims.dense_layers > 0) {
      expect("model.layers.0.mlp.gate_proj.weight", {7, moe_width}, "blocks.0.gate_up.weight", 0);
    }
    std::set<std::string> names;
    for (const HfParam& param : hf_params(one.dims)) {
      for (const HfTensor& tensor : param.tensors) names.insert(tensor.name);
    }
    EXPECT_EQ(names.size(), file.tensors().size());
  }
}

TEST(HfExpertWeights, boxes_of_all_dimensions_are_read) {
  const ExpertFolder folder;
  const spec::ModelDims dims = mixtral();
  const Weights weights = random_weights_of(dims);
  const ReadParam whole = [&](const std::string& name) { return weights.at(name); };
  export_hf(folder / "a", dims, whole, {});
  const HfFolder files(folder / "a", dims);
  const ReadBox from_params = boxes_of(hf_params(dims), whole);
  const std::string name = "blocks.0.experts.gate_up.weight";
  const int64_t rows = 2 * moe_ffn;
  for (const spec::Piece& box :
       {spec::Piece{{0, 0, 0}, {moe_experts, rows, moe_width}, 0},
        spec::Piece{{1, 0, 0}, {3, rows, moe_width}, 0}, spec::Piece{{1, 3, 2}, {3, 8, 11}, 0},
        spec::Piece{{2, 9, 11}, {3, 10, 12}, 0}}) {
    std::vector<float> wanted;
    for (int64_t e = box.lo[0]; e < box.hi[0]; ++e) {
      for (int64_t r = box.lo[1]; r < box.hi[1]; ++r) {
        for (int64_t c = box.lo[2]; c < box.hi[2]; ++c) {
          wanted.push_back(weights.at(name)[static_cast<size_t>((e * rows + r) * moe_width + c)]);
        }
      }
    }
    std::vector<float> found(wanted.size()), again(wanted.size());
    files.read(name, box, found);
    from_params(name, box, again);
    EXPECT_EQ(found, wanted);
    EXPECT_EQ(again, wanted);
  }
}

TEST(HfExpertWeights, a_missing_expert_is_named) {
  const ExpertFolder folder;
  const spec::ModelDims dims = olmoe();
  const Weights weights = random_weights_of(dims);
  export_hf(folder / "a", dims,
            ReadParam([&](const std::string& name) { return weights.at(name); }), {});
  spec::ModelDims more = dims;
  more.moe->router.experts = moe_experts + 1;
  try {
    expect_hf(folder / "a", more);
    FAIL() << "accepted";
  } catch (const std::exception& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("model.layers.0.mlp.experts.3.gate_proj.weight"), std::string::npos)
        << message;
    EXPECT_NE(message.find("mlp.gate.weight"), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace trireme::ckpt
