// SPDX-License-Identifier: Apache-2.0
#include "cli/watch/diagnosis_text.h"

#include <fmt/format.h>

#include "base/text/printable.h"
#include "obs/terminal/table.h"

namespace trireme::cli {
namespace {

std::string milliseconds(double seconds) { return fmt::format("{:.3f}", 1e3 * seconds); }

std::vector<std::string> row_of(const std::string& label, const std::optional<double>& predicted,
                                double measured, double step) {
  return {label, predicted ? milliseconds(*predicted) : "", milliseconds(measured),
          predicted ? fmt::format("{:+.3f}", 1e3 * (measured - *predicted)) : "",
          fmt::format("{:.1f} %", 100 * measured / step)};
}

}  // namespace

std::string waterfall_text(const analysis::Waterfall& fall) {
  if (!fall.is_measured) return "";
  std::vector<std::vector<std::string>> rows;
  for (const analysis::WaterfallTerm& term : fall.terms) {
    rows.push_back(row_of(term.label, term.predicted, term.measured, fall.measured_seconds));
  }
  rows.push_back(row_of("residual", {}, fall.residual, fall.measured_seconds));
  rows.emplace_back();
  rows.push_back(
      row_of("step", fall.predicted_seconds, fall.measured_seconds, fall.measured_seconds));
  const obs::Column columns[] = {{"ms per step", obs::Align::left},
                                 {"predicted", obs::Align::right},
                                 {"measured", obs::Align::right},
                                 {"difference", obs::Align::right},
                                 {"share", obs::Align::right}};
  return obs::table_text(columns, rows);
}

std::string findings_text(const std::vector<analysis::Finding>& findings) {
  std::string text;
  for (size_t i = 0; i < findings.size(); ++i) {
    const analysis::Finding& finding = findings[i];
    text += fmt::format("{}. {}{}: {}\n", i + 1, name_of(finding.cause),
                        finding.share > 0 ? fmt::format(" ({:.1f} %)", 100 * finding.share) : "",
                        base::printable(finding.title));
    for (const std::string& line : finding.evidence) {
      text += fmt::format("   - {}\n", base::printable(line));
    }
    text += fmt::format("   what to do: {}\n", base::printable(finding.advice));
  }
  return text;
}

}  // namespace trireme::cli
