// SPDX-License-Identifier: Apache-2.0
#include "sim/svg_parts.h"

#include <cmath>

namespace trireme::sim {
namespace {

using schedule::Action;
using schedule::Op;

const Colour w_colour{"W weight gradient", "#4f9d5d", "#a5cfac"};
const Colour b_colour{"B input gradient", "#e08a2c", "#f3c48a"};
const Colour pair_colour{"F of one and BW of another micro-batch", "#7b5bb0", "#b7a3d6"};
const Colour r_colour{"R recompute", "#5d7c8a", "#a7bcc6"};
const Colour reduce_colour{"gradient reduction", "#888888", "#bbbbbb"};

}  // namespace

const Colour f_colour{"F forward", "#3b82c4", "#8fbbe3"};
const Colour bw_colour{"BW backward", "#d0662f", "#ebaa85"};

std::string escaped(std::string_view text) {
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

void Canvas::text(double x, double y, std::string_view text, std::string_view attributes) {
  add("<text x=\"{:.2f}\" y=\"{:.1f}\"{}>{}</text>\n", x, y, attributes, escaped(text));
}

void Canvas::rect(double x, double y, double width, double height, std::string_view fill) {
  add("<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:g}\" fill=\"{}\"/>\n", x, y,
      width, height, fill);
}

std::string Canvas::document(double height) && {
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
             ".s{{text-anchor:middle;font-size:8px;pointer-events:none}} "
             ".y{{stroke:#1b4f8a;stroke-width:.6;opacity:.45}} "
             ".g{{stroke:#a33c12;stroke-width:.6;opacity:.45}}</style>\n"
             "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
             picture_width, height) +
         body_ + "</svg>\n";
}

double tick_step(double last) {
  double step = std::pow(10, std::floor(std::log10(last / 5)));
  while (last / step > 12) step *= last / step > 24 ? 5 : 2;
  return step;
}

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
      return reduce_colour;
  }
}

bool is_light(const schedule::Schedule& schedule, const Action& action) {
  return action.stage / schedule.ranks % 2 == 1 ||
         (schedule.lanes.size() > 1 && action.microbatch % 2 == 1);
}

std::vector<bool> stages_with_backward_in_f(const Panel& panel) {
  constexpr double negligible = 0.02;
  struct OfStage {
    double forward = 0, backward = 0;
    bool has_backward = false, has_pairs = false;
  };
  std::vector<OfStage> sums(static_cast<size_t>(panel.schedule->stages()));
  for (size_t rank = 0; rank < panel.schedule->program.size(); ++rank) {
    const std::vector<Action>& program = panel.schedule->program[rank];
    for (size_t at = 0; at < program.size(); ++at) {
      OfStage& sum = sums[static_cast<size_t>(program[at].stage)];
      const Span& span = panel.result->timeline[rank][at];
      const Op op = program[at].op;
      const bool is_backward = op == Op::B || op == Op::W || op == Op::BW;
      if (op == Op::F) sum.forward += span.end - span.begin;
      if (is_backward) sum.backward += span.end - span.begin;
      sum.has_backward = sum.has_backward || is_backward;
      sum.has_pairs = sum.has_pairs || program[at].with_next;
    }
  }
  std::vector<bool> found;
  for (const OfStage& sum : sums) {
    found.push_back(sum.has_backward && !sum.has_pairs && sum.backward < negligible * sum.forward);
  }
  return found;
}

}  // namespace trireme::sim
