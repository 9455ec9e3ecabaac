// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <map>
#include <utility>

#include "base/check.h"
#include "sim/picture.h"

namespace trireme::sim {
namespace {

using schedule::Action;
using schedule::Op;
using schedule::Schedule;

constexpr char idle = '.', filling = '-';

bool is_drawn(Op op) {
  return op == Op::F || op == Op::B || op == Op::W || op == Op::BW || op == Op::R ||
         op == Op::ReduceGrads || op == Op::SyncTied;
}

char letter_of(Op op) {
  switch (op) {
    case Op::F:
      return 'F';
    case Op::B:
    case Op::BW:
      return 'B';
    case Op::W:
      return 'W';
    case Op::R:
      return 'R';
    default:
      return 'S';
  }
}

// Returns, by rank, the stages it runs, in order; the index of a stage is that of its chunk.
std::vector<std::vector<int>> chunks_of(const Schedule& schedule) {
  std::vector<std::vector<int>> chunks(schedule.program.size());
  for (int stage = 0; stage < schedule.stages(); ++stage) {
    for (const schedule::Lane& lane : schedule.lanes) {
      chunks[static_cast<size_t>(lane[static_cast<size_t>(stage)])].push_back(stage);
    }
  }
  return chunks;
}

std::string label_of(const Action& action, const std::vector<int>& chunks) {
  char letter = letter_of(action.op);
  const auto chunk = std::ranges::find(chunks, static_cast<int>(action.stage)) - chunks.begin();
  if (chunk % 2 == 1) letter = static_cast<char>(std::tolower(letter));
  return action.microbatch < 0 ? std::string(1, letter)
                               : fmt::format("{}{}", letter, action.microbatch);
}

}  // namespace

std::string grid(const Schedule& schedule, const Result& result, int columns) {
  TRIREME_CHECK(result.timeline.size() == schedule.program.size(), "a timeline of {} ranks of {}",
                result.timeline.size(), schedule.program.size());
  const std::string rank_format = fmt::format("{}", schedule.ranks - 1);
  const size_t label_width = rank_format.size() + 1;
  const double width = columns - static_cast<double>(label_width);
  TRIREME_CHECK(width >= 10, "{} columns", columns);
  double last = 0;
  for (const RankResult& rank : result.ranks) last = std::max(last, rank.end);
  // An integer number of columns per unit of time, if it fits: cells of equal costs are then
  // equally wide.
  double scale = last > 0 ? width / last : 0;
  if (scale >= 1) scale = std::floor(scale);
  const auto column = [&](double at) { return static_cast<size_t>(std::lround(at * scale)); };
  const std::vector<std::vector<int>> chunks = chunks_of(schedule);
  std::string out;
  for (size_t rank = 0; rank < schedule.program.size(); ++rank) {
    std::string line(column(last), idle);
    const std::vector<Action>& program = schedule.program[rank];
    for (size_t at = 0; at < program.size(); ++at) {
      const bool is_second = at > 0 && program[at - 1].with_next;
      if (!is_drawn(program[at].op) || is_second) continue;
      const Span& span = result.timeline[rank][at];
      const size_t begin = column(span.begin), end = std::min(column(span.end), line.size());
      if (end <= begin) continue;
      std::string label = label_of(program[at], chunks[rank]);
      if (program[at].with_next) {
        label = fmt::format("X{}/{}", program[at].microbatch, program[at + 1].microbatch);
      }
      if (label.size() > end - begin) label.resize(1);
      label.resize(end - begin, filling);
      line.replace(begin, label.size(), label);
    }
    out += fmt::format("{:>{}} {}\n", rank, label_width - 1, line);
  }
  return out;
}

std::string legend(const Schedule& schedule) {
  bool has_merged = false, has_pair = false, has_split = false, has_r = false;
  for (const auto& program : schedule.program) {
    for (const Action& action : program) {
      has_merged = has_merged || action.op == Op::BW;
      has_split = has_split || action.op == Op::B;
      has_r = has_r || action.op == Op::R;
      has_pair = has_pair || action.with_next;
    }
  }
  std::string text = "F forward, B ";
  text += has_merged && has_split
              ? "backward (if a W follows later: input gradient only), W weight gradient"
          : has_merged ? "backward"
                       : "input gradient, W weight gradient";
  if (has_r) text += ", R recompute";
  if (has_pair) text += ",\nX forward and backward overlapped";
  if (schedule.stages() * std::ssize(schedule.lanes) > schedule.ranks) {
    text += ", lower case: every second chunk of a rank";
  }
  return text + ", . idle\n";
}

std::string fault_grid(const Schedule& schedule, const schedule::Fault& fault, int columns) {
  if (fault.rank < 0) return {};
  const auto place = static_cast<size_t>(fault.position);
  std::string out;
  for (size_t rank = 0; rank < schedule.program.size(); ++rank) {
    const std::vector<Action>& program = schedule.program[rank];
    const std::string head = fmt::format("{:>3}  ", rank);
    const bool is_here = static_cast<int>(rank) == fault.rank;
    const auto word = [&](size_t at) {
      const std::string text = at < program.size() ? to_text(program[at]) : "end";
      return is_here && at == place ? fmt::format("[{}]", text) : text;
    };
    // As many actions before the place as fit into half of the line, then those after it.
    const size_t last = std::min(place, program.size());
    size_t first = last;
    std::string line = is_here && last < program.size() + 1 ? word(last) : "";
    while (first > 0 &&
           word(first - 1).size() + 1 + line.size() < static_cast<size_t>(columns) / 2) {
      --first;
      line = word(first) + (line.empty() ? "" : " ") + line;
    }
    size_t next = is_here ? last + 1 : last;
    while (next < program.size() &&
           head.size() + line.size() + 1 + word(next).size() + 8 < static_cast<size_t>(columns)) {
      line += (line.empty() ? "" : " ") + word(next++);
    }
    out += head + (first > 0 ? "... " : "") + line + (next < program.size() ? " ..." : "") + "\n";
  }
  return out;
}

}  // namespace trireme::sim
