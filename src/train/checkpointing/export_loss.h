// SPDX-License-Identifier: Apache-2.0
// Checks that exported weights have the loss of their checkpoint. Both process the same tokens,
// layer by layer, the export with its own config.json. This finds errors that hashes of tensors
// miss: a wrong setting, a tensor under another's name, a table that is not the head's.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <vector>

#include "base/dtype.h"
#include "ckpt/hf/hf_weights.h"
#include "spec/model.h"

namespace trireme::train {

// Returns a random sequence of at most 128 tokens and the token after it. The same for all models
// of one vocabulary size and sequence length.
std::vector<int32_t> loss_tokens(const spec::ModelDims&);

struct ExportLoss {
  std::vector<int32_t> tokens;  // loss_tokens()
  double checkpoint = 0;        // mean loss of the checkpoint's weights, rounded to `dtype`
  double exported = 0;          // mean loss of the exported weights
};

// Computes both on the CPU and compares the loss of every token by its bits: weights that were
// rounded once are equal, and so is everything computed from them. `progress` receives the number
// of elements that were read. Throws IoError that names the first token whose losses differ; two
// losses that are NaN count as equal. Memory: engine::streamed_losses().
ExportLoss compare_losses(const spec::ModelDims&, const ckpt::ReadBox& checkpoint,
                          const std::filesystem::path& exported, base::DType dtype,
                          const std::function<void(int64_t elements)>& progress = {});

// Returns the number of elements that compare_losses() reads.
int64_t compared_elements(const spec::ModelDims&);

}  // namespace trireme::train
