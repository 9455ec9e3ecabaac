// SPDX-License-Identifier: Apache-2.0
#include "plan/job.h"

#include <array>

#include "spec/layout/rules.h"

namespace trireme::plan {

spec::Backend backend_for(const spec::Machine& machine, bool deterministic) {
  const bool is_gpu = machine.processor.bf16_flops > machine.processor.fp32_flops;
  return is_gpu ? spec::cuda_backend(deterministic) : spec::cpu_backend();
}

const spec::BlockSpec& main_block(const spec::ModelSpec& model) {
  for (const spec::LayerSpec& layer : model.layers) {
    const auto* block = std::get_if<spec::BlockSpec>(&layer);
    if (block != nullptr && block->moe) return *block;
  }
  return spec::typical_block(model);
}

const spec::BlockSpec* dense_block(const spec::ModelSpec& model) {
  if (spec::moe_of(model) == nullptr) return nullptr;
  for (const spec::LayerSpec& layer : model.layers) {
    const auto* block = std::get_if<spec::BlockSpec>(&layer);
    if (block != nullptr && !block->moe) return block;
  }
  return nullptr;
}

Layout filled(const Job& job, const Layout& layout) {
  const std::array<int64_t, 1> kv_heads = {spec::typical_block(job.model).kv_heads};
  return spec::filled(layout, workload_of(job), 0, kv_heads);
}

}  // namespace trireme::plan
