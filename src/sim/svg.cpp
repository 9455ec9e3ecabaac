// SPDX-License-Identifier: Apache-2.0
// The picture for slides. Plain SVG 1.1 without references to anything outside of it.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <tuple>

#include "base/check.h"
#include "sim/svg_parts.h"

namespace trireme::sim {
namespace {

using schedule::Action;
using schedule::Op;

class Drawing {
 public:
  explicit Drawing(const std::vector<Panel>& panels);
  std::string text() && { return std::move(canvas_).document(y_); }

 private:
  void draw(const Panel& panel);
  void draw_rank_rows(const Panel& panel, double top);
  void draw_cell(const Panel& panel, size_t rank, size_t at, double top);
  void draw_numbers(const Panel& panel, size_t rank, size_t at, double top);
  void draw_messages(const Panel& panel, double top);
  void draw_axis(double at);

  TimeScale time_;
  std::vector<bool> has_backward_in_f_;  // by stage of the current panel
  double y_ = 8;
  Canvas canvas_;
};

Drawing::Drawing(const std::vector<Panel>& panels) {
  for (const Panel& panel : panels) {
    TRIREME_CHECK(panel.schedule != nullptr && panel.result != nullptr &&
                      panel.result->timeline.size() == panel.schedule->program.size(),
                  "the panel '{}' has no timeline", panel.title);
    for (const RankResult& rank : panel.result->ranks) {
      time_.last = std::max(time_.last, rank.end);
    }
    time_.is_seconds = time_.is_seconds && panel.is_seconds;
  }
  for (const Panel& panel : panels) draw(panel);
}

void Drawing::draw(const Panel& panel) {
  canvas_.text(left, y_ + 18, panel.title, " class=\"t\"");
  y_ += 26;
  y_ += draw_legend(canvas_, panel, y_) + 4;
  draw_rank_rows(panel, y_);
  has_backward_in_f_ = stages_with_backward_in_f(panel);
  const auto top_of = [top = y_](size_t rank) { return top + row * static_cast<double>(rank); };
  for_each_cell(panel, [&](size_t rank, size_t at) { draw_cell(panel, rank, at, top_of(rank)); });
  draw_messages(panel, y_);
  y_ += row * panel.schedule->ranks;
  draw_axis(y_ + 2);
  y_ += 28;
  y_ += draw_memory(canvas_, panel, time_, y_);
}

void Drawing::draw_rank_rows(const Panel& panel, double top) {
  for (size_t rank = 0; rank < panel.schedule->program.size(); ++rank, top += row) {
    canvas_.text(left - 6, top + row / 2 + 3, fmt::format("rank {}", rank), " text-anchor=\"end\"");
    canvas_.rect(left, top, time_.x(panel.result->makespan) - left, row - gap, "url(#idle)");
  }
}

void Drawing::draw_cell(const Panel& panel, size_t rank, size_t at, double top) {
  const std::vector<Action>& program = panel.schedule->program[rank];
  const Action& action = program[at];
  const Span& span = panel.result->timeline[rank][at];
  const double begin = time_.x(span.begin), wide = time_.x(span.end) - begin;
  const Colour& colour = colour_of(action);
  std::string name = to_text(action);
  if (action.with_next) name += to_text(program[at + 1]);
  canvas_.add(
      "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{}\" fill=\"{}\" class=\"a\">"
      "<title>{}: {:g} to {:g}</title></rect>\n",
      begin, top, wide, row - gap, is_light(*panel.schedule, action) ? colour.light : colour.dark,
      escaped(name), span.begin, span.end);
  if (action.op == Op::F && has_backward_in_f_[static_cast<size_t>(action.stage)]) {
    canvas_.rect(begin, top + row - gap - 5, wide, 5, bw_colour.dark);
  }
  draw_numbers(panel, rank, at, top);
}

// Writes the numbers of a pair side by side, or in a narrow cell one above the other.
void Drawing::draw_numbers(const Panel& panel, size_t rank, size_t at, double top) {
  const Action& action = panel.schedule->program[rank][at];
  if (action.microbatch < 0) return;
  const Span& span = panel.result->timeline[rank][at];
  const double begin = time_.x(span.begin), wide = time_.x(span.end) - begin;
  const double middle = begin + wide / 2;
  const char* fill = is_light(*panel.schedule, action) ? " fill=\"#222\"" : " fill=\"#fff\"";
  const auto fits = [wide](const std::string& text, double letter) {
    return wide >= letter * static_cast<double>(text.size()) + 1;
  };
  constexpr double letter = 6, small_letter = 4.6;
  const auto write = [&](const std::string& text, double y, bool is_small) {
    canvas_.text(middle, y, text, fmt::format(" class=\"{}\"{}", is_small ? 's' : 'n', fill));
  };
  const std::string first = fmt::format("{}", action.microbatch);
  if (!action.with_next) {
    const bool is_small = !fits(first, letter);
    if (fits(first, small_letter)) write(first, top + row / 2 + 2, is_small);
    return;
  }
  const std::string second = fmt::format("{}", panel.schedule->program[rank][at + 1].microbatch);
  if (const std::string both = first + " | " + second; fits(both, letter)) {
    write(both, top + row / 2 + 2, false);
  } else if (fits(first, small_letter) && fits(second, small_letter)) {
    write(first, top + 9.5, true);
    write(second, top + 19, true);
  }
}

// The n-th send of a channel belongs to its n-th receive.
void Drawing::draw_messages(const Panel& panel, double top) {
  using Key = std::tuple<size_t, size_t, bool>;  // from, to, is it a gradient
  std::map<Key, std::vector<double>> sent;
  std::map<Key, size_t> received;
  const auto middle = [&](size_t rank) {
    return top + row * static_cast<double>(rank) + (row - gap) / 2;
  };
  const auto each = [&](const auto& visit) {
    for (size_t rank = 0; rank < panel.schedule->program.size(); ++rank) {
      const std::vector<Action>& program = panel.schedule->program[rank];
      for (size_t at = 0; at < program.size(); ++at) {
        if (program[at].peer >= 0) visit(rank, program[at], panel.result->timeline[rank][at]);
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
    const size_t index = received[key]++;
    if (index >= sent[key].size()) return;
    canvas_.add("<line x1=\"{:.2f}\" y1=\"{:.1f}\" x2=\"{:.2f}\" y2=\"{:.1f}\" class=\"{}\"/>\n",
                time_.x(sent[key][index]), middle(std::get<0>(key)), time_.x(span.end),
                middle(rank), is_gradient ? "g" : "y");
  });
}

void Drawing::draw_axis(double at) {
  if (time_.last <= 0) return;
  struct Unit {
    const char* label;
    double seconds;
  };
  constexpr std::array<Unit, 3> units = {{{"s", 1}, {"ms", 1e-3}, {"µs", 1e-6}}};
  Unit unit{"time units", 1};
  if (time_.is_seconds) {
    size_t index = 0;
    while (index + 1 < units.size() && time_.last < units[index].seconds) ++index;
    unit = units[index];
  }
  const std::string label =
      time_.is_seconds ? fmt::format("time ({})", unit.label) : std::string(unit.label);
  canvas_.text(left - 12, at + 15, label, " text-anchor=\"end\"");
  const double step = tick_step(time_.last / unit.seconds);
  for (int tick = 0; tick * step <= time_.last / unit.seconds * (1 + 1e-9); ++tick) {
    const double x = time_.x(tick * step * unit.seconds);
    canvas_.add(
        "<line x1=\"{0:.2f}\" y1=\"{1:.1f}\" x2=\"{0:.2f}\" y2=\"{2:.1f}\" stroke=\"#999\"/>\n", x,
        at, at + 4);
    canvas_.text(x, at + 15, fmt::format("{:g}", tick * step), " text-anchor=\"middle\"");
  }
}

}  // namespace

std::string svg(const std::vector<Panel>& panels) { return Drawing(panels).text(); }

}  // namespace trireme::sim
