// SPDX-License-Identifier: Apache-2.0
// The measurements of GpuBench without matrix products: memory, copies, launches.
#include <algorithm>
#include <cmath>

#include "base/text/json.h"
#include "kernels/cost.h"
#include "kernels/ops.h"
#include "kernels/step_state.h"
#include "obs/clock.h"
#include "train/measure/gpu_bench.h"

namespace trireme::train {
namespace {

namespace ops = kernels::ops;
using base::DType;
using base::Json;
using base::TensorSpec;
using device::Tensor;

constexpr int64_t mib = int64_t{1} << 20;

double rounded(double value) { return std::round(value * 100) / 100; }

}  // namespace

// Every tensor is far larger than the L2 cache (60 MB on an H200).
base::Json GpuBench::memory() {
  Json out;
  const auto add = [&](const char* row, int64_t bytes, double seconds) {
    out[std::string(row) + "_gigabytes_per_second"] =
        rounded(static_cast<double>(bytes) / seconds / 1e9);
    done(fmt::format("memory {}", row));
  };
  {
    release();
    const TensorSpec spec{{512 * mib}, DType::bf16};
    const Tensor x = tensor(spec), d = tensor(spec);
    const kernels::CopyArgs copy{.x = x, .d = d};
    add("copy", kernels::cost_of(copy).bytes, seconds_of([&] { ops::copy(*stream_, copy); }));
    const kernels::FillArgs fill{.d = d, .value = 1};
    add("fill", kernels::cost_of(fill).bytes, seconds_of([&] { ops::fill(*stream_, fill); }));
  }
  {
    release();
    const TensorSpec spec{{131072, 4096}, DType::bf16};
    const kernels::NormForwardArgs norm{.x = tensor(spec),
                                        .weight = tensor({{4096}, DType::bf16}),
                                        .y = tensor(spec),
                                        .stats = tensor({{131072, 1}, DType::f32})};
    add("norm", kernels::cost_of(norm).bytes,
        seconds_of([&] { ops::norm_forward(*stream_, norm); }));
  }
  {
    release();
    const TensorSpec flat{{128 * mib}, DType::f32};
    kernels::StepState state{};
    state.learning_rate = 1e-3F;
    state.applied = 1;
    state.grad_scale = 1e-3F;
    const Tensor on_device = tensor({{spec::step_state_bytes}, DType::u8});
    stream_->upload(on_device, std::as_bytes(std::span(&state, 1)));
    stream_->synchronize();
    const Tensor param = tensor({{128 * mib}, DType::bf16}), master = tensor(flat);
    const Tensor m = tensor(flat), v = tensor(flat), grad = tensor(flat);
    ops::fill(*stream_, {.d = v, .value = 0.25F});  // second moments are not negative
    const kernels::AdamwArgs adamw{
        .param = param, .master = master, .m = m, .v = v, .grad = grad, .state = on_device};
    add("adamw", kernels::cost_of(adamw).bytes, seconds_of([&] { ops::adamw(*stream_, adamw); }));
  }
  return out;
}

base::Json GpuBench::host_copies() {
  constexpr int64_t largest = 256 * mib;
  const device::HostBuffer host =
      device_->make_host_buffer(device::Mem::scratch, largest, "copies");
  release();
  const Tensor whole = tensor({{largest}, DType::u8});
  Json out = Json::array();
  for (int64_t bytes = mib; bytes <= largest; bytes *= 4) {
    const Tensor there = whole.slice_rows(0, bytes);
    const std::span here(host.data(), static_cast<size_t>(bytes));
    const double up = seconds_of([&] { stream_->upload(there, here); });
    const double down = seconds_of([&] { stream_->download(here, there); });
    const auto rate = [bytes](double seconds) {
      return rounded(static_cast<double>(bytes) / seconds / 1e9);
    };
    out.push_back({{"bytes", bytes},
                   {"to_device_gigabytes_per_second", rate(up)},
                   {"to_host_gigabytes_per_second", rate(down)}});
    done(fmt::format("host copies of {} MiB", bytes / mib));
  }
  return out;
}

// Uses the smallest useful kernel, so that the launch itself is measured.
base::Json GpuBench::launches() {
  constexpr int launches = 200;
  release();
  const kernels::FillArgs fill{.d = tensor({{128}, DType::f32}), .value = 1};
  const auto queue = [&] {
    for (int i = 0; i < launches; ++i) ops::fill(*stream_, fill);
  };
  const double eager = seconds_of(queue);
  stream_->synchronize();
  const double begin = obs::steady_seconds();
  queue();
  const double host = obs::steady_seconds() - begin;
  stream_->synchronize();
  const auto graph = stream_->capture(queue);
  const double captured = seconds_of([&] { stream_->launch(*graph); });
  const auto each = [](double seconds) { return rounded(1e6 * seconds / launches); };
  done("launches");
  return {{"eager_microseconds", each(eager)},
          {"host_microseconds", each(host)},
          {"captured_microseconds", each(captured)}};
}

}  // namespace trireme::train
