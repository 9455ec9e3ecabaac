// SPDX-License-Identifier: Apache-2.0
#include "train/report/throughput.h"

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
  return 6.0 * static_cast<double>(spec::active_parameter_count(model) - input_embedding) +
         12.0 * static_cast<double>(attention_width) * static_cast<double>(seq_len);
}

Utilisation utilisation(const spec::ModelSpec& model, const spec::Plan& plan,
                        double tokens_per_second, double peak_flops) {
  const double mfu = formula_flops_per_token(model, plan.seq_len) * tokens_per_second / peak_flops;
  return {mfu, mfu * plan.predicted.hardware_flops / plan.predicted.model_flops};
}

}  // namespace trireme::train
