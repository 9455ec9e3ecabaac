// SPDX-License-Identifier: Apache-2.0
#include "train/throughput.h"

#include <algorithm>
#include <chrono>

#include "device/cpu/cpu_device.h"
#include "device/memory.h"
#include "kernels/ops.h"

namespace trireme::train {

double formula_flops_per_token(const spec::ModelSpec& model, int64_t seq_len) {
  int64_t attention_width = 0, input_embedding = 0;
  for (const spec::LayerSpec& layer : model.layers) {
    if (const auto* block = std::get_if<spec::BlockSpec>(&layer)) {
      attention_width += block->heads * block->head_dim;
    } else if (const auto* embedding = std::get_if<spec::EmbeddingSpec>(&layer)) {
      input_embedding = embedding->tied ? 0 : embedding->vocab * embedding->width;
    }
  }
  return 6.0 * static_cast<double>(spec::parameter_count(model) - input_embedding) +
         12.0 * static_cast<double>(attention_width) * static_cast<double>(seq_len);
}

Utilisation utilisation(const spec::ModelSpec& model, const spec::Plan& plan,
                        double tokens_per_second, double peak_flops) {
  const double mfu = formula_flops_per_token(model, plan.seq_len) * tokens_per_second / peak_flops;
  return {mfu, mfu * plan.predicted.hardware_flops / plan.predicted.model_flops};
}

double measure_peak_flops(int threads) {
  constexpr int64_t n = 1536;
  device::CpuDevice device(kernels::cpu_kernels(), {.threads = threads});
  const auto stream = device.make_stream("peak");
  const base::TensorSpec spec{{n, n}, base::DType::f32};
  device::Arena arena(
      device::Buffer(device, device::Mem::scratch, 3 * base::bytes_of(spec), "peak measurement"));
  const device::Tensor a = arena.take(spec), b = arena.take(spec), d = arena.take(spec);
  kernels::ops::init_normal(*stream, {.d = a, .key = 1, .global_row_stride = n, .std_dev = 1});
  kernels::ops::init_normal(*stream, {.d = b, .key = 2, .global_row_stride = n, .std_dev = 1});
  double best_seconds = 0;
  for (int i = 0; i < 6; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    kernels::ops::gemm(*stream, {.a = a, .b = b, .d = d});
    stream->synchronize();
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    if (i == 1 || (i > 1 && taken.count() < best_seconds)) best_seconds = taken.count();
  }
  return 2.0 * static_cast<double>(n * n * n) / best_seconds;
}

}  // namespace trireme::train
