// SPDX-License-Identifier: Apache-2.0
#include "train/measure/gpu_bench.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/text/json.h"
#include "device/accelerator.h"
#include "kernels/cost.h"
#include "kernels/ops.h"
#include "spec/facts/facts.h"
#include "train/measure/attention_trial.h"

namespace trireme::train {
namespace {

namespace ops = kernels::ops;
using base::DType;
using base::Json;
using base::TensorSpec;
using device::Mem;
using device::Tensor;

constexpr int64_t max_bytes = int64_t{12} << 30;  // the largest need of the shapes below

constexpr int64_t min_bytes = int64_t{3} << 30;  // the need of memory()

// Rounds to `digits` decimal places.
double rounded(double value, double digits) {
  const double scale = std::pow(10.0, digits);
  return std::round(value * scale) / scale;
}

double per_second(double amount, double seconds, double unit) {
  return rounded(amount / seconds / unit, 1);
}

}  // namespace

GpuBench::GpuBench(Options options)
    : options_(std::move(options)), backend_(spec::cuda_backend(options_.deterministic)) {
  const device::GpuStatus status = device::gpu_status();
  if (!status.problem.empty()) throw base::ConfigError("bench gpu: " + status.problem);
  device_ = device::make_gpu(kernels::cuda_kernels(),
                             {.index = options_.index, .deterministic = options_.deterministic});
  stream_ = device_->make_stream("bench");
  workspace_ = std::make_unique<device::Buffer>(*device_, Mem::scratch,
                                                backend_.stream_workspace_bytes, "workspace");
  stream_->set_workspace(
      device::view_of(workspace_->data(), {{backend_.stream_workspace_bytes}, DType::u8}));
  // Libraries and the selection of algorithms need some of the free memory.
  const int64_t share = device_->available_bytes() / 10 * 7;
  capacity_bytes_ = std::min(max_bytes, share) / base::grain_bytes * base::grain_bytes;
  if (capacity_bytes_ < min_bytes) {
    throw base::OutOfMemory(
        fmt::format("bench gpu: needs {1} bytes for operands, available are {0} (70 % of the free "
                    "GPU memory); end "
                    "other programs on the GPU (nvidia-smi lists them)",
                    capacity_bytes_, min_bytes));
  }
  arena_ = std::make_unique<device::Arena>(
      device::Buffer(*device_, Mem::scratch, capacity_bytes_, "operands"));
}

void GpuBench::done(std::string_view what) const {
  if (options_.measured) options_.measured(what);
}

double GpuBench::seconds_of(const std::function<void()>& queue) {
  // The first calls select algorithms, build plans and load kernels.
  for (int i = 0; i < 2; ++i) queue();
  const device::Event begin = stream_->record_timed();
  queue();
  const device::Event end = stream_->record_timed();
  stream_->synchronize();
  const double one = std::max(stream_->seconds_between(begin, end), 1e-6);
  // Long enough that neither the launch nor the resolution of the clock matters.
  const int calls = std::clamp(static_cast<int>((options_.is_quick ? 0.01 : 0.03) / one), 3, 400);
  const int rounds = options_.is_quick ? 3 : 5;
  std::vector<double> seconds;
  for (int round = 0; round < rounds; ++round) {
    const device::Event first = stream_->record_timed();
    for (int i = 0; i < calls; ++i) queue();
    const device::Event last = stream_->record_timed();
    stream_->synchronize();
    seconds.push_back(stream_->seconds_between(first, last) / calls);
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

bool GpuBench::fits(const std::vector<TensorSpec>& specs) const {
  int64_t bytes = 0;
  for (const TensorSpec& spec : specs) bytes += base::bytes_of(spec);
  return bytes <= capacity_bytes_;
}

void GpuBench::release() {
  mark_.reset();  // before the next mark reads the position of the arena
  mark_ = std::make_unique<device::Arena::Mark>(*arena_);
}

Tensor GpuBench::tensor(const TensorSpec& spec) {
  const Tensor made = arena_->take(spec);
  if (spec.dtype != DType::f32 && spec.dtype != DType::bf16) {
    ops::fill(*stream_, {.d = made});
    return made;
  }
  // Not zeros: with zeros a GPU draws less power and runs faster than in training.
  constexpr int64_t width = 4096;
  const int64_t count = made.elements();
  const Tensor matrix =
      made.reshape(count % width == 0 ? base::Shape{count / width, width} : base::Shape{1, count});
  ops::init_normal(*stream_, {.d = matrix,
                              .key = base::rng_key(1, "bench gpu"),
                              .global_row_stride = static_cast<uint64_t>(matrix.cols()),
                              .std_dev = 0.5F});
  return made;
}

std::vector<GpuBench::Product> GpuBench::products(
    const std::vector<spec::ModelSpec>& models) const {
  std::vector<Product> all;
  for (const int64_t size : {1024, 2048, 4096, 8192, 16384}) {
    if (options_.is_quick && size != 4096 && size != 8192) continue;
    for (const DType out : {DType::bf16, DType::f32}) {
      all.push_back({.what = "square", .m = size, .n = size, .k = size, .out = out});
    }
  }
  const auto add_linear = [&all](const std::string& what, int64_t rows, int64_t out, int64_t in) {
    all.push_back({.what = what + " forward", .m = rows, .n = out, .k = in});
    all.push_back({.what = what + " dgrad", .m = rows, .n = in, .k = out, .layout = "nn"});
    all.push_back({.what = what + " wgrad",
                   .m = out,
                   .n = in,
                   .k = rows,
                   .layout = "tn",
                   .out = DType::f32,
                   .accumulates = true});
  };
  for (const spec::ModelSpec& model : models) {
    const auto& block = spec::typical_block(model);
    for (const int64_t rows : {8192, 32768}) {
      if (options_.is_quick && rows != 32768) continue;
      add_linear(model.name + " qkv", rows, block.qkv_width(), block.width);
      add_linear(model.name + " out", rows, block.width, block.heads * block.head_dim);
      add_linear(model.name + " up", rows, block.up_width(), block.width);
      add_linear(model.name + " down", rows, block.width, block.ffn);
    }
    const auto& head = std::get<spec::HeadSpec>(model.layers.back());
    // A chunk of logits; its rows start at multiples of the grain, those of the weight do not.
    add_linear(model.name + " head", 8192, head.vocab, head.width);
  }
  return all;
}

base::Json GpuBench::gemm(const std::vector<spec::ModelSpec>& models) {
  Json figures = Json::array();
  for (const Product& product : products(models)) {
    const Json figure = measure(product);
    if (!figure.is_null()) figures.push_back(figure);
    done(fmt::format("gemm {}", product.what));
  }
  return figures;
}

base::Json GpuBench::measure(const Product& p) {
  const bool trans_a = p.layout[0] == 't', trans_b = p.layout[1] == 't';
  // The row stride is that of the engine's logits, which equals the width for all other products.
  const auto spec_of = [this](int64_t rows, int64_t cols, DType dtype) {
    return spec::logits_spec(backend_, rows, cols, dtype);
  };
  const TensorSpec a = trans_a ? spec_of(p.k, p.m, DType::bf16) : spec_of(p.m, p.k, DType::bf16);
  const TensorSpec b = trans_b ? spec_of(p.n, p.k, DType::bf16) : spec_of(p.k, p.n, DType::bf16);
  const TensorSpec d = spec_of(p.m, p.n, p.out);
  release();
  if (!fits({a, b, d})) return {};
  const Tensor result = arena_->take(d);
  ops::fill(*stream_, {.d = result});
  const kernels::GemmArgs args{.a = tensor(a).slice_cols(0, trans_a ? p.m : p.k),
                               .b = tensor(b).slice_cols(0, trans_b ? p.k : p.n),
                               .d = result.slice_cols(0, p.n),
                               .trans_a = trans_a,
                               .trans_b = trans_b,
                               .beta = p.accumulates ? 1.0F : 0.0F};
  const double seconds = seconds_of([&] { ops::gemm(*stream_, args); });
  return {{"what", p.what},
          {"m", p.m},
          {"n", p.n},
          {"k", p.k},
          {"layout", p.layout},
          {"in", "bf16"},
          {"out", base::name_of(p.out)},
          {"accumulate", p.accumulates},
          {"microseconds", rounded(1e6 * seconds, 2)},
          {"tflops", per_second(kernels::cost_of(args).flops, seconds, 1e12)}};
}

base::Json GpuBench::attention(bool with_forward) {
  Json figures = Json::array();
  struct Sizes {
    int64_t sequences, seq_len, heads, kv_heads, head_dim;
    bool is_quick;
  };
  const std::vector<Sizes> all = {{64, 1024, 12, 12, 64, true},  {8, 4096, 32, 8, 64, true},
                                  {4, 8192, 32, 8, 64, false},   {2, 16384, 32, 8, 64, false},
                                  {16, 1024, 32, 8, 128, false}, {4, 4096, 24, 8, 128, false},
                                  {2, 8192, 32, 8, 128, true},   {1, 16384, 32, 8, 128, false}};
  for (const Sizes& s : all) {
    if (options_.is_quick && !s.is_quick) continue;
    measure_attention({.dtype = DType::bf16,
                       .sequences = s.sequences,
                       .seq_len = s.seq_len,
                       .heads = s.heads,
                       .kv_heads = s.kv_heads,
                       .head_dim = s.head_dim},
                      with_forward, figures);
    done(fmt::format("attention {} x {}", s.sequences, s.seq_len));
  }
  return figures;
}

void GpuBench::measure_attention(const spec::AttentionShape& s, bool with_forward, Json& out) {
  release();
  if (!fits(attention_tensors(s, backend_))) return;
  const AttentionTrial trial = attention_trial(
      s, backend_, *stream_, [this](const TensorSpec& spec) { return tensor(spec); });
  const auto add = [&](const char* pass, double seconds, double flops) {
    out.push_back({{"pass", pass},
                   {"deterministic", backend_.deterministic},
                   {"sequences", s.sequences},
                   {"seq_len", s.seq_len},
                   {"heads", s.heads},
                   {"kv_heads", s.kv_heads},
                   {"head_dim", s.head_dim},
                   {"in", base::name_of(s.dtype)},
                   {"microseconds", rounded(1e6 * seconds, 2)},
                   {"tflops", per_second(flops, seconds, 1e12)}});
  };
  ops::attention_forward(*stream_, trial.forward);  // the backward reads its output
  if (with_forward) {
    add("forward", seconds_of([&] { ops::attention_forward(*stream_, trial.forward); }),
        kernels::cost_of(trial.forward).flops);
  }
  add("backward", seconds_of([&] { ops::attention_backward(*stream_, trial.backward); }),
      kernels::cost_of(trial.backward).flops);
}

}  // namespace trireme::train
