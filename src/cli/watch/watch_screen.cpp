// SPDX-License-Identifier: Apache-2.0
#include "cli/watch/watch_screen.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text/printable.h"
#include "obs/terminal/curve.h"
#include "obs/terminal/number_text.h"
#include "obs/terminal/terminal.h"

namespace trireme::cli {
namespace {

constexpr size_t max_terms = 6, max_ranks = 3, max_events = 4, max_problems = 3;
constexpr int min_curve_rows = 4, max_curve_rows = 12;

using Lines = std::vector<std::string>;

void append(Lines& to, const Lines& more) { to.insert(to.end(), more.begin(), more.end()); }

Lines split_lines(const std::string& text) {
  Lines lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

std::string figure_text(double value, int decimals) {
  return std::isfinite(value) ? obs::grouped(value, decimals) : fmt::format("{}", value);
}

// The state of the run in one paragraph.
Lines head_lines(const RunSummary& s, int columns) {
  Lines lines = wrapped(
      fmt::format("{}: {}", base::printable(s.run.name), base::printable(s.diagnosis.sentence)),
      columns);
  std::string figures = fmt::format("{}, step {}", name_of(s.run.state), step_text(s.run));
  if (s.loss) figures += fmt::format(", loss {}", figure_text(*s.loss, 4));
  if (s.eta_seconds) figures += fmt::format(", {} left", obs::duration_text(*s.eta_seconds));
  if (s.age_seconds) figures += fmt::format(", wrote {} ago", age_text(*s.age_seconds));
  append(lines, wrapped(figures, columns));
  std::string speed;
  if (s.tokens_per_second) speed = fmt::format("{} tokens/s", figure_text(*s.tokens_per_second, 0));
  if (s.tokens_per_second && s.predicted_tokens_per_second) {
    speed +=
        fmt::format(" ({} predicted, {:+.1f} %)", figure_text(*s.predicted_tokens_per_second, 0),
                    100 * (*s.tokens_per_second / *s.predicted_tokens_per_second - 1));
  }
  if (!speed.empty()) append(lines, wrapped(speed, columns));
  return lines;
}

Lines curve_lines(const RunSummary& s, const ScreenShape& shape, int height) {
  const auto found = s.run.series.find("loss_metrics/global_avg_loss");
  if (found == s.run.series.end()) return {};
  obs::CurveSeries loss{.name = "loss"};
  for (size_t i = 0; i < found->second.steps.size(); ++i) {
    loss.points.push_back({static_cast<double>(found->second.steps[i]), found->second.values[i]});
  }
  return split_lines(
      obs::curve_text(std::span(&loss, 1),
                      {.width = shape.columns, .height = height, .is_unicode = shape.is_unicode}));
}

std::string bar_text(double share, int columns, bool is_unicode) {
  const int full = std::clamp(static_cast<int>(std::lround(share * columns)), 0, columns);
  std::string bar;
  for (int i = 0; i < full; ++i) bar += is_unicode ? "█" : "#";
  return bar;
}

// The largest terms of a step's time, as bars.
Lines waterfall_lines(const RunSummary& s, const ScreenShape& shape) {
  const analysis::Waterfall& fall = s.diagnosis.waterfall;
  if (!fall.is_measured || !(fall.measured_seconds > 0)) return {};
  std::vector<analysis::WaterfallTerm> terms = fall.terms;
  terms.push_back(
      {.id = "residual", .label = "residual", .predicted = {}, .measured = fall.residual});
  std::ranges::stable_sort(terms, std::greater<>(), &analysis::WaterfallTerm::measured);
  Lines lines = {fmt::format("a step takes {:.3f} s{}", fall.measured_seconds,
                             fall.predicted_seconds
                                 ? fmt::format(", {:.3f} s predicted", *fall.predicted_seconds)
                                 : std::string())};
  const int label_columns = std::min(24, shape.columns / 2 - 2);
  const bool has_predictions = shape.columns >= 60;
  const int bar_columns = shape.columns - label_columns - (has_predictions ? 18 : 9);
  for (size_t i = 0; i < std::min(terms.size(), max_terms); ++i) {
    const double share = terms[i].measured / fall.measured_seconds;
    if (share < 0.0005) break;
    const std::string label(obs::cut_to_columns(terms[i].label, label_columns));
    lines.push_back(fmt::format("{:<{}} {:>5.1f} % {}", label, label_columns, 100 * share,
                                bar_text(share, bar_columns, shape.is_unicode)));
    if (terms[i].predicted && has_predictions) {
      lines.back() += fmt::format(" ({:.1f})", 100 * *terms[i].predicted / fall.measured_seconds);
    }
  }
  return lines;
}

Lines rank_lines(const RunSummary& s) {
  Lines lines;
  for (size_t i = 0; i < std::min(s.late_ranks.size(), max_ranks); ++i) {
    const LateRank& one = s.late_ranks[i];
    if (one.late_seconds <= 0) break;
    lines.push_back(fmt::format("{}: {:.1f} ms late, computes {:.1f} ms", base::printable(one.name),
                                1e3 * one.late_seconds, 1e3 * one.compute_seconds));
  }
  if (!lines.empty()) lines.insert(lines.begin(), "ranks that arrive last, per step");
  return lines;
}

Lines checkpoint_lines(const RunSummary& s, int columns, double now) {
  const board::CheckpointEntry* target = s.checkpoints.rollback_target();
  if (target == nullptr) return wrapped("no checkpoint to go back to", columns);
  return wrapped(
      fmt::format("can go back to step {}, saved {} ago ({} kept)", obs::grouped(target->step),
                  age_text(std::max(0.0, now - target->time)), s.checkpoints.entries.size()),
      columns);
}

Lines event_lines(const RunSummary& s, double now) {
  Lines lines;
  const std::vector<obs::Event>& events = s.run.events;
  const size_t first = events.size() > max_events ? events.size() - max_events : 0;
  for (size_t i = events.size(); i > first; --i) {
    const obs::Event& event = events[i - 1];
    const std::string step =
        event.step >= 0 ? fmt::format(" step {}", obs::grouped(event.step)) : "";
    lines.push_back(fmt::format("{} ago{} {}: {}", age_text(std::max(0.0, now - event.time)), step,
                                obs::name_of(event.kind), base::printable(event.text)));
  }
  if (!lines.empty()) lines.insert(lines.begin(), "last events, the newest first");
  return lines;
}

}  // namespace

std::vector<std::string> wrapped(std::string_view text, int columns) {
  Lines lines;
  while (obs::columns_of(text) > columns) {
    const std::string_view fitting = obs::cut_to_columns(text, columns);
    const size_t blank = fitting.rfind(' ');
    const bool splits_word = blank == std::string_view::npos || blank == 0;
    const size_t end = splits_word ? fitting.size() : blank;
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(splits_word ? end : end + 1);
  }
  lines.emplace_back(text);
  return lines;
}

std::vector<std::string> watch_screen(const RunSummary& s, const ScreenShape& shape, double now) {
  Lines above = head_lines(s, shape.columns);
  Lines below;
  for (const Lines& part : {waterfall_lines(s, shape), rank_lines(s),
                            checkpoint_lines(s, shape.columns, now), event_lines(s, now)}) {
    if (part.empty()) continue;
    below.emplace_back();
    append(below, part);
  }
  for (size_t i = 0; i < std::min(s.run.problems.size(), max_problems); ++i) {
    append(below, wrapped("note: " + base::printable(s.run.problems[i]), shape.columns));
  }
  // The axis and the legend of the curve have up to four lines.
  const int used = static_cast<int>(above.size() + below.size()) + 4;
  const int height = shape.rows > 0 ? std::clamp(shape.rows - used, min_curve_rows, max_curve_rows)
                                    : max_curve_rows;
  Lines lines = above;
  append(lines, curve_lines(s, shape, height));
  append(lines, below);
  for (std::string& line : lines) line = std::string(obs::cut_to_columns(line, shape.columns));
  if (shape.rows > 0 && std::ssize(lines) > shape.rows)
    lines.resize(static_cast<size_t>(shape.rows));
  return lines;
}

}  // namespace trireme::cli
