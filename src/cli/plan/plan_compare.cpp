// SPDX-License-Identifier: Apache-2.0
// Compares two layouts term by term, for `trireme plan --explain`.
#include <algorithm>

#include "cli/plan/plan_report.h"

namespace trireme::cli {

std::string comparison_text(const PlanQuestion& q, const PlannedLayout& a, const PlannedLayout& b) {
  const plan::Price &x = a.price, &y = b.price;
  std::string text = layout_text(q, "A", a) + layout_text(q, "B", b);
  const auto row = [&text](std::string_view name, double of_a, double of_b,
                           std::string_view meaning) {
    text += fmt::format("{:12}{:>12.4g}{:>12.4g}{:>+12.4g}{}{}\n", name, of_a, of_b, of_b - of_a,
                        meaning.empty() ? "" : "  ", meaning);
  };
  const auto head = [&text](std::string_view name) {
    text += fmt::format("{:12}{:>12}{:>12}{:>12}\n", name, "A", "B", "B - A");
  };
  head("seconds");
  for (size_t i = 0; i < x.seconds_of.size(); ++i) {
    if (x.seconds_of[i] <= 0 && y.seconds_of[i] <= 0) continue;
    const auto term = static_cast<plan::Term>(i);
    row(plan::name_of(term), x.seconds_of[i], y.seconds_of[i], plan::meaning_of(term));
  }
  row("sum", x.seconds, y.seconds, "");
  constexpr double gib = 1024.0 * 1024 * 1024;
  head("GiB");
  for (const MemoryItem& item : a.items) {
    row(item.name, static_cast<double>(item.bytes) / gib,
        static_cast<double>(bytes_of(b, item.name)) / gib, item.meaning);
  }
  row("sum", static_cast<double>(a.bytes) / gib, static_cast<double>(b.bytes) / gib, "");
  const double ratio = b.seconds() / a.seconds();
  text += fmt::format("{} is {:.1f} % faster\n", ratio > 1 ? "A" : "B",
                      100 * (std::max(ratio, 1 / ratio) - 1));
  return text;
}

}  // namespace trireme::cli
