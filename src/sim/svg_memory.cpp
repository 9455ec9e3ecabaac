// SPDX-License-Identifier: Apache-2.0
// The chart of memory: one line for each rank. The lines go from light to dark magenta, which no
// action uses.
#include <algorithm>
#include <array>
#include <cmath>

#include "sim/svg_parts.h"

namespace trireme::sim {
namespace {

constexpr double chart_height = 110, heading_height = 22;

struct MemoryUnit {
  const char* name;
  double bytes;
};

MemoryUnit unit_of(const Panel& panel, double peak) {
  if (!panel.is_seconds) return {"units of size", 1};
  constexpr std::array<const char*, 6> names = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  MemoryUnit unit{names[0], 1};
  for (size_t i = 1; i < names.size() && peak >= 1024 * unit.bytes; ++i) {
    unit = {names[i], 1024 * unit.bytes};
  }
  return unit;
}

std::string line_colour(size_t rank, size_t ranks) {
  constexpr std::array<double, 3> light = {236, 140, 196}, dark = {84, 8, 54};
  const double part = ranks < 2 ? 1 : static_cast<double>(rank) / static_cast<double>(ranks - 1);
  std::array<int, 3> rgb{};
  for (size_t i = 0; i < rgb.size(); ++i) {
    rgb[i] = static_cast<int>(std::lround(light[i] + part * (dark[i] - light[i])));
  }
  return fmt::format("#{:02x}{:02x}{:02x}", rgb[0], rgb[1], rgb[2]);
}

// Up to 8 ranks by number; more of them as one ramp of colours.
void draw_heading(Canvas& canvas, std::string_view text, size_t ranks, double top) {
  canvas.text(left, top + 10, text);
  double x = left + 5.6 * static_cast<double>(text.size()) + 16;
  const auto stroke = [&](size_t rank, double width) {
    canvas.rect(x, top + 5, width, 3, line_colour(rank, ranks));
    x += width;
  };
  if (ranks <= 8) {
    for (size_t rank = 0; rank < ranks; ++rank) {
      stroke(rank, 16);
      canvas.text(x + 4, top + 10, fmt::format("rank {}", rank));
      x += 50;
    }
    return;
  }
  canvas.text(x, top + 10, "rank 0");
  x += 40;
  for (size_t rank = 0; rank < ranks; ++rank) stroke(rank, 96.0 / static_cast<double>(ranks));
  canvas.text(x + 6, top + 10, fmt::format("rank {}", ranks - 1));
}

}  // namespace

double draw_memory(Canvas& canvas, const Panel& panel, const TimeScale& time, double top) {
  const std::vector<RankResult>& ranks = panel.result->ranks;
  const double peak = std::ranges::max(ranks, {}, &RankResult::peak_bytes).peak_bytes;
  if (peak <= 0) return 0;
  const MemoryUnit unit = unit_of(panel, peak);
  draw_heading(canvas, fmt::format("activations of each rank ({})", unit.name), ranks.size(), top);
  const double bottom = top + heading_height + chart_height;
  const auto y = [&](double bytes) { return bottom - bytes / peak * (chart_height - 8); };
  const double step = 2 * tick_step(peak / unit.bytes);
  for (int tick = 0; tick * step <= peak / unit.bytes * (1 + 1e-9); ++tick) {
    const double at = y(tick * step * unit.bytes);
    canvas.add("<line x1=\"{}\" y1=\"{:.1f}\" x2=\"{}\" y2=\"{:.1f}\" stroke=\"#e4e4e4\"/>\n", left,
               at, left + plot_width, at);
    canvas.text(left - 6, at + 4, fmt::format("{:g}", tick * step), " text-anchor=\"end\"");
  }
  for (size_t rank = 0; rank < panel.result->memory.size(); ++rank) {
    std::string path;
    double before = 0;
    for (const MemoryPoint& point : panel.result->memory[rank]) {
      fmt::format_to(std::back_inserter(path), "{:.2f},{:.1f} {:.2f},{:.1f} ", time.x(point.at),
                     y(before), time.x(point.at), y(point.bytes));
      before = point.bytes;
    }
    canvas.add(
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.4\">"
        "<title>rank {}: at most {:.4g} {}</title></polyline>\n",
        path, line_colour(rank, ranks.size()), rank, ranks[rank].peak_bytes / unit.bytes,
        unit.name);
  }
  return heading_height + chart_height + 12;
}

}  // namespace trireme::sim
