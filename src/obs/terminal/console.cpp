// SPDX-License-Identifier: Apache-2.0
#include "obs/terminal/console.h"

#include <fmt/core.h>

#include "obs/terminal/number_text.h"

namespace trireme::obs {

namespace {

std::string seconds_text(double seconds) {
  return seconds < 999.5 ? fmt::format("{:.3g}", seconds) : grouped(seconds, 0);
}

}  // namespace

std::string step_line(const StepLine& s) {
  constexpr double bytes_per_gib = 1024.0 * 1024 * 1024;
  std::string line = fmt::format(
      "step: {:2}  loss: {:8.5f}  grad_norm: {:7.4f}  lr: {:.1e}  tokens: {}  tps: {} ({} s)  "
      "memory: {:.2f}GiB",
      s.step, s.loss, s.grad_norm, s.learning_rate, count_text(s.tokens),
      grouped(s.tokens_per_second, 0), seconds_text(s.step_seconds),
      static_cast<double>(s.memory_bytes) / bytes_per_gib);
  if (s.memory_fraction) line += fmt::format("({:.2f}%)", 100 * *s.memory_fraction);
  if (s.mfu) line += fmt::format("  mfu: {:.2f}%", 100 * *s.mfu);
  if (s.skipped > 0) line += fmt::format("  skipped: {}", s.skipped);
  return line;
}

}  // namespace trireme::obs
