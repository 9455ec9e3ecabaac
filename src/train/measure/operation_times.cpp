// SPDX-License-Identifier: Apache-2.0
#include "train/measure/operation_times.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "base/rng.h"
#include "kernels/cost.h"
#include "kernels/ops.h"
#include "kernels/step_state.h"
#include "train/measure/attention_trial.h"

namespace trireme::train {
namespace {

namespace ops = kernels::ops;
using base::DType;
using base::TensorSpec;
using device::Tensor;

constexpr int64_t stream_width = 1024;
constexpr int64_t stream_ops = 3;  // copy, norm, swiglu
constexpr int64_t mebibyte = int64_t{1} << 20;

}  // namespace

OperationTimer::OperationTimer(Platform& platform, Options options)
    : platform_(platform),
      options_(std::move(options)),
      dtype_(platform.is_gpu() ? DType::bf16 : DType::f32),
      stream_(platform.device->make_stream("calibrate")) {
  const int64_t workspace = platform.backend.stream_workspace_bytes;
  const int64_t bytes = (platform.is_gpu() ? 5120 : 384) * mebibyte + workspace;
  arena_ = std::make_unique<device::Arena>(
      device::Buffer(*platform.device, device::Mem::scratch, bytes, "operands"));
  if (workspace > 0) stream_->set_workspace(arena_->take({{workspace}, DType::u8}));
}

std::vector<OperationTimer::Linear> OperationTimer::linears() const {
  if (platform_.is_gpu()) {
    if (options_.is_quick) return {{1024, 1024, 1024}, {8192, 2304, 768}, {8192, 8192, 2048}};
    std::vector<Linear> all = {{1024, 1024, 1024}, {2048, 4096, 1024}, {8192, 32000, 2048}};
    for (const int64_t rows : {4096, 16384}) {
      for (const auto& [out, in] : {std::pair{2304, 768},
                                    {768, 3072},
                                    {2048, 2048},
                                    {16384, 2048},
                                    {2048, 8192},
                                    {6144, 4096},
                                    {4096, 14336}}) {
        all.push_back({rows, out, in});
      }
    }
    return all;
  }
  if (options_.is_quick) return {{256, 384, 384}, {256, 1536, 384}, {512, 384, 1536}};
  std::vector<Linear> all = {{512, 8192, 384}, {128, 256, 256}};
  for (const int64_t rows : {256, 1024}) {
    for (const auto& [out, in] :
         {std::pair{384, 384}, {1152, 384}, {1536, 384}, {384, 1536}, {2048, 512}, {768, 768}}) {
      all.push_back({rows, out, in});
    }
  }
  return all;
}

std::vector<spec::AttentionShape> OperationTimer::attentions() const {
  struct Sizes {
    int64_t sequences, seq_len, heads, head_dim;
  };
  // With is_quick only the first two are measured.
  const std::vector<Sizes> gpu = {{16, 1024, 16, 64},  {2, 8192, 16, 128}, {4, 4096, 32, 64},
                                  {16, 1024, 16, 128}, {4, 4096, 16, 128}, {32, 512, 16, 64}};
  const std::vector<Sizes> cpu = {{2, 128, 6, 64}, {1, 512, 6, 64},  {8, 64, 6, 64},
                                  {4, 256, 6, 64}, {1, 1024, 6, 64}, {4, 256, 8, 32},
                                  {2, 256, 3, 128}};
  const std::vector<Sizes>& sizes = platform_.is_gpu() ? gpu : cpu;
  std::vector<spec::AttentionShape> all(options_.is_quick ? 2 : sizes.size());
  for (size_t i = 0; i < all.size(); ++i) {
    all[i].dtype = dtype_;
    all[i].sequences = sizes[i].sequences;
    all[i].seq_len = sizes[i].seq_len;
    all[i].heads = all[i].kv_heads = sizes[i].heads;
    all[i].head_dim = sizes[i].head_dim;
  }
  return all;
}

std::vector<int64_t> OperationTimer::stream_sizes() const {
  if (platform_.is_gpu()) {
    if (options_.is_quick) return {1024, 131072};
    return {1024, 16384, 65536, 131072};
  }
  if (options_.is_quick) return {256, 1024};
  return {256, 1024, 4096};
}

int64_t OperationTimer::operations() const {
  return static_cast<int64_t>(3 * linears().size() + 2 * attentions().size() +
                              stream_ops * stream_sizes().size()) +
         1;
}

void OperationTimer::add_all(plan::Times& times) {
  for (const Linear& linear : linears()) {
    for (const char* pass : {"forward", "dgrad", "wgrad"}) add_product(linear, pass, times);
  }
  for (const spec::AttentionShape& shape : attentions()) add_attention(shape, true, times);
  for (const int64_t rows : stream_sizes()) add_streams(rows, times);
  add_update(times);
}

void OperationTimer::add_backwards(plan::Times& times) {
  for (const spec::AttentionShape& shape : attentions()) add_attention(shape, false, times);
}

void OperationTimer::done(std::string_view what) const {
  if (options_.measured) options_.measured(what);
}

double OperationTimer::seconds_of(const std::function<void()>& queue) {
  // The first calls select algorithms, build plans, load kernels and fill caches.
  for (int i = 0; i < 2; ++i) queue();
  const auto timed = [&](int calls) {
    const device::Event begin = stream_->record_timed();
    for (int i = 0; i < calls; ++i) queue();
    const device::Event end = stream_->record_timed();
    stream_->synchronize();
    return stream_->seconds_between(begin, end) / calls;
  };
  const double one = std::max(timed(1), 1e-6);
  const double round_seconds = options_.is_quick ? 0.005 : 0.02;
  const int calls = std::clamp(static_cast<int>(round_seconds / one), 1, 400);
  std::vector<double> seconds(options_.is_quick ? 3 : 7);
  for (double& round : seconds) round = timed(calls);
  std::sort(seconds.begin(), seconds.end());
  // On a CPU other programs only add time, so the minimum is the best estimate.
  return platform_.is_gpu() ? seconds[seconds.size() / 2] : seconds.front();
}

Tensor OperationTimer::tensor(const TensorSpec& spec) {
  const Tensor made = arena_->take(spec);
  if (spec.dtype != DType::f32 && spec.dtype != DType::bf16) {
    ops::fill(*stream_, {.d = made});
    return made;
  }
  // Not zeros: with zeros a GPU draws less power and runs faster than in training.
  const Tensor matrix = made.reshape({1, made.elements()});
  ops::init_normal(*stream_, {.d = matrix,
                              .key = base::rng_key(1, "calibrate"),
                              .global_row_stride = static_cast<uint64_t>(matrix.cols()),
                              .std_dev = 0.5F});
  return made;
}

void OperationTimer::add_product(const Linear& l, const char* pass, plan::Times& times) {
  const device::Arena::Mark mark(*arena_);
  const std::string name(pass);
  kernels::GemmArgs args;
  if (name == "forward") {
    args = {.a = tensor({{l.rows, l.in}, dtype_}),
            .b = tensor({{l.out, l.in}, dtype_}),
            .d = tensor({{l.rows, l.out}, dtype_}),
            .trans_b = true};
  } else if (name == "dgrad") {
    args = {.a = tensor({{l.rows, l.out}, dtype_}),
            .b = tensor({{l.out, l.in}, dtype_}),
            .d = tensor({{l.rows, l.in}, dtype_})};
  } else {
    args = {.a = tensor({{l.rows, l.out}, dtype_}),
            .b = tensor({{l.rows, l.in}, dtype_}),
            .d = tensor({{l.out, l.in}, DType::f32}),
            .trans_a = true,
            .beta = 1};
  }
  const double seconds = seconds_of([&] { ops::gemm(*stream_, args); });
  const spec::OpCost cost = kernels::cost_of(args);
  times.products.push_back(
      {.product = {.m = cost.m,
                   .n = cost.n,
                   .k = cost.k,
                   .bytes = static_cast<double>(cost.bytes),
                   .accumulates = args.beta != 0},
       .precision = platform_.is_gpu() ? plan::Precision::bf16 : plan::Precision::fp32,
       .seconds = seconds});
  done(fmt::format("product {} x {} x {}", cost.m, cost.n, cost.k));
}

void OperationTimer::add_attention(const spec::AttentionShape& s, bool with_forward,
                                   plan::Times& times) {
  const device::Arena::Mark mark(*arena_);
  const AttentionTrial trial = attention_trial(
      s, platform_.backend, *stream_, [this](const TensorSpec& spec) { return tensor(spec); });
  const auto add = [&](bool is_backward, const std::function<void()>& queue) {
    times.attention.push_back(
        {{.shape = s,
          .backward = is_backward,
          .fixed_order = is_backward && platform_.is_gpu() && platform_.backend.deterministic},
         seconds_of(queue)});
    done(fmt::format("attention {} x {}", s.sequences, s.seq_len));
  };
  ops::attention_forward(*stream_, trial.forward);  // the backward reads its output
  if (with_forward) add(false, [&] { ops::attention_forward(*stream_, trial.forward); });
  add(true, [&] { ops::attention_backward(*stream_, trial.backward); });
}

void OperationTimer::add_streams(int64_t rows, plan::Times& times) {
  const device::Arena::Mark mark(*arena_);
  const TensorSpec spec{{rows, stream_width}, dtype_};
  const Tensor x = tensor(spec), y = tensor(spec);
  const auto add = [&](const char* what, int64_t bytes, const std::function<void()>& queue) {
    times.streams.push_back({static_cast<double>(bytes), seconds_of(queue)});
    done(fmt::format("{} of {} MB", what, bytes / 1'000'000));
  };
  const kernels::CopyArgs copy{.x = x, .d = y};
  add("copy", kernels::cost_of(copy).bytes, [&] { ops::copy(*stream_, copy); });
  const kernels::NormForwardArgs norm{.x = x,
                                      .weight = tensor({{stream_width}, dtype_}),
                                      .y = y,
                                      .stats = tensor({{rows, 1}, DType::f32})};
  add("norm", kernels::cost_of(norm).bytes, [&] { ops::norm_forward(*stream_, norm); });
  const kernels::SwigluForwardArgs swiglu{.gate_up = x.reshape({rows / 2, 2 * stream_width}),
                                          .y = y.slice_rows(0, rows / 2)};
  add("swiglu", kernels::cost_of(swiglu).bytes, [&] { ops::swiglu_forward(*stream_, swiglu); });
}

void OperationTimer::add_update(plan::Times& times) {
  const device::Arena::Mark mark(*arena_);
  const TensorSpec flat{{(platform_.is_gpu() ? 64 : 8) * mebibyte}, DType::f32};
  kernels::StepState state{};
  state.learning_rate = 1e-3F;
  state.applied = 1;
  state.grad_scale = 1e-3F;
  const Tensor on_device = tensor({{spec::step_state_bytes}, DType::u8});
  stream_->upload(on_device, std::as_bytes(std::span(&state, 1)));
  stream_->synchronize();
  const Tensor v = tensor(flat);
  ops::fill(*stream_, {.d = v, .value = 0.25F});  // second moments are not negative
  const kernels::AdamwArgs adamw{.param = tensor({flat.shape, dtype_}),
                                 .master = dtype_ == DType::f32 ? Tensor{} : tensor(flat),
                                 .m = tensor(flat),
                                 .v = v,
                                 .grad = tensor(flat),
                                 .state = on_device};
  times.streams.push_back({static_cast<double>(kernels::cost_of(adamw).bytes),
                           seconds_of([&] { ops::adamw(*stream_, adamw); })});
  done("update");
}

}  // namespace trireme::train
