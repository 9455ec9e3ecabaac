// SPDX-License-Identifier: Apache-2.0
#include "engine/captured_steps.h"

#include <algorithm>

#include "base/system/rank_activity.h"
#include "schedule/lives.h"
#include "spec/parallel/pipeline_parallel.h"

namespace trireme::engine {
namespace {

// The largest step, in layers times micro-batches: a layer is about thirty kernels.
constexpr int max_captured_layers = 800;
// Muon's update of a layer has as many kernels as seven micro-batches of it.
constexpr int muon_microbatches = 7;

// The layers of the rank that has most.
int max_rank_layers(const spec::ModelSpec& model, const spec::Plan& plan) {
  int max_layers = 0;
  for (int rank = 0; rank < plan.mesh[spec::Axis::pp]; ++rank) {
    int layers = 0;
    for (const int stage : schedule::stages_of(plan.schedule, rank)) {
      const spec::LayerRange range = spec::layers_of_stage(model, plan, stage);
      layers += range.last - range.first;
    }
    max_layers = std::max(max_layers, layers);
  }
  return max_layers;
}

}  // namespace

bool is_worth_capturing(const spec::ModelSpec& model, const spec::Plan& plan) {
  const bool is_muon = plan.optimizer.kind == spec::OptimizerKind::muon;
  const int passes = plan.schedule.microbatches + (is_muon ? muon_microbatches : 0);
  return passes * max_rank_layers(model, plan) <= max_captured_layers;
}

bool CapturedSteps::launch(Kind kind, std::span<device::Stream* const> others,
                           const std::function<void()>& queue_step) {
  Step& step = graphs_[static_cast<size_t>(kind)];
  if (step.graph) {
    replayed_ = replayed_ + step.traffic;
  } else {
    const spec::TrafficTable before = traffic_();
    const base::ActivityPhaseScope prepares(base::compile_phase);
    step.graph = compute_.capture(others, queue_step);
    if (!step.graph) return false;
    step.traffic = traffic_() - before;
  }
  compute_.launch(*step.graph);
  return true;
}

bool CapturedSteps::has_any() const {
  return std::ranges::any_of(graphs_, [](const Step& step) { return step.graph != nullptr; });
}

}  // namespace trireme::engine
