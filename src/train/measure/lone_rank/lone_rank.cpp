// SPDX-License-Identifier: Apache-2.0
#include "train/measure/lone_rank/lone_rank.h"

#include <fmt/format.h>

#include <functional>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "plan/price/rules.h"
#include "plan/search/feasible.h"
#include "plan/search/finalists.h"
#include "plan/stack.h"
#include "schedule/lives.h"
#include "spec/layout/layout_text.h"
#include "spec/memory/predict.h"
#include "spec/parallel/pipeline_parallel.h"

namespace trireme::train {
namespace {

constexpr int64_t max_lone_ranks = 1 << 20;

// Returns the bytes of a message between stages; 0 without a pipeline.
int64_t message_bytes(const spec::ModelSpec& model, const spec::Plan& plan, int pp_rank) {
  if (plan.mesh[spec::Axis::pp] == 1) return 0;
  return base::bytes_of(spec::pipe_buffers(model, plan, pp_rank).message);
}

int64_t local_elements(const spec::Param& param, const spec::Sizes& mesh) {
  if (param.tied_copy || param.shard.shape.empty()) return 0;
  const std::vector<int64_t> shape = spec::local_shape(param.shard, mesh);
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

}  // namespace

void check_lone_rank(const spec::Layout& layout, int64_t rank) {
  if (!spec::degrees_are_in_range(layout) || layout.ranks() > max_lone_ranks) {
    throw base::ConfigError(fmt::format("--layout '{}' has too many ranks: at most {}",
                                        spec::to_text(layout), max_lone_ranks));
  }
  if (layout.ranks() == 1) {
    throw base::ConfigError(
        fmt::format("--layout '{}' has one rank: --as-rank runs one of several; leave both out to "
                    "measure a job of one rank",
                    spec::to_text(layout)));
  }
  if (rank < 0 || rank >= layout.ranks()) {
    throw base::ConfigError(fmt::format("--as-rank {}: layout '{}' has the ranks 0 to {}", rank,
                                        spec::to_text(layout), layout.ranks() - 1));
  }
}

void count_lone_rank(FitJob& job, int rank) {
  job.pp_rank = spec::coord_of(job.plan.mesh, rank)[spec::Axis::pp];
  job.stand_in_bytes =
      comm::AloneWorld::memory_bytes(message_bytes(job.model, job.plan, job.pp_rank));
}

LoneRank::LoneRank(device::Device& device, const spec::ModelSpec& model, const spec::Plan& plan,
                   int rank, bool fixed_order)
    : plan_(plan),
      world_(device, rank, static_cast<int>(plan.layout.ranks()),
             message_bytes(model, plan, spec::coord_of(plan.mesh, rank)[spec::Axis::pp])),
      group_(world_.communicator({.name = "world", .fixed_order = fixed_order})),
      mesh_(std::make_unique<comm::Mesh>(*group_, plan.mesh)) {}

bool LoneRank::has_head() const {
  return mesh_->coord()[spec::Axis::pp] == plan_.schedule.lanes.front().back();
}

void LoneRank::set_options(engine::EngineOptions& options) const {
  options.capture_ranks = true;
  if (has_head()) return;
  options.absent_tokens = plan_.layout.global_batch() * plan_.seq_len;
}

LoneRankFacts lone_rank_facts(const spec::ModelSpec& model, const spec::Plan& plan,
                              const spec::Backend& backend, int rank) {
  LoneRankFacts facts{.coord = spec::coord_of(plan.mesh, rank)};
  const int pp_rank = facts.coord[spec::Axis::pp];
  facts.stages = schedule::stages_of(plan.schedule, pp_rank);
  for (const int stage : facts.stages) {
    facts.layers.push_back(spec::layers_of_stage(model, plan, stage));
    for (const spec::Facts& layer : spec::facts_of_stage(model, plan, stage, backend)) {
      for (const spec::Param& param : layer.params) {
        facts.parameters += local_elements(param, plan.mesh);
      }
      for (const auto* ops : {&layer.f, &layer.b, &layer.w, &layer.r}) {
        for (const spec::OpCost& op : *ops) facts.hardware_flops += op.flops;
      }
    }
  }
  facts.hardware_flops *= plan.schedule.microbatches;
  facts.sent = spec::predict_traffic(model, plan, facts.coord);
  facts.memory = plan.predicted.memory.at(static_cast<size_t>(pp_rank));
  facts.stand_in_bytes = comm::AloneWorld::memory_bytes(message_bytes(model, plan, pp_rank));
  return facts;
}

LoneRankTime lone_rank_time(const spec::ModelSpec& model, const spec::Workload& work,
                            const spec::Layout& layout, const spec::Machine& machine, int rank) {
  plan::Job job;
  job.model = model;
  job.seq_len = work.seq_len;
  job.backend = plan::backend_for(machine, layout.deterministic);
  job.global_batch = plan::filled(job, layout).global_batch();
  const plan::Layout filled = plan::filled(job, layout);
  std::string why = plan::broken_rule(job, filled);
  if (why.empty()) why = plan::missing_in_machine(machine, filled.ranks(), filled.precision);
  if (!why.empty()) {
    throw base::ConfigError(
        fmt::format("--machine {}: the layout cannot be priced: {}", machine.name, why));
  }
  const plan::Proposal proposal = plan::propose(job, machine, plan::trireme_stack(), filled);
  const plan::Confirmed& confirmed = proposal.confirmed;
  if (!confirmed.has_plan) {
    throw base::ConfigError(fmt::format("--machine {}: the layout cannot be priced: {}",
                                        machine.name, confirmed.problem));
  }
  const int pp_rank = spec::coord_of(confirmed.plan.mesh, rank)[spec::Axis::pp];
  return {.machine = machine.name,
          .compute_seconds = confirmed.stage_seconds.at(static_cast<size_t>(pp_rank)),
          .update_seconds = proposal.price.at(plan::Term::optimizer),
          .step_seconds = confirmed.seconds,
          .band = proposal.band.time};
}

}  // namespace trireme::train
