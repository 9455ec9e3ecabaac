// SPDX-License-Identifier: Apache-2.0
// The legend of a panel: one entry for every colour, line and mark that it contains.
#include <algorithm>
#include <vector>

#include "sim/svg_parts.h"

namespace trireme::sim {
namespace {

constexpr double swatch = 12, line_height = 18;

struct UsedColour {
  const Colour* colour;
  bool dark = false, light = false;
};

std::vector<UsedColour> used_colours(const Panel& panel) {
  std::vector<UsedColour> used;
  for_each_cell(panel, [&](size_t rank, size_t at) {
    const schedule::Action& action = panel.schedule->program[rank][at];
    const Colour* colour = &colour_of(action);
    auto found = std::ranges::find(used, colour, &UsedColour::colour);
    if (found == used.end()) found = used.insert(used.end(), {colour});
    (is_light(*panel.schedule, action) ? found->light : found->dark) = true;
  });
  return used;
}

// Entries from left to right, in as many lines as they need.
class Legend {
 public:
  Legend(Canvas& canvas, double top) : canvas_(canvas), top_(top) {}

  // draw(x, y) draws the symbol, `symbol_width` wide, whose upper left corner is at x, y.
  template <typename Draw>
  void entry(double symbol_width, std::string_view name, const Draw& draw) {
    constexpr double letter = 6.2;
    const double space = symbol_width > 0 ? symbol_width + 4 : 0;
    const double needs = space + letter * static_cast<double>(name.size()) + 16;
    if (x_ > left && x_ + needs > left + plot_width) {
      x_ = left;
      top_ += line_height;
    }
    draw(x_, top_);
    canvas_.text(x_ + space, top_ + 10, name);
    x_ += needs;
  }
  double bottom() const { return top_ + line_height; }

 private:
  Canvas& canvas_;
  double top_, x_ = left;
};

std::string_view shades_text(const schedule::Schedule& schedule) {
  if (schedule.lanes.size() > 1) {
    return "dark, light: even micro-batches run from the first rank to the last, odd ones back";
  }
  return schedule.stages() > 2 * schedule.ranks ? "dark, light: odd, even chunks of a rank"
                                                : "dark, light: first, second chunk of a rank";
}

}  // namespace

double draw_legend(Canvas& canvas, const Panel& panel, double top) {
  Legend legend(canvas, top);
  bool has_both = false, has_pairs = false;
  for (const UsedColour& used : used_colours(panel)) {
    const double count = used.dark && used.light ? 2 : 1;
    has_both = has_both || used.light;
    legend.entry(count * swatch, used.colour->name, [&](double x, double y) {
      if (used.dark) canvas.rect(x, y, swatch, swatch, used.colour->dark);
      if (used.light) canvas.rect(x + (count - 1) * swatch, y, swatch, swatch, used.colour->light);
    });
  }
  for (const auto& program : panel.schedule->program) {
    for (const schedule::Action& action : program) has_pairs = has_pairs || action.with_next;
  }
  legend.entry(swatch, "idle",
               [&](double x, double y) { canvas.rect(x, y, swatch, swatch, "url(#idle)"); });
  const std::vector<bool> in_f = stages_with_backward_in_f(panel);
  if (std::ranges::find(in_f, true) != in_f.end()) {
    legend.entry(swatch, "F that contains the backward", [&](double x, double y) {
      canvas.rect(x, y, swatch, swatch, f_colour.dark);
      canvas.rect(x, y + swatch - 4, swatch, 4, bw_colour.dark);
    });
  }
  if (schedule::has_messages(*panel.schedule)) {
    using Line = std::pair<const char*, const char*>;
    for (const Line& line : {Line{"y", "activations sent"}, Line{"g", "gradients sent"}}) {
      legend.entry(swatch, line.second, [&](double x, double y) {
        canvas.add("<line x1=\"{:.2f}\" y1=\"{:.1f}\" x2=\"{:.2f}\" y2=\"{:.1f}\" class=\"{}\"/>\n",
                   x, y + 2, x + swatch, y + 10, line.first);
      });
    }
  }
  const auto nothing = [](double, double) {};
  if (has_both) legend.entry(0, shades_text(*panel.schedule), nothing);
  legend.entry(0,
               has_pairs ? "numbers: micro-batches, in a pair those of F and of BW"
                         : "numbers: micro-batches",
               nothing);
  return legend.bottom() - top;
}

}  // namespace trireme::sim
