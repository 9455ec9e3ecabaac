// SPDX-License-Identifier: Apache-2.0
#include "sim/measured.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/check.h"

namespace trireme::sim {
namespace {

using schedule::Action;
using schedule::Op;

bool is_compute(Op op) { return op == Op::F || op == Op::B || op == Op::W || op == Op::BW; }

struct Mean {
  double sum = 0;
  int count = 0;
  void add(double value) {
    sum += value;
    ++count;
  }
  double value() const { return count == 0 ? 0 : sum / count; }
};

double seconds(const Span& span) { return span.end - span.begin; }

// Calls each(rank, position, action, is_second_of_pair).
template <typename Each>
void for_each_action(const schedule::Schedule& schedule, const Timeline& timeline,
                     const Each& each) {
  TRIREME_CHECK(timeline.size() == schedule.program.size(), "{} ranks of {}", timeline.size(),
                schedule.program.size());
  for (size_t rank = 0; rank < timeline.size(); ++rank) {
    const std::vector<Action>& program = schedule.program[rank];
    TRIREME_CHECK(timeline[rank].size() == program.size(), "{} actions of {} on rank {}",
                  timeline[rank].size(), program.size(), rank);
    for (size_t i = 0; i < program.size(); ++i) {
      each(rank, i, program[i], i > 0 && program[i - 1].with_next);
    }
  }
}

}  // namespace

Costs measured_costs(const schedule::Schedule& schedule, const Timeline& timeline) {
  const auto stages = static_cast<size_t>(schedule.stages());
  struct OfStage {
    Mean f, b, w, bw, fb;
  };
  std::vector<OfStage> means(stages);
  for_each_action(schedule, timeline,
                  [&](size_t rank, size_t i, const Action& action, bool is_second) {
                    OfStage& of = means[static_cast<size_t>(action.stage)];
                    const double took = seconds(timeline[rank][i]);
                    if (!is_compute(action.op)) return;
                    if (action.with_next || is_second) {
                      of.fb.add(took);
                    } else if (action.op == Op::F) {
                      of.f.add(took);
                    } else if (action.op == Op::B) {
                      of.b.add(took);
                    } else if (action.op == Op::W) {
                      of.w.add(took);
                    } else {
                      of.bw.add(took);
                    }
                  });
  Costs costs;
  for (const OfStage& of : means) {
    StageSeconds s{.f = of.f.value(), .b = of.b.value(), .w = of.w.value(), .bw = of.bw.value()};
    if (of.bw.count == 0) s.bw = s.b + s.w;
    s.fb = of.fb.count == 0 ? s.f + s.bw : of.fb.value();
    s.reduce = s.r = 0;
    costs.seconds.push_back(s);
  }
  costs.output_bytes.assign(stages, 0);
  return costs;
}

double measured_latency(const schedule::Schedule& schedule, const Timeline& timeline) {
  // By receiver's operation, stage and micro-batch.
  std::map<std::tuple<Op, int, int>, double> sent;
  for_each_action(schedule, timeline, [&](size_t rank, size_t i, const Action& action, bool) {
    const double at = timeline[rank][i].begin;
    if (action.op == Op::SendY) sent[{Op::RecvX, action.stage + 1, action.microbatch}] = at;
    if (action.op == Op::SendDx) sent[{Op::RecvDy, action.stage - 1, action.microbatch}] = at;
  });
  std::vector<double> all;
  for_each_action(schedule, timeline, [&](size_t rank, size_t i, const Action& action, bool) {
    if (action.op != Op::RecvX && action.op != Op::RecvDy) return;
    const auto from = sent.find({action.op, action.stage, action.microbatch});
    if (from == sent.end()) return;
    const Span& span = timeline[rank][i];
    all.push_back(std::max(0.0, span.end - std::max(from->second, span.begin)));
  });
  if (all.empty()) return 0;
  const auto middle = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
  std::nth_element(all.begin(), middle, all.end());
  return *middle;
}

Result measured_result(const schedule::Schedule& schedule, const Timeline& timeline) {
  Result result;
  result.ranks.resize(timeline.size());
  result.timeline = timeline;
  std::vector<bool> has_begun(timeline.size());
  double first = 0, last = 0;
  for_each_action(schedule, timeline,
                  [&](size_t rank, size_t i, const Action& action, bool is_second) {
                    ++result.actions;
                    if (!is_compute(action.op)) return;
                    const Span& span = timeline[rank][i];
                    RankResult& of = result.ranks[rank];
                    if (!has_begun[rank]) of.begin = span.begin;
                    has_begun[rank] = true;
                    of.end = std::max(of.end, span.end);
                    if (!is_second) of.busy += seconds(span);
                  });
  for (size_t rank = 0; rank < timeline.size(); ++rank) {
    const RankResult& of = result.ranks[rank];
    first = rank == 0 ? of.begin : std::min(first, of.begin);
    last = std::max(last, of.end);
    result.step_time = std::max(result.step_time, of.end - of.begin);
  }
  result.makespan = last - first;
  return result;
}

}  // namespace trireme::sim
