// SPDX-License-Identifier: Apache-2.0
#include "engine/precision/numerics.h"

#include <algorithm>
#include <bit>

#include "kernels/ops.h"
#include "spec/memory/predict.h"

namespace trireme::engine {

using kernels::QuantizeCounts;
using spec::quantized_count;

static_assert(sizeof(QuantizeCounts) == spec::quantize_counts_bytes);

Numerics::Numerics(const spec::ModelSpec& model, const spec::Plan& plan, int pp_rank,
                   device::Stream& compute, device::Arena& optim)
    : compute_(compute), layers_(spec::float8_layers(model, plan, pp_rank)) {
  if (layers_.empty()) return;
  all_ = optim.take(spec::numerics_spec(model, plan, pp_rank));
  begin_step();
}

void Numerics::begin_step() {
  if (all_) kernels::ops::fill(compute_, {.d = all_});
}

device::Tensor Numerics::counts(int layer) const {
  const auto found = std::ranges::find(layers_, layer);
  if (found == layers_.end()) return {};
  return all_.slice_rows((found - layers_.begin()) * quantized_count, quantized_count);
}

device::Tensor Numerics::cell(const device::Tensor& counts, spec::Quantized which) {
  return counts.slice_rows(static_cast<int64_t>(which), 1)
      .reshape({static_cast<int64_t>(sizeof(QuantizeCounts))});
}

std::vector<LayerNumerics> Numerics::read() const {
  std::vector<QuantizeCounts> cells(layers_.size() * quantized_count);
  if (!cells.empty()) compute_.download(std::as_writable_bytes(std::span(cells)), all_);
  compute_.synchronize();
  std::vector<LayerNumerics> layers;
  for (size_t l = 0; l < layers_.size(); ++l) {
    LayerNumerics& layer = layers.emplace_back();
    layer.layer = layers_[l];
    for (size_t q = 0; q < layer.by.size(); ++q) {
      const QuantizeCounts& cell = cells[l * quantized_count + q];
      layer.by[q] = {.amax = static_cast<double>(std::bit_cast<float>(cell.amax_bits)),
                     .values = cell.values,
                     .flushed = cell.flushed,
                     .saturated = cell.saturated,
                     .signal = cell.signal,
                     .noise = cell.noise};
    }
  }
  return layers;
}

}  // namespace trireme::engine
