// SPDX-License-Identifier: Apache-2.0
// The picture for slides. Plain SVG 1.1 without references to anything outside of it.
#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <map>
#include <tuple>

#include "base/check.h"
#include "sim/picture.h"

namespace trireme::sim {
namespace {

using schedule::Action;
using schedule::Op;
using schedule::Schedule;

constexpr double left = 64, right = 24, width = 1280, row = 26, gap = 4, memory_height = 110;
constexpr double plot = width - left - right;

struct Colour {
  const char* name;
  const char* first;   // of a rank's first, third, ... chunk
  const char* second;  // of the others
};
const Colour f_colour{"F", "#3b82c4", "#8fbbe3"}, b_colour{"B", "#e08a2c", "#f3c48a"},
    w_colour{"W", "#4f9d5d", "#a5cfac"}, bw_colour{"BW", "#d0662f", "#ebaa85"},
    pair_colour{"F with B", "#7b5bb0", "#b7a3d6"}, r_colour{"R", "#5d7c8a", "#a7bcc6"},
    other_colour{"reduce", "#888888", "#bbbbbb"};
// Ranks' memory, repeated if there are more.
constexpr std::array<const char*, 8> line_colours = {"#1b4f8a", "#c2551b", "#2f7d3e", "#7b3fa0",
                                                     "#b02a4c", "#1f7f86", "#8a6d1b", "#555555"};

const Colour& colour_of(const Action& action) {
  if (action.with_next) return pair_colour;
  switch (action.op) {
    case Op::F:
      return f_colour;
    case Op::B:
      return b_colour;
    case Op::W:
      return w_colour;
    case Op::BW:
      return bw_colour;
    case Op::R:
      return r_colour;
    default:
      return other_colour;
  }
}

bool is_message(Op op) {
  return op == Op::SendY || op == Op::RecvX || op == Op::SendDx || op == Op::RecvDy;
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

// "3.77 GiB", short enough for the margin; without a unit where the caller has its own.
std::string memory_text(const Panel& panel, double size) {
  if (!panel.is_bytes) return fmt::format("{:.4g}", size);
  constexpr std::array<const char*, 6> units = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  size_t unit = 0;
  for (; size >= 1024 && unit + 1 < units.size(); ++unit) size /= 1024;
  return fmt::format("{:.3g} {}", size, units[unit]);
}

class Drawing {
 public:
  explicit Drawing(const std::vector<Panel>& panels);
  std::string text() &&;

 private:
  template <typename... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(body_), format, std::forward<Args>(args)...);
  }
  double x(double at) const { return left + (last_ > 0 ? at / last_ * plot : 0); }
  static double panel_height(const Panel& panel) {
    const double memory = peak_bytes(panel) > 0 ? memory_height + 30 : 0;
    return 52 + row * panel.schedule->ranks + 34 + memory;
  }
  // Zero for measured steps, whose memory over time is not known.
  static double peak_bytes(const Panel& panel) {
    double peak = 0;
    for (const RankResult& rank : panel.result->ranks) peak = std::max(peak, rank.peak_bytes);
    return peak;
  }

  void draw(const Panel& panel);
  void draw_rank(const Panel& panel, size_t rank, double top);
  void draw_messages(const Panel& panel, double top);
  void draw_axis(double at);
  void draw_memory(const Panel& panel, double top);
  void draw_legend(const Panel& panel, double top);

  double last_ = 0;  // the latest time of all panels
  double y_ = 8;
  std::string body_;
};

Drawing::Drawing(const std::vector<Panel>& panels) {
  for (const Panel& panel : panels) {
    TRIREME_CHECK(panel.schedule != nullptr && panel.result != nullptr &&
                      panel.result->timeline.size() == panel.schedule->program.size(),
                  "the panel '{}' has no timeline", panel.title);
    for (const RankResult& rank : panel.result->ranks) last_ = std::max(last_, rank.end);
  }
  for (const Panel& panel : panels) draw(panel);
}

void Drawing::draw(const Panel& panel) {
  add("<text x=\"{}\" y=\"{:.1f}\" class=\"t\">{}</text>\n", left, y_ + 18, escaped(panel.title));
  draw_legend(panel, y_ + 26);
  const double top = y_ + 48;
  for (size_t rank = 0; rank < panel.schedule->program.size(); ++rank) {
    draw_rank(panel, rank, top + row * static_cast<double>(rank));
  }
  draw_messages(panel, top);
  const double below = top + row * panel.schedule->ranks;
  draw_axis(below + 2);
  draw_memory(panel, below + 34);
  y_ += panel_height(panel);
}

void Drawing::draw_legend(const Panel& panel, double top) {
  std::vector<const Colour*> used;
  for (size_t rank = 0; rank < panel.schedule->program.size(); ++rank) {
    const std::vector<Action>& program = panel.schedule->program[rank];
    for (size_t at = 0; at < program.size(); ++at) {
      const Span& span = panel.result->timeline[rank][at];
      if (is_message(program[at].op) || (at > 0 && program[at - 1].with_next)) continue;
      if (span.end <= span.begin) continue;
      const Colour* colour = &colour_of(program[at]);
      if (std::ranges::find(used, colour) == used.end()) used.push_back(colour);
    }
  }
  double at = left;
  for (const Colour* colour : used) {
    add("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"12\" height=\"12\" fill=\"{}\"/>"
        "<text x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n",
        at, top, colour->first, at + 16, top + 10, colour->name);
    at += 34 + 7.5 * static_cast<double>(std::string_view(colour->name).size());
  }
  add("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"12\" height=\"12\" fill=\"url(#idle)\"/>"
      "<text x=\"{:.1f}\" y=\"{:.1f}\">idle</text>\n",
      at, top, at + 16, top + 10);
}

void Drawing::draw_rank(const Panel& panel, size_t rank, double top) {
  const std::vector<Action>& program = panel.schedule->program[rank];
  const std::vector<Span>& spans = panel.result->timeline[rank];
  add("<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">rank {}</text>\n", left - 6,
      top + row / 2 + 3, rank);
  add("<rect x=\"{}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{}\" fill=\"url(#idle)\"/>\n", left,
      top, x(panel.result->makespan) - left, row - gap);
  for (size_t at = 0; at < program.size(); ++at) {
    const Action& action = program[at];
    const bool is_second = at > 0 && program[at - 1].with_next;
    if (is_message(action.op) || is_second || spans[at].end <= spans[at].begin) continue;
    const double begin = x(spans[at].begin), wide = x(spans[at].end) - begin;
    const bool is_other_chunk = action.stage / panel.schedule->ranks % 2 == 1 ||
                                (panel.schedule->lanes.size() > 1 && action.microbatch % 2 == 1);
    const Colour& colour = colour_of(action);
    std::string name = to_text(action);
    if (action.with_next) name += to_text(program[at + 1]);
    add("<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{}\" fill=\"{}\" class=\"a\">"
        "<title>{}: {:g} to {:g}</title></rect>\n",
        begin, top, wide, row - gap, is_other_chunk ? colour.second : colour.first, escaped(name),
        spans[at].begin, spans[at].end);
    std::string number = action.microbatch < 0 ? "" : fmt::format("{}", action.microbatch);
    if (action.with_next) number += fmt::format(" | {}", program[at + 1].microbatch);
    if (wide < 7.5 * static_cast<double>(number.size())) continue;
    add("<text x=\"{:.2f}\" y=\"{:.1f}\" class=\"n\"{}>{}</text>\n", begin + wide / 2,
        top + row / 2 + 2, is_other_chunk ? " fill=\"#222\"" : " fill=\"#fff\"", number);
  }
}

// The n-th send of a channel belongs to its n-th receive.
void Drawing::draw_messages(const Panel& panel, double top) {
  using Key = std::tuple<size_t, size_t, bool>;  // from, to, is it a gradient
  std::map<Key, std::vector<double>> sent;
  std::map<Key, size_t> taken;
  const auto middle = [&](size_t rank) {
    return top + row * static_cast<double>(rank) + (row - gap) / 2;
  };
  const auto each = [&](const auto& visit) {
    for (size_t rank = 0; rank < panel.schedule->program.size(); ++rank) {
      const std::vector<Action>& program = panel.schedule->program[rank];
      for (size_t at = 0; at < program.size(); ++at) {
        if (is_message(program[at].op)) visit(rank, program[at], panel.result->timeline[rank][at]);
      }
    }
  };
  each([&](size_t rank, const Action& action, const Span& span) {
    const auto peer = static_cast<size_t>(action.peer);
    if (action.op == Op::SendY) sent[{rank, peer, false}].push_back(span.begin);
    if (action.op == Op::SendDx) sent[{rank, peer, true}].push_back(span.begin);
  });
  each([&](size_t rank, const Action& action, const Span& span) {
    if (action.op != Op::RecvX && action.op != Op::RecvDy) return;
    const bool is_gradient = action.op == Op::RecvDy;
    const Key key{static_cast<size_t>(action.peer), rank, is_gradient};
    const size_t index = taken[key]++;
    if (index >= sent[key].size()) return;
    add("<line x1=\"{:.2f}\" y1=\"{:.1f}\" x2=\"{:.2f}\" y2=\"{:.1f}\" class=\"{}\"/>\n",
        x(sent[key][index]), middle(std::get<0>(key)), x(span.end), middle(rank),
        is_gradient ? "g" : "y");
  });
}

void Drawing::draw_axis(double at) {
  if (last_ <= 0) return;
  double step = std::pow(10, std::floor(std::log10(last_ / 5)));
  while (last_ / step > 12) step *= last_ / step > 24 ? 5 : 2;
  for (int tick = 0; tick * step <= last_ * (1 + 1e-9); ++tick) {
    add("<line x1=\"{0:.2f}\" y1=\"{1:.1f}\" x2=\"{0:.2f}\" y2=\"{2:.1f}\" stroke=\"#999\"/>"
        "<text x=\"{0:.2f}\" y=\"{3:.1f}\" text-anchor=\"middle\">{4:g}</text>\n",
        x(tick * step), at, at + 4, at + 15, tick * step);
  }
}

void Drawing::draw_memory(const Panel& panel, double top) {
  const double most = peak_bytes(panel);
  if (most <= 0) return;
  const double bottom = top + memory_height;
  const auto y = [&](double bytes) { return bottom - bytes / most * (memory_height - 8); };
  add("<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>"
      "<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">kept</text>"
      "<line x1=\"{}\" y1=\"{:.1f}\" x2=\"{}\" y2=\"{:.1f}\" stroke=\"#ccc\"/>\n",
      left - 6, y(most) + 4, memory_text(panel, most), left - 6, bottom, left, bottom, left + plot,
      bottom);
  for (size_t rank = 0; rank < panel.result->memory.size(); ++rank) {
    std::string path;
    double before = 0;
    for (const MemoryPoint& point : panel.result->memory[rank]) {
      fmt::format_to(std::back_inserter(path), "{:.2f},{:.1f} {:.2f},{:.1f} ", x(point.at),
                     y(before), x(point.at), y(point.bytes));
      before = point.bytes;
    }
    add("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.2\">"
        "<title>rank {}: at most {}</title></polyline>\n",
        path, line_colours[rank % line_colours.size()], rank,
        memory_text(panel, panel.result->ranks[rank].peak_bytes));
  }
}

std::string Drawing::text() && {
  return fmt::format(
             "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:g}\" height=\"{1:g}\" "
             "viewBox=\"0 0 {0:g} {1:g}\" font-family=\"Helvetica, Arial, sans-serif\" "
             "font-size=\"11\" fill=\"#333\">\n"
             "<defs><pattern id=\"idle\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\">"
             "<rect width=\"6\" height=\"6\" fill=\"#f4f4f4\"/>"
             "<path d=\"M0 6 L6 0\" stroke=\"#d8d8d8\"/></pattern></defs>\n"
             "<style>.t{{font-size:15px;font-weight:bold}} .a{{stroke:#fff;stroke-width:.6}} "
             ".n{{text-anchor:middle;font-size:10px;pointer-events:none}} "
             ".y{{stroke:#1b4f8a;stroke-width:.6;opacity:.45}} "
             ".g{{stroke:#a33c12;stroke-width:.6;opacity:.45}}</style>\n"
             "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
             width, y_) +
         body_ + "</svg>\n";
}

}  // namespace

std::string svg(const std::vector<Panel>& panels) { return Drawing(panels).text(); }

}  // namespace trireme::sim
