// SPDX-License-Identifier: Apache-2.0
#include "obs/terminal/curve.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>

#include "base/check.h"
#include "obs/terminal/number_text.h"
#include "obs/terminal/terminal.h"

namespace trireme::obs {

namespace {

struct Box {
  double x0 = std::numeric_limits<double>::infinity(), x1 = -x0, y0 = x0, y1 = -x0;
  // Points above y1 are drawn at the upper edge.
  int above = 0;
  double highest = 0;
};

// The dots of a braille character.
constexpr int dots_across = 2, dots_down = 4;

constexpr int arrow_mark = 0;  // the marks of series begin with 1

struct Canvas {
  Canvas(int w, int h) : columns(w), rows(h), dots(size(), 0), marks(size(), -1) {}
  size_t size() const { return static_cast<size_t>(columns) * static_cast<size_t>(rows); }
  size_t cell(int column, int row) const {
    return static_cast<size_t>(row) * static_cast<size_t>(columns) + static_cast<size_t>(column);
  }

  int columns, rows;
  std::vector<uint8_t> dots;  // of each character, in the bits of braille
  std::vector<int> marks;     // of each character: the series of its mark, an arrow, or -1
};

bool is_finite(const CurvePoint& p) { return std::isfinite(p.x) && std::isfinite(p.y); }

Box box_of(std::span<const CurveSeries> series) {
  Box box;
  for (const CurveSeries& one : series) {
    for (const CurvePoint& p : one.points) {
      if (!is_finite(p)) continue;
      box.x0 = std::min(box.x0, p.x);
      box.x1 = std::max(box.x1, p.x);
      box.y0 = std::min(box.y0, p.y);
      box.y1 = std::max(box.y1, p.y);
    }
  }
  return box;
}

// If a few high points would take more than a third of the height, lowers the upper edge to the
// first values or to the 90th percentile, whichever is higher.
void cut_spikes(std::span<const CurveSeries> series, Box& box) {
  constexpr double share = 0.9, excess = 1.5;
  constexpr size_t min_points = 8;
  std::vector<double> values;
  double start = box.y0;
  for (const CurveSeries& one : series) {
    const size_t before = values.size();
    for (const CurvePoint& p : one.points) {
      if (is_finite(p)) values.push_back(p.y);
    }
    if (values.size() > before) start = std::max(start, values[before]);
  }
  if (values.size() < min_points) return;
  const auto at =
      values.begin() + static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), at, values.end());
  const double edge = std::max(start, *at);
  if (!(edge > box.y0) || box.y1 - box.y0 <= excess * (edge - box.y0)) return;
  box.highest = box.y1;
  box.y1 = edge;
  for (const double value : values) box.above += value > edge ? 1 : 0;
}

// Maps lo to hi to 0 to n - 1; to the middle if both are equal.
double scaled(double value, double lo, double hi, int n) {
  if (!(hi > lo)) return (n - 1) / 2.0;
  return (value - lo) / (hi - lo) * (n - 1);
}

void set_dot(Canvas& canvas, int x, int y) {
  // Braille numbers its dots down the left column, down the right one, then the lowest two.
  static constexpr std::array<std::array<uint8_t, dots_across>, dots_down> bits = {
      {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}}};
  const size_t cell = canvas.cell(x / dots_across, y / dots_down);
  canvas.dots[cell] = static_cast<uint8_t>(
      canvas.dots[cell] |
      bits[static_cast<size_t>(y % dots_down)][static_cast<size_t>(x % dots_across)]);
}

// Draws the mean of the points in every column of dots, joined by straight lines.
void draw_line(Canvas& canvas, const CurveSeries& series, const Box& box) {
  const int across = canvas.columns * dots_across, down = canvas.rows * dots_down;
  std::vector<double> sum(static_cast<size_t>(across), 0);
  std::vector<int> count(static_cast<size_t>(across), 0);
  for (const CurvePoint& p : series.points) {
    if (!is_finite(p)) continue;
    const auto x = static_cast<size_t>(std::lround(scaled(p.x, box.x0, box.x1, across)));
    sum[x] += (down - 1) - scaled(std::min(p.y, box.y1), box.y0, box.y1, down);
    ++count[x];
  }
  int last_x = -1;
  double last_y = 0;
  for (int x = 0; x < across; ++x) {
    const auto at = static_cast<size_t>(x);
    if (count[at] == 0) continue;
    const double y = sum[at] / count[at];
    const int from_x = last_x < 0 ? x : last_x;
    const double from_y = last_x < 0 ? y : last_y;
    const int steps = std::max({x - from_x, static_cast<int>(std::ceil(std::abs(y - from_y))), 1});
    for (int i = 0; i <= steps; ++i) {
      const double t = static_cast<double>(i) / steps;
      set_dot(canvas, static_cast<int>(std::lround(from_x + t * (x - from_x))),
              std::clamp(static_cast<int>(std::lround(from_y + t * (y - from_y))), 0, down - 1));
    }
    last_x = x;
    last_y = y;
  }
}

void draw_marks(Canvas& canvas, const CurveSeries& series, int index, const Box& box) {
  const int across = canvas.columns * dots_across, down = canvas.rows * dots_down;
  for (const CurvePoint& p : series.points) {
    if (!is_finite(p)) continue;
    // On the same grid as the dots, so that equal values are on the line.
    const long x = std::lround(scaled(p.x, box.x0, box.x1, across)) / dots_across;
    const double height = scaled(std::min(p.y, box.y1), box.y0, box.y1, down);
    const long y = std::lround((down - 1) - height) / dots_down;
    canvas.marks[canvas.cell(static_cast<int>(x), static_cast<int>(y))] = index;
  }
}

// Draws an arrow in the first line above every point that is too high for the box.
void draw_arrows(Canvas& canvas, const CurveSeries& series, const Box& box) {
  for (const CurvePoint& p : series.points) {
    if (!is_finite(p) || !(p.y > box.y1)) continue;
    const long x =
        std::lround(scaled(p.x, box.x0, box.x1, canvas.columns * dots_across)) / dots_across;
    canvas.marks[canvas.cell(static_cast<int>(x), 0)] = arrow_mark;
  }
}

std::string braille(uint8_t dots) {
  // U+2800 + dots in UTF-8.
  return {static_cast<char>(0xe2), static_cast<char>(0xa0 | (dots >> 6)),
          static_cast<char>(0x80 | (dots & 0x3f))};
}

std::string_view mark_of(int index, bool is_unicode) {
  static constexpr std::array<std::string_view, 3> fancy = {"●", "◆", "▲"}, plain = {"o", "+", "x"};
  if (index == arrow_mark) return is_unicode ? "↑" : "^";
  const auto at = static_cast<size_t>((index - 1) % 3);
  return is_unicode ? fancy[at] : plain[at];
}

std::string number(double value) {
  if (std::abs(value) >= 1e6 || (value != 0 && std::abs(value) < 1e-3)) {
    return fmt::format("{:.2e}", value);
  }
  return fmt::format("{:.3f}", value);
}

std::string x_number(double value) {
  const bool is_whole = value == std::floor(value) && std::abs(value) < 1e15;
  return is_whole ? grouped(static_cast<int64_t>(value)) : number(value);
}

void end_line(std::string& text) {
  text.erase(text.find_last_not_of(' ') + 1);
  text += '\n';
}

}  // namespace

std::string curve_text(std::span<const CurveSeries> series, const CurveOptions& options) {
  TRIREME_CHECK(options.width >= 24 && options.height >= 2, "a curve of {} by {} characters",
                options.width, options.height);
  Box box = box_of(series);
  if (!(box.x1 >= box.x0)) return "(no finite value to draw)\n";
  cut_spikes(series, box);

  // A label on every third line or so, and on the first and last.
  const auto label_at = [&](int row) -> std::string {
    const int parts = std::max(1, (options.height - 1) / 3);
    for (int i = 0; i <= parts; ++i) {
      if (row == (options.height - 1) * i / parts) {
        return number(box.y1 + (box.y0 - box.y1) * row / (options.height - 1));
      }
    }
    return "";
  };
  int label_width = 0;
  for (int row = 0; row < options.height; ++row) {
    label_width = std::max(label_width, columns_of(label_at(row)));
  }
  const int columns = options.width - label_width - 2;

  Canvas canvas(columns, options.height);
  for (size_t i = 0; i < series.size(); ++i) {
    if (i == 0) {
      draw_line(canvas, series[i], box);
    } else {
      draw_marks(canvas, series[i], static_cast<int>(i), box);
    }
  }
  for (const CurveSeries& one : series) draw_arrows(canvas, one, box);

  const std::string_view side = options.is_unicode ? "│" : "|";
  const std::string_view corner = options.is_unicode ? "└" : "+";
  const std::string_view floor = options.is_unicode ? "─" : "-";
  std::string text;
  for (int row = 0; row < options.height; ++row) {
    text += fmt::format("{:>{}} {}", label_at(row), label_width, side);
    for (int column = 0; column < columns; ++column) {
      const size_t cell = canvas.cell(column, row);
      if (canvas.marks[cell] >= 0) {
        text += mark_of(canvas.marks[cell], options.is_unicode);
      } else if (canvas.dots[cell] == 0) {
        text += ' ';
      } else {
        text += options.is_unicode ? braille(canvas.dots[cell]) : "*";
      }
    }
    end_line(text);
  }
  const std::string margin(static_cast<size_t>(label_width + 1), ' ');
  text += margin;
  text += corner;
  for (int column = 0; column < columns; ++column) text += floor;
  end_line(text);

  const std::string left = x_number(box.x0), right = x_number(box.x1);
  const int gap = columns - columns_of(left) - columns_of(right);
  text += margin + " " + left;
  text += fmt::format("{:^{}}", gap >= columns_of(options.x_title) + 2 ? options.x_title : "",
                      std::max(gap, 1));
  text += right;
  end_line(text);
  if (series.size() > 1 || !series.front().name.empty()) {
    text += margin;
    for (size_t i = 0; i < series.size(); ++i) {
      const std::string_view line = options.is_unicode ? "⠤⠒" : "**";
      const std::string_view sign =
          i == 0 ? line : mark_of(static_cast<int>(i), options.is_unicode);
      text += fmt::format("{} {} {}", i == 0 ? "" : "  ", sign, series[i].name);
    }
    end_line(text);
  }
  if (box.above > 0) {
    text += fmt::format("{} {} {} value{} above {}, up to {}\n", margin,
                        mark_of(arrow_mark, options.is_unicode), box.above,
                        box.above == 1 ? "" : "s", number(box.y1), number(box.highest));
  }
  return text;
}

}  // namespace trireme::obs
