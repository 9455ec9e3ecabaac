// SPDX-License-Identifier: Apache-2.0
#include "nn/layer.h"

#include "nn/block.h"
#include "nn/embedding.h"
#include "nn/head.h"

namespace trireme::nn {

std::unique_ptr<Layer> make_layer(const spec::LayerSpec& layer, const spec::LocalShape& shape,
                                  const spec::Backend& backend, const Boundaries& boundaries) {
  if (const auto* embedding = std::get_if<spec::EmbeddingSpec>(&layer)) {
    return std::make_unique<Embedding>(*embedding, shape, backend, boundaries.tp);
  }
  if (const auto* block = std::get_if<spec::BlockSpec>(&layer)) {
    return std::make_unique<Block>(*block, shape, backend, boundaries);
  }
  return std::make_unique<Head>(std::get<spec::HeadSpec>(layer), shape, backend, boundaries.tp);
}

}  // namespace trireme::nn
