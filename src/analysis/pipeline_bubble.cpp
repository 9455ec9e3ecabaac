// SPDX-License-Identifier: Apache-2.0
#include "analysis/pipeline_bubble.h"

#include <algorithm>
#include <cmath>
#include <exception>

#include "analysis/statistics.h"
#include "sim/sim.h"
#include "spec/plan.h"

namespace trireme::analysis {
namespace {

// Costs of the schedule's stages such that every rank computes for its measured time. A backward
// takes twice as long as a forward.
sim::Costs costs_of(const schedule::Schedule& schedule, const std::vector<double>& by_rank) {
  sim::Costs costs = sim::uniform_costs(schedule.stages(), {}, {}, 0);
  costs.kept.clear();
  for (int stage = 0; stage < schedule.stages(); ++stage) {
    const int rank = schedule.rank_of(stage, 0);
    int stages_of_rank = 0;
    for (const int other : schedule.lanes.front()) stages_of_rank += other == rank ? 1 : 0;
    const double third =
        by_rank[static_cast<size_t>(rank)] / (3.0 * schedule.microbatches * stages_of_rank);
    costs.seconds[static_cast<size_t>(stage)] = {
        .f = third, .b = third, .w = third, .bw = 2 * third, .r = 0, .fb = 3 * third, .reduce = 0};
  }
  return costs;
}

}  // namespace

std::vector<double> stage_seconds(const RankView& view) {
  std::vector<double> seconds;
  for (const std::vector<size_t>& stage : view.stages()) {
    std::vector<double> of_ranks;
    for (const size_t rank : stage) {
      of_ranks.push_back(median(view.column(rank, obs::RankColumn::compute_seconds)));
    }
    seconds.push_back(median(std::move(of_ranks)));
  }
  return seconds;
}

double pipeline_bubble(const RunRecord& run, const RankView& view) {
  const std::vector<double> by_rank = stage_seconds(view);
  if (by_rank.size() < 2 || !run.plan.is_object()) return 0;
  for (const double seconds : by_rank) {
    if (!std::isfinite(seconds)) return 0;
  }
  try {
    const schedule::Schedule schedule = spec::plan_from_json(run.plan).schedule;
    const bool is_of_run = schedule.ranks == static_cast<int>(by_rank.size()) &&
                           schedule.lanes.size() == 1 && schedule.microbatches > 0;
    if (!is_of_run) return 0;
    const sim::Result result = sim::simulate(schedule, costs_of(schedule, by_rank), {}, {});
    double sum = 0;
    for (size_t rank = 0; rank < result.ranks.size(); ++rank) sum += result.bubble_of(rank);
    return std::max(0.0, sum / static_cast<double>(result.ranks.size()));
  } catch (const std::exception&) {
    return 0;  // a plan of another version
  }
}

}  // namespace trireme::analysis
