// SPDX-License-Identifier: Apache-2.0
// What the parts of grouped_speed share: options, and lines of the report.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/gpu_timer.h"

namespace trireme::bench {

struct Options {
  int64_t rows = 4096;  // of an expert, on average
  int64_t width = 2048, hidden = 1024, experts = 64, chosen = 8;
  double skew = 1;  // rows of the fullest expert over those of the emptiest
  int rounds = 10;
  bool has_bf16_grads = false;
  bool is_json = false;
  std::string precision = "bf16";
};

// Starts of groups whose sizes fall linearly from `skew` times the last one, in multiples of 128,
// in an order that mixes large and small ones.
inline std::vector<int32_t> starts_of(const Options& o) {
  std::vector<int32_t> starts = {0};
  for (int64_t e = 0; e < o.experts; ++e) {
    const double at = o.experts == 1 ? 0.5
                                     : static_cast<double>(e * 37 % o.experts) /
                                           static_cast<double>(o.experts - 1);
    const double share = 2 / (1 + o.skew) * (1 + (o.skew - 1) * at);
    const auto rows = static_cast<int32_t>(static_cast<double>(o.rows) * share / 128 + 0.5) * 128;
    starts.push_back(starts.back() + rows);
  }
  return starts;
}

struct Row {
  std::string name;
  double seconds = 0, flops = 0, dense_seconds = 0, bytes = 0, copy_seconds = 0;
};

// The products of a layer in 8 bits, each beside the library's in bf16, and what makes their
// operands (grouped_codes_speed.cpp).
std::vector<Row> products_of_codes(GpuTimer&, const Options&);

}  // namespace trireme::bench
