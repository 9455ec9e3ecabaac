// SPDX-License-Identifier: Apache-2.0
// Utilisation from tokens per second, by the formula that published figures use.
#pragma once

#include <cstdint>

#include "spec/plan.h"

namespace trireme::train {

// 6 N + 12 L h T per token: N parameters that a token uses (without the input embedding unless it
// is tied to the head; of experts those that are chosen), L blocks, h = heads * head size, T
// sequence length. Attention is counted without the causal saving.
double formula_flops_per_token(const spec::ModelSpec&, int64_t seq_len);

struct Utilisation {
  double mfu = 0;  // formula FLOPs per second / peak
  double hfu = 0;  // the same, times (executed FLOPs with recompute / without)
};

// `peak_flops`: of the device, per second. REQUIRES: > 0.
Utilisation utilisation(const spec::ModelSpec&, const spec::Plan&, double tokens_per_second,
                        double peak_flops);

// The formula as text.
constexpr const char* mfu_formula = "(6 N + 12 L h T) tokens/s / peak";

}  // namespace trireme::train
