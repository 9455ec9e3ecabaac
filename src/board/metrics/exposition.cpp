// SPDX-License-Identifier: Apache-2.0
#include "board/metrics/exposition.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace trireme::board {
namespace {

std::string escaped(std::string_view text, bool is_label) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\\\";
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '"' && is_label) {
      out += "\\\"";
    } else {
      out += c;
    }
  }
  return out;
}

std::string value_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

}  // namespace

std::string exposition_text(const std::vector<MetricFamily>& families, bool is_openmetrics) {
  std::string out;
  for (const MetricFamily& family : families) {
    if (family.samples.empty()) continue;
    const bool is_counter = family.type == MetricType::counter;
    const std::string sample_name = family.name + (is_counter ? "_total" : "");
    // OpenMetrics names the family of a counter without "_total", the older format with it.
    const std::string& shown = is_openmetrics ? family.name : sample_name;
    out += fmt::format("# TYPE {} {}\n", shown, is_counter ? "counter" : "gauge");
    if (is_openmetrics && !family.unit.empty()) {
      out += fmt::format("# UNIT {} {}\n", shown, family.unit);
    }
    // Only OpenMetrics escapes quotes in help.
    out += fmt::format("# HELP {} {}\n", shown, escaped(family.help, is_openmetrics));
    for (const MetricSample& sample : family.samples) {
      out += sample_name;
      if (!sample.labels.empty()) {
        out += '{';
        for (size_t i = 0; i < sample.labels.size(); ++i) {
          out += fmt::format("{}{}=\"{}\"", i == 0 ? "" : ",", sample.labels[i].first,
                             escaped(sample.labels[i].second, true));
        }
        out += '}';
      }
      out += fmt::format(" {}\n", value_text(sample.value));
    }
  }
  if (is_openmetrics) out += "# EOF\n";
  return out;
}

Response metrics_response(const Board& board, const Request& request) {
  const bool is_openmetrics = request.header("accept").value_or("").find(
                                  "application/openmetrics-text") != std::string_view::npos;
  return {.type = is_openmetrics ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                                 : "text/plain; version=0.0.4; charset=utf-8",
          .body = exposition_text(metric_families(board), is_openmetrics)};
}

}  // namespace trireme::board
