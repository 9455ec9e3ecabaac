// SPDX-License-Identifier: Apache-2.0
#include "ckpt/hf/hf_weights.h"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <stdexcept>

#include "base/error.h"
#include "base/rng.h"
#include "base/text/json.h"
#include "ckpt/hf/hf_names.h"
#include "ckpt/hf/safetensors.h"
#include "config/files/hf_config.h"

namespace trireme::ckpt {
namespace {

using std::filesystem::path;
using Weights = std::map<std::string, std::vector<float>>;
using Tensors = std::map<std::string, SafetensorsView, std::less<>>;

class Folder {
 public:
  Folder() {
    static int count = 0;
    path_ = std::filesystem::temp_directory_path() /
            ("trireme_hf_" + std::to_string(::getpid()) + "_" + std::to_string(count++));
    std::filesystem::create_directories(path_);
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  path operator/(const char* name) const { return path_ / name; }
  const path& where() const { return path_; }

 private:
  path path_;
};

spec::ModelDims gpt2() {
  return {.name = "gpt2",
          .family = spec::Family::gpt2,
          .layers = 2,
          .hidden = 12,
          .heads = 3,
          .ffn = 20,
          .vocab = 31,
          .max_seq = 9};
}

spec::ModelDims llama() {
  return {.name = "llama",
          .layers = 2,
          .hidden = 12,
          .heads = 3,
          .kv_heads = 1,
          .ffn = 20,
          .vocab = 31,
          .max_seq = 9,
          .tied_head = false};
}

spec::ModelDims llama_tied() {
  spec::ModelDims dims = llama();
  dims.tied_head = true;
  return dims;
}

spec::ModelDims qwen2() {
  spec::ModelDims dims = llama_tied();
  dims.name = "qwen2";
  dims.qkv_bias = true;
  return dims;
}

spec::ModelDims qwen3() {
  spec::ModelDims dims = llama_tied();
  dims.name = "qwen3";
  dims.head_dim = 6;
  dims.qk_norm = true;
  dims.norm_eps = dims.qk_norm_eps;
  return dims;
}

Weights random_weights(const spec::ModelDims& dims) {
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

ReadParam reader_of(const Weights& weights) {
  return [&weights](const std::string& name) { return weights.at(name); };
}

Weights imported(const path& where, const spec::ModelDims& dims) {
  Weights weights;
  import_hf(where, dims, [&](const std::string& name, std::span<const float> values) {
    EXPECT_FALSE(weights.contains(name)) << name;
    weights[name].assign(values.begin(), values.end());
  });
  return weights;
}

std::string read_bytes(const path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write_bytes(const path& file, const std::string& bytes) {
  std::ofstream(file, std::ios::binary) << bytes;
}

// Returns name -> content of everything in a directory.
std::map<std::string, std::string> content_of(const path& dir) {
  std::map<std::string, std::string> content;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    content[entry.path().filename().string()] =
        entry.is_directory() ? "a directory" : read_bytes(entry.path());
  }
  return content;
}

std::string import_refusal(const path& where, const spec::ModelDims& dims) {
  int writes = 0;
  std::string message;
  try {
    import_hf(where, dims, [&](const std::string&, std::span<const float>) { ++writes; });
  } catch (const base::IoError& error) {
    message = error.what();
  }
  EXPECT_EQ(writes, 0) << "a refused import wrote parameters";
  return message;
}

// Rewrites one safetensors file with some of its tensors changed.
void edit(const path& file, const std::function<void(Tensors&)>& change) {
  const SafetensorsFile old = SafetensorsFile::open(file);
  Tensors tensors(old.tensors().begin(), old.tensors().end());
  change(tensors);
  write_safetensors(file, tensors, old.metadata());
}

// ---- round trips

TEST(HfWeights, export_import_export_gives_identical_bytes) {
  for (const auto& dims : {gpt2(), llama(), llama_tied(), qwen2(), qwen3()}) {
    for (const base::DType dtype : {base::DType::f32, base::DType::bf16}) {
      for (const int64_t max_shard_bytes : {int64_t{5'000'000'000}, int64_t{2000}}) {
        SCOPED_TRACE(dims.name + std::string(base::name_of(dtype)) +
                     std::to_string(max_shard_bytes));
        const Folder folder;
        const ExportOptions options{.dtype = dtype, .max_shard_bytes = max_shard_bytes};
        const Weights weights = random_weights(dims);
        export_hf(folder / "a", dims, reader_of(weights), options);
        // The exported config.json describes the model that the weights belong to.
        const auto json = base::Json::parse(read_bytes(folder / "a" / "config.json"));
        const Weights back = imported(folder / "a", config::dims_from_hf(json, dims.name));
        if (dtype == base::DType::f32) {
          EXPECT_EQ(back, weights);
        }
        export_hf(folder / "b", dims, reader_of(back), options);
        EXPECT_EQ(content_of(folder / "a"), content_of(folder / "b"));
        EXPECT_EQ(std::filesystem::exists(folder / "a" / "model.safetensors.index.json"),
                  max_shard_bytes < 1'000'000);
      }
    }
  }
}

TEST(HfWeights, bf16_rounds_to_nearest) {
  const Folder folder;
  const Weights weights = random_weights(llama());
  export_hf(folder / "a", llama(), reader_of(weights), {.dtype = base::DType::bf16});
  for (const auto& [name, values] : imported(folder / "a", llama())) {
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(values[i], static_cast<float>(base::Bf16(weights.at(name)[i]))) << name;
    }
  }
}

TEST(HfWeights, fused_parameters_are_split_by_rows_under_the_known_names) {
  const Folder folder;
  const Weights weights = random_weights(qwen2());
  export_hf(folder / "a", qwen2(), reader_of(weights), {});
  const SafetensorsFile file = SafetensorsFile::open(folder / "a" / "model.safetensors");
  EXPECT_EQ(file.metadata(), (SafetensorsMetadata{{"format", "pt"}, {"producer", "trireme"}}));
  std::set<std::string> names;
  for (const auto& [name, view] : file.tensors()) names.insert(name);
  EXPECT_EQ(names.size(), 2 + 2 * 12U);
  EXPECT_FALSE(names.contains("lm_head.weight"));
  const std::vector<float>& qkv = weights.at("blocks.1.qkv.weight");  // [12 + 4 + 4, 12]
  const SafetensorsView& v = file.tensor("model.layers.1.self_attn.v_proj.weight");
  EXPECT_EQ(v.shape, (std::vector<int64_t>{4, 12}));
  EXPECT_EQ(std::memcmp(v.bytes.data(), qkv.data() + 16 * 12, v.bytes.size()), 0);
  const std::vector<float>& gate_up = weights.at("blocks.0.gate_up.weight");
  const SafetensorsView& up = file.tensor("model.layers.0.mlp.up_proj.weight");
  EXPECT_EQ(up.shape, (std::vector<int64_t>{20, 12}));
  EXPECT_EQ(std::memcmp(up.bytes.data(), gate_up.data() + 20 * 12, up.bytes.size()), 0);
  EXPECT_EQ(file.tensor("model.layers.0.self_attn.k_proj.bias").shape, (std::vector<int64_t>{4}));
}

TEST(HfWeights, gpt2_projections_are_transposed_and_tables_are_not) {
  const Folder folder;
  const Weights weights = random_weights(gpt2());
  export_hf(folder / "a", gpt2(), reader_of(weights), {});
  const SafetensorsFile file = SafetensorsFile::open(folder / "a" / "model.safetensors");
  const SafetensorsView& c_attn = file.tensor("transformer.h.0.attn.c_attn.weight");
  EXPECT_EQ(c_attn.shape, (std::vector<int64_t>{12, 36}));
  float element = 0;  // [in 3, out 5]
  std::memcpy(&element, c_attn.bytes.data() + (3 * 36 + 5) * sizeof(float), sizeof(float));
  EXPECT_EQ(element, weights.at("blocks.0.qkv.weight")[5 * 12 + 3]);
  EXPECT_EQ(file.tensor("transformer.wte.weight").shape, (std::vector<int64_t>{31, 12}));
  EXPECT_EQ(file.tensor("transformer.wpe.weight").shape, (std::vector<int64_t>{9, 12}));
}

TEST(HfWeights, shards_stay_below_the_limit_and_the_index_lists_all) {
  const Folder folder;
  export_hf(folder / "a", llama(), reader_of(random_weights(llama())), {.max_shard_bytes = 4000});
  const auto index = base::Json::parse(read_bytes(folder / "a" / "model.safetensors.index.json"));
  int64_t total = 0;
  size_t tensors = 0;
  std::set<std::string> files;
  for (const auto& [name, file] : index["weight_map"].items()) files.insert(file);
  EXPECT_EQ(*files.begin(), "model-00001-of-0000" + std::to_string(files.size()) + ".safetensors");
  for (const std::string& name : files) {
    const SafetensorsFile file = SafetensorsFile::open(folder / "a" / name.c_str());
    int64_t bytes = 0;
    for (const auto& [tensor, view] : file.tensors()) {
      bytes += static_cast<int64_t>(view.bytes.size());
    }
    EXPECT_LE(bytes, 4000);
    total += bytes;
    tensors += file.tensors().size();
  }
  EXPECT_EQ(index["metadata"]["total_size"], total);
  EXPECT_EQ(index["weight_map"].size(), tensors);
}

TEST(HfWeights, reads_gpt2_names_without_prefix_and_ignores_known_constants) {
  const Folder folder;
  const Weights weights = random_weights(gpt2());
  export_hf(folder / "a", gpt2(), reader_of(weights), {});
  const std::vector<float> mask(81);
  edit(folder / "a" / "model.safetensors", [&](Tensors& tensors) {
    Tensors renamed;
    for (const auto& [name, view] : tensors) renamed[name.substr(12)] = view;
    renamed["h.0.attn.bias"] = {"F32", {1, 1, 9, 9}, std::as_bytes(std::span(mask))};
    renamed["h.1.attn.masked_bias"] = {"F32", {}, std::as_bytes(std::span(mask)).first(4)};
    renamed["lm_head.weight"] = renamed.at("wte.weight");
    tensors = renamed;
  });
  EXPECT_EQ(imported(folder / "a", gpt2()), weights);
  EXPECT_EQ(imported(folder / "a" / "model.safetensors", gpt2()), weights);
}

TEST(HfWeights, reads_half_and_double_precision) {
  const Folder folder;
  Weights weights = random_weights(llama());
  weights["head.norm.weight"] = {
      1, -2, 0.5F, 65504, 0, 0x1p-24F, 3 * 0x1p-24F, -0x1p-14F, 1.5F, 0.333251953125F, 1024, -7};
  export_hf(folder / "a", llama(), reader_of(weights), {});
  const uint16_t halves[] = {0x3c00, 0xc000, 0x3800, 0x7bff, 0x0000, 0x0001,
                             0x0003, 0x8400, 0x3e00, 0x3555, 0x6400, 0xc700};
  std::vector<double> doubles;
  for (const float value : weights.at("blocks.0.norm1.weight")) doubles.push_back(value);
  edit(folder / "a" / "model.safetensors", [&](Tensors& tensors) {
    tensors["model.norm.weight"] = {"F16", {12}, std::as_bytes(std::span(halves))};
    tensors["model.layers.0.input_layernorm.weight"] = {
        "F64", {12}, std::as_bytes(std::span(doubles))};
  });
  EXPECT_EQ(imported(folder / "a", llama()), weights);
}

// ---- refused imports

TEST(HfWeights, missing_misshaped_and_unexpected_tensors_are_all_named) {
  const Folder folder;
  export_hf(folder / "a", llama(), reader_of(random_weights(llama())), {});
  edit(folder / "a" / "model.safetensors", [](Tensors& tensors) {
    tensors.erase("model.layers.1.mlp.up_proj.weight");
    tensors["model.norm.weight"].shape = {3, 4};
    tensors["model.layers.0.mlp.extra.weight"] = tensors["model.norm.weight"];
  });
  const std::string message = import_refusal(folder / "a", llama());
  EXPECT_NE(message.find("'model.layers.1.mlp.up_proj.weight' [20, 12] is missing"),
            std::string::npos)
      << message;
  EXPECT_NE(message.find("'model.norm.weight' is [3, 4]; the model wants [12]"), std::string::npos)
      << message;
  EXPECT_NE(message.find("'model.layers.0.mlp.extra.weight'"), std::string::npos) << message;
  EXPECT_NE(message.find("model.safetensors"), std::string::npos) << message;
}

TEST(HfWeights, values_that_are_not_finite_are_counted_and_refused_with_their_place) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  const auto message = [](const spec::ModelDims& dims, const Weights& weights, base::DType dtype) {
    const Folder folder;
    export_hf(folder / "a", dims, reader_of(weights), {.dtype = dtype});
    std::set<std::string> written;
    std::string text;
    try {
      import_hf(folder / "a", dims, [&](const std::string& name, std::span<const float> values) {
        written.insert(name);
        for (const float value : values) EXPECT_TRUE(std::isfinite(value)) << name;
      });
    } catch (const base::IoError& error) {
      text = error.what();
    }
    EXPECT_FALSE(written.contains("blocks.1.qkv.weight"));
    return text;
  };
  for (const base::DType dtype : {base::DType::f32, base::DType::bf16}) {
    // Row 13 of [12 + 4 + 4, 12] is row 1 of k.
    Weights weights = random_weights(qwen2());
    weights.at("blocks.1.qkv.weight")[13 * 12 + 5] = nan;
    std::string text = message(qwen2(), weights, dtype);
    EXPECT_NE(text.find("1 value of 1 parameter is not finite, the first is nan at [1, 5] of "
                        "tensor 'model.layers.1.self_attn.k_proj.weight'"),
              std::string::npos)
        << text;
    weights.at("blocks.1.qkv.weight")[13 * 12 + 6] = -infinity;
    weights.at("head.norm.weight")[3] = infinity;
    text = message(qwen2(), weights, dtype);
    EXPECT_NE(text.find("3 values of 2 parameters are not finite"), std::string::npos) << text;
    // The file has it transposed.
    weights = random_weights(gpt2());
    weights.at("blocks.1.qkv.weight")[5 * 12 + 3] = -infinity;
    text = message(gpt2(), weights, dtype);
    EXPECT_NE(text.find("-inf at [3, 5] of tensor 'transformer.h.1.attn.c_attn.weight'"),
              std::string::npos)
        << text;
  }
}

TEST(HfWeights, a_tensor_of_whole_numbers_is_refused) {
  const Folder folder;
  export_hf(folder / "a", llama(), reader_of(random_weights(llama())), {});
  edit(folder / "a" / "model.safetensors",
       [](Tensors& tensors) { tensors["model.norm.weight"].dtype = "I32"; });
  const std::string message = import_refusal(folder / "a", llama());
  EXPECT_NE(message.find("'model.norm.weight' is of type I32; F32, BF16, F16 and F64"),
            std::string::npos)
      << message;
}

TEST(HfWeights, a_head_that_differs_from_the_tied_table_is_refused) {
  const Folder folder;
  export_hf(folder / "a", llama(), reader_of(random_weights(llama())), {});
  const std::string message = import_refusal(folder / "a", llama_tied());
  EXPECT_NE(message.find("'lm_head.weight' F32[31, 12] differs from 'model.embed_tokens.weight'"),
            std::string::npos)
      << message;
}

TEST(HfWeights, another_family_gives_a_short_message) {
  const Folder folder;
  export_hf(folder / "a", gpt2(), reader_of(random_weights(gpt2())), {});
  const std::string message = import_refusal(folder / "a", llama());
  EXPECT_NE(message.find("more"), std::string::npos) << message;
  EXPECT_LT(message.size(), 2500U);
}

TEST(HfWeights, one_tensor_under_two_names_is_refused) {
  const Folder folder;
  export_hf(folder / "a", gpt2(), reader_of(random_weights(gpt2())), {});
  edit(folder / "a" / "model.safetensors",
       [](Tensors& tensors) { tensors["wte.weight"] = tensors["transformer.wte.weight"]; });
  const std::string message = import_refusal(folder / "a", gpt2());
  EXPECT_NE(message.find("'wte.weight' is there twice"), std::string::npos) << message;
}

TEST(HfWeights, broken_indexes_are_refused) {
  const Folder folder;
  export_hf(folder / "a", llama(), reader_of(random_weights(llama())), {.max_shard_bytes = 4000});
  const path index = folder / "a" / "model.safetensors.index.json";
  const std::string good = read_bytes(index);
  const auto refusal_with = [&](const std::string& text) {
    write_bytes(index, text);
    return import_refusal(folder / "a", llama());
  };
  EXPECT_NE(refusal_with("{\"weight_map\":").find("is not valid JSON"), std::string::npos);
  EXPECT_NE(refusal_with("[]").find("no 'weight_map'"), std::string::npos);
  EXPECT_NE(refusal_with("{\"weight_map\":{}}").find("no 'weight_map'"), std::string::npos);
  EXPECT_NE(refusal_with(R"({"weight_map":{"x":3}})").find("said to lie in 3"), std::string::npos);
  for (const char* file : {"../x.safetensors", "/x", "..", "", "a/b"}) {
    EXPECT_NE(refusal_with(fmt::format(R"({{"weight_map":{{"x":"{}"}}}})", file))
                  .find("a file beside the index"),
              std::string::npos)
        << file;
  }
  EXPECT_NE(refusal_with(R"({"weight_map":{"x":"none.safetensors"}})").find("no such file"),
            std::string::npos);

  auto json = base::Json::parse(good);
  const std::string norm_file = json["weight_map"]["model.norm.weight"];
  json["weight_map"]["model.norm.weight"] = json["weight_map"]["model.embed_tokens.weight"];
  EXPECT_NE(refusal_with(json.dump()).find("has no tensor 'model.norm.weight'"), std::string::npos);
  json["weight_map"].erase("model.norm.weight");
  EXPECT_NE(refusal_with(json.dump()).find("index.json does not list"), std::string::npos);

  write_bytes(index, good);
  std::filesystem::resize_file(folder / "a" / norm_file.c_str(), 100);
  EXPECT_NE(import_refusal(folder / "a", llama()).find(norm_file), std::string::npos);
  std::filesystem::remove(folder / "a" / norm_file.c_str());
  const std::string missing = import_refusal(index, llama());
  EXPECT_NE(missing.find("names the shard '" + norm_file), std::string::npos) << missing;
}

TEST(HfWeights, a_directory_without_weights_is_refused) {
  const Folder folder;
  EXPECT_NE(import_refusal(folder.where(), llama()).find("neither model.safetensors nor"),
            std::string::npos);
  write_bytes(folder / "pytorch_model.bin", "x");
  EXPECT_NE(import_refusal(folder.where(), llama()).find("save the model again as safetensors"),
            std::string::npos);
  EXPECT_NE(import_refusal(folder / "none", llama()).find("cannot be opened"), std::string::npos);
}

// ---- replacing a directory

TEST(HfWeights, an_old_export_is_replaced_whole) {
  const Folder folder;
  const Weights weights = random_weights(llama());
  write_bytes(folder / "tokenizer.json", "{}");
  export_hf(folder / "a", llama(), reader_of(weights),
            {.max_shard_bytes = 4000, .extra_files = {folder / "tokenizer.json"}});
  EXPECT_EQ(content_of(folder / "a").at("tokenizer.json"), "{}");
  export_hf(folder / "a/", llama(), reader_of(weights), {});
  const auto content = content_of(folder / "a");
  EXPECT_EQ(content.size(), 2U);
  EXPECT_TRUE(content.contains("config.json") && content.contains("model.safetensors"));
  std::filesystem::remove(folder / "tokenizer.json");
  EXPECT_EQ(content_of(folder.where()).size(), 1U) << "something stays beside the export";
}

TEST(HfWeights, a_failed_export_leaves_the_old_one_and_nothing_beside_it) {
  const Folder folder;
  const Weights weights = random_weights(llama());
  export_hf(folder / "a", llama(), reader_of(weights), {});
  const auto before = content_of(folder / "a");
  int reads = 0;
  const ReadParam failing = [&](const std::string& name) {
    if (++reads == 5) throw std::runtime_error("the device is lost");
    return std::vector<float>(weights.at(name).size());
  };
  EXPECT_THROW(export_hf(folder / "a", llama(), failing, {.max_shard_bytes = 1}),
               std::runtime_error);
  EXPECT_EQ(content_of(folder / "a"), before);
  EXPECT_EQ(content_of(folder.where()).size(), 1U);
}

TEST(HfWeights, a_full_disk_leaves_the_old_export) {
  const Folder folder;
  const Weights weights = random_weights(llama());
  export_hf(folder / "a", llama(), reader_of(weights), {});
  const auto before = content_of(folder / "a");
  // A limit on the size of files fails a write half-way, as a full disk does.
  rlimit old_limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old_limit), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{4096, old_limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  std::string message;
  try {
    export_hf(folder / "a", llama(), reader_of(weights), {});
  } catch (const base::IoError& error) {
    message = error.what();
  }
  ::setrlimit(RLIMIT_FSIZE, &old_limit);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_NE(message.find("could not be written"), std::string::npos) << message;
  EXPECT_EQ(content_of(folder / "a"), before);
  EXPECT_EQ(content_of(folder.where()).size(), 1U);
}

TEST(HfWeights, a_directory_with_other_files_is_not_replaced) {
  const Folder folder;
  const Weights weights = random_weights(llama());
  std::filesystem::create_directories(folder / "a");
  write_bytes(folder / "a" / "thesis.txt", "years of work");
  try {
    export_hf(folder / "a", llama(), reader_of(weights), {});
    FAIL() << "the directory was replaced";
  } catch (const base::IoError& error) {
    EXPECT_NE(std::string(error.what()).find("thesis.txt"), std::string::npos) << error.what();
  }
  EXPECT_EQ(read_bytes(folder / "a" / "thesis.txt"), "years of work");
  EXPECT_THROW(export_hf(folder / "a" / "thesis.txt", llama(), reader_of(weights), {}),
               base::IoError);
  EXPECT_THROW(export_hf(folder / "a" / "thesis.txt" / "b", llama(), reader_of(weights), {}),
               base::IoError);
}

TEST(HfWeights, options_that_are_not_allowed_are_refused) {
  const Folder folder;
  const Weights weights = random_weights(llama());
  const auto attempt = [&](const ExportOptions& options) {
    export_hf(folder / "a", llama(), reader_of(weights), options);
  };
  EXPECT_THROW(attempt({.dtype = base::DType::f64}), base::ConfigError);
  EXPECT_THROW(attempt({.max_shard_bytes = 0}), base::ConfigError);
  EXPECT_THROW(attempt({.extra_files = {folder / "none"}}), base::IoError);
  write_bytes(folder / "config.json", "{}");
  EXPECT_THROW(attempt({.extra_files = {folder / "config.json"}}), base::ConfigError);
  EXPECT_FALSE(std::filesystem::exists(folder / "a"));
}

}  // namespace
}  // namespace trireme::ckpt
