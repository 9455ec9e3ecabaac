// SPDX-License-Identifier: Apache-2.0
#include "obs/console.h"

#include <fmt/core.h>

#include "obs/number_text.h"

namespace trireme::obs {

std::string step_line(const StepLine& s) {
  constexpr double bytes_per_gib = 1024.0 * 1024 * 1024;
  std::string line =
      fmt::format("step: {:2}  loss: {:8.5f}  grad_norm: {:7.4f}  memory: {:5.2f}GiB", s.step,
                  s.loss, s.grad_norm, static_cast<double>(s.memory_bytes) / bytes_per_gib);
  if (s.memory_fraction) line += fmt::format("({:.2f}%)", 100 * *s.memory_fraction);
  line +=
      fmt::format("  tps: {}  tflops: {}", grouped(s.tokens_per_second, 0), grouped(s.tflops, 2));
  if (s.mfu) line += fmt::format("  mfu: {:.2f}%", 100 * *s.mfu);
  if (s.skipped > 0) line += fmt::format("  skipped: {}", s.skipped);
  return line;
}

}  // namespace trireme::obs
