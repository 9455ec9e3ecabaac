// SPDX-License-Identifier: Apache-2.0
// eval --by-block: what the 8-bit products of each block add to the loss of trained weights.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/text/json_fwd.h"
#include "spec/model.h"
#include "train/weights/inference.h"

namespace trireme::cli {

struct LossByBlock {
  std::string recipe;
  double bf16 = 0, all = 0;    // in bf16, and with all blocks in 8 bits
  std::vector<double> blocks;  // with this block alone in 8 bits

  double percent_above_bf16(double loss) const { return 100 * (loss / bf16 - 1); }
};

// `all`: the loss that `options` give; mean_loss() computes it with others.
LossByBlock loss_by_block(const spec::ModelDims& dims, const train::InferenceOptions& options,
                          double all,
                          const std::function<double(const train::InferenceOptions&)>& mean_loss);

std::string to_text(const LossByBlock&);
base::Json to_json(const LossByBlock&);

}  // namespace trireme::cli
