// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/plan_words.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "obs/terminal/number_text.h"
#include "plan/search/kinds.h"

namespace trireme::cli {
namespace {

constexpr double gib = 1024.0 * 1024 * 1024, mib = 1024.0 * 1024;

// Formats with three significant digits.
std::string three_digits(double value) {
  return fmt::format("{:.{}f}", value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0);
}

}  // namespace

std::string memory_text(double bytes) {
  if (std::abs(bytes) >= 0.1 * gib) return obs::grouped(bytes / gib, 1) + " GiB";
  return fmt::format("{:.1f} MiB", bytes / mib);
}

std::string memory_share_text(double bytes, double limit) {
  std::string text = memory_text(bytes);
  const std::string whole = memory_text(limit);
  const auto unit = [](const std::string& t) { return t.substr(t.rfind(' ')); };
  if (unit(text) == unit(whole)) text.resize(text.rfind(' '));
  return fmt::format("{} of {}", text, whole);
}

std::string amount_text(double count) {
  constexpr std::array<const char*, 4> units = {"K", "M", "B", "T"};
  if (count < 1e5) return obs::grouped(count, 0);
  double scaled = count / 1000;
  size_t unit = 0;
  for (; scaled >= 999.5 && unit + 1 < units.size(); ++unit) scaled /= 1000;
  return scaled >= 999.5 ? fmt::format("{} {}", obs::grouped(scaled, 0), units[unit])
                         : fmt::format("{} {}", three_digits(scaled), units[unit]);
}

std::string days_text(double days) {
  if (days >= 99.95) return obs::grouped(days, 0) + " days";
  if (days >= 2) return fmt::format("{:.1f} days", days);
  if (days * 24 >= 2) return fmt::format("{:.1f} hours", days * 24);
  return fmt::format("{:.1f} minutes", days * 24 * 60);
}

std::string money_text(double dollars) {
  if (dollars >= 999'500'000) return three_digits(dollars / 1e9) + " B$";
  if (dollars >= 999'500) return three_digits(dollars / 1e6) + " M$";
  return obs::grouped(dollars, dollars < 100 ? 2 : 0) + " $";
}

std::string run_text(const plan::RunCost& run) {
  return fmt::format("{}, {} GPU-hours{}", days_text(run.days),
                     obs::grouped(run.gpu_hours, run.gpu_hours < 100 ? 1 : 0),
                     run.dollars ? ", " + money_text(*run.dollars) : "");
}

std::string price_text(const plan::RunCost& run) {
  if (!run.dollars || run.gpu_hours <= 0) return {};
  return fmt::format(" at {:.2f} $/GPU-hour", *run.dollars / run.gpu_hours);
}

std::string gpu_word(const spec::Machine& machine) {
  return machine.processor.bf16_flops > machine.processor.fp32_flops ? "GPU" : "rank";
}

std::string gpus_text(const spec::Machine& machine, int64_t count) {
  return fmt::format("{} {}{}", obs::grouped(count), gpu_word(machine), count == 1 ? "" : "s");
}

std::string named_layout(const spec::Layout& layout) {
  const plan::LayoutKind kind = plan::kind_of(layout);
  std::string text = spec::words(layout);
  if (layout.data_ranks() == 1) return text;
  if (kind == plan::LayoutKind::ddp) text += " (DDP)";
  if (kind == plan::LayoutKind::fsdp && layout.zero_stage == 3) {
    text += layout.dp_replicate > 1 ? fmt::format(" (HSDP, {} copies)", layout.dp_replicate)
                                    : fmt::format(" (FSDP over {})", layout.dp_shard);
  }
  return text;
}

}  // namespace trireme::cli
