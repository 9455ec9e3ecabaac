// SPDX-License-Identifier: Apache-2.0
// Does exported weights' loss stay the checkpoint's? Both are put through the same tokens, layer by
// layer, the export by its own config.json: what hashes of tensors do not see (a wrong setting, a
// tensor under another's name, a table that is not the head's) shows here.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <vector>

#include "base/dtype.h"
#include "ckpt/hf/hf_weights.h"
#include "spec/model.h"

namespace trireme::train {

// One sequence of at most 128 tokens and the token after it, drawn from the vocabulary's size: the
// same for all models of one vocabulary that are as long.
std::vector<int32_t> loss_tokens(const spec::ModelDims&);

struct ExportLoss {
  std::vector<int32_t> tokens;  // loss_tokens()
  double checkpoint = 0;        // mean loss of the checkpoint's weights, rounded to `dtype`
  double exported = 0;          // of the folder's
};

// Computes both on the CPU and compares the loss of every token by its bits: weights that were
// rounded once are equal, and so is all that is made of them. `progress` is told of elements that
// were read. Throws IoError that names the first token whose losses differ; for weights that are
// not finite only where one of them has a loss. Memory: engine::streamed_losses().
ExportLoss compare_losses(const spec::ModelDims&, const ckpt::ReadBox& checkpoint,
                          const std::filesystem::path& exported, base::DType dtype,
                          const std::function<void(int64_t elements)>& progress = {});

// What compare_losses() reads, in elements.
int64_t compared_elements(const spec::ModelDims&);

}  // namespace trireme::train
