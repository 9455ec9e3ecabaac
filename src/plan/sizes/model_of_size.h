// SPDX-License-Identifier: Apache-2.0
// A model of a wanted number of parameters, and how many tokens it should see.
#pragma once

#include <cstdint>

#include "spec/model.h"

namespace trireme::plan {

// Tokens for each parameter with which a given compute reaches the lowest loss: Hoffmann et al.
// 2022, "Training Compute-Optimal Large Language Models" (arXiv:2203.15556), whose fits give
// about 20.
inline constexpr double compute_optimal_ratio = 20;

inline constexpr double min_model_parameters = 5e6, max_model_parameters = 2e12;

// Returns a model in the proportions of Llama 3 (width 128 times the depth, heads of 128, four
// query heads to one of keys and values, a feed-forward of 3.5 widths) with about this many
// parameters. Below 1e9 its vocabulary is 32,768 instead of 128,256; below 4e9 head and embedding
// are one table. REQUIRES: min_model_parameters <= parameters <= max_model_parameters.
spec::ModelDims model_of_size(double parameters, int64_t max_seq);

// Returns a usual batch for a model of this size in tokens, a power of two: 0.5 to 4 million, after
// table 2.1 of Brown et al. 2020 (arXiv:2005.14165); less for a run of fewer than 1,000 such steps.
double batch_tokens_for(double parameters, double run_tokens);

}  // namespace trireme::plan
