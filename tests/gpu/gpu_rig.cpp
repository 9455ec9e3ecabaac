// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/gpu_rig.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "config/files/model_file.h"
#include "device/accelerator.h"

namespace trireme::tests {
namespace {

// Removed when the process ends.
class CacheFolder {
 public:
  CacheFolder()
      : path_(std::filesystem::path(testing::TempDir()) / fmt::format("gpu_tests.{}", getpid())) {
    std::filesystem::create_directories(path_);
  }
  ~CacheFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  CacheFolder(const CacheFolder&) = delete;
  CacheFolder& operator=(const CacheFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

std::unique_ptr<device::Device> make_device(Where where, bool deterministic) {
  if (where == Where::gpu) {
    static const CacheFolder cache;
    return device::make_gpu(kernels::cuda_kernels(),
                            {.deterministic = deterministic, .cache_folder = cache.path()});
  }
  const int threads = static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1U, 16U));
  return std::make_unique<device::CpuDevice>(kernels::cpu_kernels(),
                                             device::CpuDevice::Options{.threads = threads});
}

spec::Plan plan_of(const Trial& s, const spec::ModelSpec& model, const spec::Backend& backend) {
  spec::Plan plan = spec::solve_or_throw(
      model, {.seq_len = s.seq_len, .document_mask = s.document_mask, .inference = s.inference},
      {.micro_batch = s.sequences,
       .accumulation = s.microbatches,
       .recompute = s.recompute,
       .precision = *spec::precision_from_name(s.recipe),
       .grad_dtype = s.grad,
       .optimizer = s.optimizer,
       .head_chunk_rows = s.head_chunk_rows,
       .deterministic = backend.deterministic},
      backend);
  if (s.schedule) plan.schedule = *s.schedule;
  return plan;
}

double difference_norm(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    sum += d * d;
  }
  return std::sqrt(sum);
}

}  // namespace

void GpuTest::SetUp() {
  static const std::string problem = device::gpu_status().problem;
  if (problem.empty()) return;
  if (std::getenv("TRIREME_GPU_REQUIRED") != nullptr) FAIL() << problem;
  GTEST_SKIP() << problem;
}

DeviceRig::DeviceRig(Where where, const Trial& s)
    : model(spec::make_model(s.dims)),
      backend(where == Where::gpu ? spec::cuda_backend(s.deterministic) : spec::cpu_backend()),
      device(make_device(where, s.deterministic)),
      engine(std::make_unique<engine::Engine>(*device, model, plan_of(s, model, backend), backend,
                                              s.engine)),
      source(7, s.dims.vocab, s.sequences, s.seq_len) {}

void DeviceRig::train(int steps, double learning_rate) {
  for (int i = 0; i < steps; ++i) {
    engine->step(source, learning_rate);
    source.next_step();
  }
}

PackedSource::PackedSource(uint64_t seed, const Trial& s)
    : source_(seed, s.dims.vocab, s.sequences, s.seq_len),
      key_(base::rng_key(seed, "documents")),
      sequences_(s.sequences),
      seq_len_(s.seq_len) {}

void PackedSource::fill(int index, const engine::HostMicrobatch& out) {
  source_.fill(index, out);
  std::fill(out.seq_offsets.begin(), out.seq_offsets.end(),
            static_cast<int32_t>(sequences_ * seq_len_));
  // The first sequence is cut into documents of one token, a few, and up to half of it; the others
  // are one document each.
  const std::array<int64_t, 3> longest = {1, 5, std::max<int64_t>(seq_len_ / 2, 1)};
  size_t documents = 0;
  for (int64_t s = 0; s < sequences_; ++s) {
    const int64_t end = (s + 1) * seq_len_;
    for (int64_t begin = s * seq_len_, length = seq_len_; begin < end; begin += length) {
      if (s == 0) {
        const auto most = static_cast<uint64_t>(longest[documents % longest.size()]);
        const uint64_t draw = (static_cast<uint64_t>(index) << 20) + documents;
        length = std::min(1 + static_cast<int64_t>(base::rng_below(key_, draw, most)), end - begin);
      }
      out.seq_offsets[documents++] = static_cast<int32_t>(begin);
      for (int64_t t = 0; t < length; ++t) {
        out.positions[static_cast<size_t>(begin + t)] = static_cast<int32_t>(t);
      }
      out.labels[static_cast<size_t>(begin + length - 1)] = -1;
    }
  }
}

spec::ModelDims medium_llama() {
  return {.name = "medium-llama",
          .family = spec::Family::llama,
          .layers = 3,
          .hidden = 256,
          .heads = 4,
          .kv_heads = 2,
          .head_dim = 64,
          .ffn = 704,
          .vocab = 1000,
          .max_seq = 4096,
          .tied_head = false};
}

spec::ModelDims medium_moe() {
  spec::ModelDims dims = medium_llama();
  dims.name = "medium-moe";
  dims.moe = {.router = {.experts = 8, .chosen = 2, .renormalizes = true},
              .ffn = 384,
              .shared_ffn = 128,
              .balance = {.aux = 0.01F, .z = 0.001F}};
  dims.dense_layers = 1;
  return dims;
}

spec::ModelDims model_file(const std::string& name) {
  return config::model_from_file(name,
                                 {std::filesystem::path(TRIREME_SOURCE_DIR) / "configs/models"});
}

double norm_of(std::span<const float> values) {
  double sum = 0;
  for (const float v : values) sum += static_cast<double>(v) * static_cast<double>(v);
  return std::sqrt(sum);
}

double relative_error(std::span<const float> a, std::span<const float> b) {
  return difference_norm(a, b) / norm_of(b);
}

std::vector<NamedValues> grads_of(engine::Engine& engine) {
  std::vector<NamedValues> all;
  for (const auto& param : engine.parameters()) {
    all.push_back({param.name, engine.read_grads(param.name)});
  }
  return all;
}

std::vector<NamedValues> weights_of(engine::Engine& engine) {
  std::vector<NamedValues> all;
  for (const auto& param : engine.parameters()) {
    all.push_back({param.name, engine.read_weights(param.name)});
  }
  return all;
}

void expect_near(const std::vector<NamedValues>& a, const std::vector<NamedValues>& b,
                 double tolerance, const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  std::string where;
  const double worst = largest_error(a, b, &where);
  EXPECT_LE(worst, tolerance) << what << ": " << where;
  std::printf("%s: largest error %.2e at %s (allowed %.0e)\n", what.c_str(), worst, where.c_str(),
              tolerance);
}

double largest_error(const std::vector<NamedValues>& a, const std::vector<NamedValues>& b,
                     std::string* where) {
  double largest_norm = 0, worst = 0;
  for (const NamedValues& one : b) largest_norm = std::max(largest_norm, norm_of(one.values));
  for (size_t i = 0; i < b.size(); ++i) {
    EXPECT_EQ(a[i].name, b[i].name);
    EXPECT_EQ(a[i].values.size(), b[i].values.size()) << b[i].name;
    const double scale = std::max(norm_of(b[i].values), 1e-3 * largest_norm);
    const double error = difference_norm(a[i].values, b[i].values) / scale;
    if (error > worst || !std::isfinite(error)) {
      worst = std::isfinite(error) ? error : HUGE_VAL;
      if (where != nullptr) *where = b[i].name;
    }
  }
  return worst;
}

}  // namespace trireme::tests
