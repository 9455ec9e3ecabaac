// SPDX-License-Identifier: Apache-2.0
// Stages of a pipeline whose compute differs so much that another cut of the layers would be
// faster.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <numeric>

#include "analysis/pipeline_bubble.h"
#include "analysis/rules/rule.h"
#include "spec/plan.h"

namespace trireme::analysis {
namespace {

constexpr double min_imbalance = 0.1;  // the largest stage above the mean
constexpr double min_gain = 0.05;      // of the largest stage, by moving one layer

// Returns the number of layers by pp coordinate; empty if the plan does not tell.
std::vector<int> layers_by_rank(const RunRecord& run, size_t ranks) {
  if (!run.plan.is_object()) return {};
  try {
    const spec::Plan plan = spec::plan_from_json(run.plan);
    if (plan.schedule.lanes.size() != 1) return {};
    const int layers = static_cast<int>(plan.recompute.size());
    std::vector<int> found(ranks, 0);
    for (int layer = 0; layer < layers; ++layer) {
      ++found.at(static_cast<size_t>(spec::rank_of_layer(plan, layer)));
    }
    return found;
  } catch (const std::exception&) {
    return {};  // a plan of another version
  }
}

std::string list_text(const std::vector<int>& values) {
  std::string text;
  for (const int value : values) text += fmt::format("{}{}", text.empty() ? "" : ", ", value);
  return text;
}

}  // namespace

Findings find_stage_imbalance(const Facts& facts) {
  const RankView& view = facts.short_windows;
  if (view.windows() < 3) return {};
  const std::vector<double> seconds = stage_seconds(view);
  if (seconds.size() < 2) return {};
  const auto slowest = std::max_element(seconds.begin(), seconds.end());
  const auto fastest = std::min_element(seconds.begin(), seconds.end());
  const double middle =
      std::accumulate(seconds.begin(), seconds.end(), 0.0) / static_cast<double>(seconds.size());
  if (!(*slowest > (1 + min_imbalance) * middle)) return {};
  const std::vector<int> layers = layers_by_rank(facts.run, seconds.size());
  if (layers.empty()) return {};
  const auto stage = static_cast<size_t>(slowest - seconds.begin());
  if (layers[stage] < 2) return {};
  // Embedding and head are layers, too; a block is taken for the mean layer of its stage.
  const double layer = *slowest / layers[stage];
  const double improved = std::max(*slowest - layer, *fastest + layer);
  if (improved > (1 - min_gain) * *slowest) return {};
  const double step = step_in(view, {0, view.windows()});
  Finding finding{.cause = Cause::stage_imbalance,
                  .share = std::max(0.0, (*slowest - middle) / step),
                  .stage = static_cast<int>(stage)};
  finding.title = fmt::format("stage {} computes {} longer than the mean stage", stage,
                              percent_text(*slowest / middle - 1));
  std::string by_stage;
  for (const double of_stage : seconds) {
    by_stage += (by_stage.empty() ? "" : ", ") + seconds_text(of_stage);
  }
  finding.evidence = {
      fmt::format("compute of a step by stage: {}", by_stage),
      fmt::format("layers by stage, embedding and head included: {}", list_text(layers))};
  finding.advice = fmt::format(
      "move layers away from stage {}: parallelism.pipeline_parallel_first_layers, or remove that "
      "key for the balanced cut",
      stage);
  return {std::move(finding)};
}

}  // namespace trireme::analysis
