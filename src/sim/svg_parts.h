// SPDX-License-Identifier: Apache-2.0
// The parts of an SVG picture: the canvas, the scale of time, the colours of actions, the legend
// and the chart of memory. svg.cpp puts them together.
#pragma once

#include <fmt/format.h>

#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/picture.h"

namespace trireme::sim {

// Pixels. `row` is the height of a rank with the gap below it.
constexpr double picture_width = 1280, left = 64, right = 24, row = 26, gap = 4;
constexpr double plot_width = picture_width - left - right;

// Returns the text with &, < and > as entities.
std::string escaped(std::string_view text);

class Canvas {
 public:
  template <typename... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(body_), format, std::forward<Args>(args)...);
  }
  // `attributes` must begin with a space.
  void text(double x, double y, std::string_view text, std::string_view attributes = "");
  void rect(double x, double y, double width, double height, std::string_view fill);
  // Returns the whole file.
  std::string document(double height) &&;

 private:
  std::string body_;
};

// A picture has one scale for all its panels.
struct TimeScale {
  double last = 0;         // the latest time of all panels
  bool is_seconds = true;  // otherwise in units of the caller

  double x(double at) const { return left + (last > 0 ? at / last * plot_width : 0); }
};

// Returns the distance of ticks that divides [0, last] into 5 to 12 parts of a round size.
double tick_step(double last);

struct Colour {
  const char* name;
  const char* dark;   // the odd chunks of a rank, or the first lane
  const char* light;  // the even chunks, or the second lane
};
extern const Colour f_colour, bw_colour;
const Colour& colour_of(const schedule::Action&);
bool is_light(const schedule::Schedule&, const schedule::Action&);

// Calls each(rank, position) for every action that is drawn as a cell: computation that takes time.
// Of a pair only the first action is drawn.
template <typename Each>
void for_each_cell(const Panel& panel, const Each& each) {
  for (size_t rank = 0; rank < panel.schedule->program.size(); ++rank) {
    const auto& program = panel.schedule->program[rank];
    for (size_t at = 0; at < program.size(); ++at) {
      const Span& span = panel.result->timeline[rank][at];
      const bool is_second = at > 0 && program[at - 1].with_next;
      if (program[at].peer >= 0 || is_second || span.end <= span.begin) continue;
      each(rank, at);
    }
  }
}

// Returns, by stage, whether F computes the gradients, too: a stage that is the head alone does,
// and its backward takes no time.
std::vector<bool> stages_with_backward_in_f(const Panel&);

// Both return the height that they have used.
double draw_legend(Canvas&, const Panel&, double top);
// Draws nothing where memory is not known, as in measured steps.
double draw_memory(Canvas&, const Panel&, const TimeScale&, double top);

}  // namespace trireme::sim
