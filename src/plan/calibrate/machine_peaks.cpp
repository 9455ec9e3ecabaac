// SPDX-License-Identifier: Apache-2.0
#include "plan/calibrate/machine_peaks.h"

#include <algorithm>

namespace trireme::plan {
namespace {

double fastest_product(const Times& times) {
  double best = 0;
  for (const TimedProduct& timed : times.products) {
    const Product& p = timed.product;
    best = std::max(best, 2.0 * static_cast<double>(p.m) * static_cast<double>(p.n) *
                              static_cast<double>(p.k) / timed.seconds);
  }
  return best;
}

double fastest_stream(const Times& times) {
  double best = 0;
  for (const TimedStream& timed : times.streams) {
    best = std::max(best, timed.bytes / timed.seconds);
  }
  return best;
}

}  // namespace

void start_peaks(const StatedPeaks& stated, const Times& times, spec::Machine& m) {
  constexpr double above = 2;
  spec::Processor& p = m.processor;
  p.bf16_flops = stated.bf16_flops ? stated.bf16_flops->per_second : above * fastest_product(times);
  p.bytes_per_second =
      stated.bandwidth ? stated.bandwidth->per_second : above * fastest_stream(times);
  if (stated.bf16_flops) m.sources["processor.bf16_tflops"] = stated.bf16_flops->source;
  if (stated.bandwidth) m.sources["processor.gigabytes_per_second"] = stated.bandwidth->source;
}

void settle_peaks(const StatedPeaks& stated, bool has_own_fp32, spec::Machine& m) {
  spec::Processor& p = m.processor;
  if (!stated.bf16_flops) {
    p.bf16_flops *= p.gemm_reach;
    if (!has_own_fp32) p.fp32_flops = p.bf16_flops;
    p.attention_forward = std::min(1.0, p.attention_forward / p.gemm_reach);
    p.attention_backward = std::min(1.0, p.attention_backward / p.gemm_reach);
    p.gemm_reach = 1;
  }
  if (!stated.bandwidth) {
    p.bytes_per_second *= p.memory_reach;
    p.memory_reach = 1;
  }
}

}  // namespace trireme::plan
