// SPDX-License-Identifier: Apache-2.0
#include "train/report/peaks.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <functional>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "device/memory.h"
#include "kernels/ops.h"

namespace trireme::train {
namespace {

// From the vendor's datasheets, without sparsity.
struct Gpu {
  std::string_view name;  // how the driver's name begins
  double bf16_tflops, fp32_tflops, terabytes;
};
// A name stands before its own prefixes.
constexpr std::array<Gpu, 18> known_gpus = {{{"NVIDIA GB200", 2500, 80, 8},
                                             {"NVIDIA B200", 2250, 75, 8},
                                             {"NVIDIA GH200 480GB", 989.4, 66.9, 4},
                                             {"NVIDIA H200 NVL", 835.5, 60, 4.8},
                                             {"NVIDIA H200", 989.4, 66.9, 4.8},
                                             {"NVIDIA H100 NVL", 835.5, 60, 3.9},
                                             {"NVIDIA H100 PCIe", 756, 51.2, 2},
                                             {"NVIDIA H100 80GB HBM3", 989.4, 66.9, 3.35},
                                             {"NVIDIA H100 SXM5", 989.4, 66.9, 3.35},
                                             {"NVIDIA A100-SXM4-80GB", 312, 19.5, 2.039},
                                             {"NVIDIA A100-SXM4-40GB", 312, 19.5, 1.555},
                                             {"NVIDIA A100 80GB PCIe", 312, 19.5, 1.935},
                                             {"NVIDIA A100-PCIE-40GB", 312, 19.5, 1.555},
                                             {"NVIDIA L40S", 362.05, 91.6, 0.864},
                                             {"NVIDIA L4", 121, 30.3, 0.3},
                                             {"NVIDIA GeForce RTX 4090", 165.2, 82.6, 1.008},
                                             {"NVIDIA GeForce RTX 3090", 71, 35.6, 0.936},
                                             {"NVIDIA A10", 125, 31.2, 0.6}}};

const Gpu* find(const std::string& hardware) {
  const auto found =
      std::find_if(known_gpus.begin(), known_gpus.end(), [&hardware](const Gpu& gpu) {
        // "NVIDIA A10" must not match "NVIDIA A10G" or "NVIDIA A100".
        return hardware.starts_with(gpu.name) &&
               (hardware.size() == gpu.name.size() ||
                std::isalnum(static_cast<unsigned char>(hardware[gpu.name.size()])) == 0);
      });
  return found == known_gpus.end() ? nullptr : &*found;
}

// Returns the seconds of the fastest of several runs of `queue_work`.
double best_seconds(const Platform& platform, device::Stream& stream,
                    const std::function<void()>& queue_work) {
  const int warmup = platform.is_gpu() ? 2 : 1, runs = platform.is_gpu() ? 10 : 5;
  for (int i = 0; i < warmup; ++i) queue_work();
  std::vector<device::Event> events = {stream.record_timed()};
  for (int i = 0; i < runs; ++i) {
    queue_work();
    events.push_back(stream.record_timed());
  }
  stream.synchronize();
  double best = stream.seconds_between(events[0], events[1]);
  for (size_t i = 2; i < events.size(); ++i) {
    best = std::min(best, stream.seconds_between(events[i - 1], events[i]));
  }
  return best;
}

device::Arena arena_of(Platform& platform, int64_t bytes) {
  return device::Arena(
      device::Buffer(*platform.device, device::Mem::scratch, bytes, "peak measurement"));
}

}  // namespace

std::optional<Peak> datasheet_flops(const std::string& hardware, base::DType dtype) {
  const Gpu* gpu = find(hardware);
  if (gpu == nullptr) return std::nullopt;
  if (dtype == base::DType::bf16 || dtype == base::DType::f16) {  // have the same rate
    return Peak{gpu->bf16_tflops * 1e12, "vendor's datasheet, dense bf16"};
  }
  if (dtype == base::DType::f32) {
    return Peak{gpu->fp32_tflops * 1e12, "vendor's datasheet, fp32 without tensor cores"};
  }
  return std::nullopt;
}

std::optional<Peak> datasheet_bandwidth(const std::string& hardware) {
  const Gpu* gpu = find(hardware);
  if (gpu == nullptr) return std::nullopt;
  return Peak{gpu->terabytes * 1e12, "vendor's datasheet"};
}

Peak measure_flops(Platform& platform, base::DType dtype) {
  const bool is_bf16 = platform.is_gpu() && dtype != base::DType::f32;
  const int64_t n = !platform.is_gpu() ? 1536 : is_bf16 ? 8192 : 4096;
  const base::TensorSpec spec{{n, n}, is_bf16 ? base::DType::bf16 : base::DType::f32};
  const base::TensorSpec library{{platform.backend.stream_workspace_bytes}, base::DType::u8};
  const bool has_library = platform.backend.stream_workspace_bytes > 0;
  device::Arena arena =
      arena_of(platform, 3 * base::bytes_of(spec) + (has_library ? base::bytes_of(library) : 0));
  const auto stream = platform.device->make_stream("peak");
  const device::Tensor a = arena.take(spec), b = arena.take(spec), d = arena.take(spec);
  if (has_library) stream->set_workspace(arena.take(library));
  const auto stride = static_cast<uint64_t>(n);
  kernels::ops::init_normal(*stream, {.d = a, .key = 1, .global_row_stride = stride, .std_dev = 1});
  kernels::ops::init_normal(*stream, {.d = b, .key = 2, .global_row_stride = stride, .std_dev = 1});
  const double seconds = best_seconds(
      platform, *stream, [&] { kernels::ops::gemm(*stream, {.a = a, .b = b, .d = d}); });
  const auto size = static_cast<double>(n);
  return {2 * size * size * size / seconds,
          fmt::format("measured {} GEMM", is_bf16 ? "bf16" : "fp32")};
}

Peak measure_bandwidth(Platform& platform) {
  const int64_t elements = platform.is_gpu() ? int64_t{1} << 28 : int64_t{1} << 24;
  const base::TensorSpec spec{{elements}, base::DType::f32};
  device::Arena arena = arena_of(platform, 2 * base::bytes_of(spec));
  const auto stream = platform.device->make_stream("peak");
  const device::Tensor x = arena.take(spec), d = arena.take(spec);
  kernels::ops::fill(*stream, {.d = x, .value = 1});
  const double seconds =
      best_seconds(platform, *stream, [&] { kernels::ops::copy(*stream, {.x = x, .d = d}); });
  return {2 * static_cast<double>(base::bytes_of(spec)) / seconds, "measured copy"};
}

std::optional<Peak> known_flops(double given_tflops, const std::string& hardware,
                                base::DType dtype) {
  if (given_tflops > 0) return Peak{given_tflops * 1e12, "given"};
  return datasheet_flops(hardware, dtype);
}

}  // namespace trireme::train
