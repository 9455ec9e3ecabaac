// SPDX-License-Identifier: Apache-2.0
#include "plan/search/confirm.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "plan/price/collective.h"
#include "plan/search/search.h"
#include "sim/sim.h"

namespace trireme::plan {
namespace {

// The costs of a plan's layers: some blocks may recompute and others not.
struct PlanCosts {
  const spec::ModelSpec& model;
  const spec::Plan& plan;
  BlockKinds kinds;
  LayerCosts costs, plain;  // of blocks that recompute, and of those that do not

  PlanCosts(const Job& job, const Stack& stack, const spec::Plan& of, Pricer& pricer)
      : model(job.model), plan(of), kinds(block_kinds(job, stack, of.layout)) {
    Layout all = plan.layout, none = plan.layout;
    all.recompute_blocks = none.recompute_blocks = -1;
    none.recompute = spec::Recompute::none;
    plain = pricer.layers(none);
    costs = pricer.layers(all);
  }

  const LayerCost& of_layer(int layer) const {
    const auto at = static_cast<size_t>(layer);
    const spec::LayerSpec& spec = model.layers[at];
    if (std::holds_alternative<spec::EmbeddingSpec>(spec)) return costs.embedding;
    if (std::holds_alternative<spec::HeadSpec>(spec)) return costs.head;
    const LayerCosts& of = plan.recompute[at] == spec::Recompute::none ? plain : costs;
    const bool is_other = !kinds.is_other.empty() && kinds.is_other[at - 1];
    return is_other ? of.other_block : of.block;
  }
};

// Returns the compute of a step by rank along pp.
std::vector<double> stage_seconds(const PlanCosts& of) {
  const schedule::Schedule& schedule = of.plan.schedule;
  std::vector<double> seconds(static_cast<size_t>(of.plan.mesh[spec::Axis::pp]), 0);
  for (int stage = 0; stage < of.plan.stages(); ++stage) {
    double of_microbatch = 0;
    const spec::LayerRange range = spec::layers_of_stage(of.model, of.plan, stage);
    for (int layer = range.first; layer < range.last; ++layer) {
      const LayerCost& c = of.of_layer(layer);
      of_microbatch += c.f + c.b + c.w + c.r;
    }
    for (int microbatch = 0; microbatch < schedule.microbatches; ++microbatch) {
      seconds.at(static_cast<size_t>(schedule.rank_of(stage, microbatch))) += of_microbatch;
    }
  }
  return seconds;
}

// Returns the simulator's costs of every stage.
sim::Costs stage_costs(const PlanCosts& of) {
  const spec::ModelSpec& model = of.model;
  const spec::Plan& plan = of.plan;
  sim::Costs all;
  for (int stage = 0; stage < plan.stages(); ++stage) {
    sim::StageSeconds sum{0, 0, 0, 0, 0, 0, 0};
    const spec::LayerRange range = spec::layers_of_stage(model, plan, stage);
    for (int layer = range.first; layer < range.last; ++layer) {
      const LayerCost& c = of.of_layer(layer);
      sum.f += c.f + c.f_tp + c.f_cp + c.f_ep;
      sum.b += c.b + c.b_tp + c.b_cp + c.b_ep + c.r + c.r_tp + c.r_ep;
      sum.w += c.w;
    }
    sum.bw = sum.b + sum.w;
    sum.fb = sum.f + sum.bw;
    all.seconds.push_back(sum);
    all.output_bytes.push_back(of.costs.block.input);
  }
  return all;
}

sim::Result simulated(const spec::Machine& machine, const Layout& l, const PlanCosts& of,
                      bool has_timeline) {
  const int64_t stride =
      int64_t{l.tp} * l.cp * (l.placement == Placement::dp_inside ? l.data_ranks() : 1);
  const double bytes = of.costs.block.input / (l.sequence_parallel ? 1 : l.tp);
  const sim::Links links{{{.latency = message_seconds(machine, stride, bytes)}}, {}};
  sim::Costs stages = stage_costs(of);
  return sim::simulate(of.plan.schedule, stages, links,
                       {.send_buffers = of.plan.layout.send_buffers, .timeline = has_timeline});
}

double bytes_of(const spec::Plan& plan, const spec::Machine& machine) {
  return static_cast<double>(plan.predicted.largest().total()) + machine.processor.reserved_bytes;
}

// Replaces the pipeline's part of the price by the simulated one.
void simulate_pipeline(const spec::Machine& machine, const Layout& layout, const Price& price,
                       const PlanCosts& costs, Confirmed& result) {
  const double step = simulated(machine, layout, costs, false).step_time;
  const double priced = price.at(Term::bubble) + price.at(Term::messages);
  double others = 0;
  for (const Term term : {Term::data, Term::optimizer, Term::jitter, Term::rest, Term::host}) {
    others += price.at(term);
  }
  result.seconds = step + others;
  result.bubble = std::max(0.0, step - (price.seconds - others - priced));
}

}  // namespace

Price confirmed_price(const Price& price, const Confirmed& confirmed) {
  Price result = price;
  if (confirmed.seconds == price.seconds) return result;
  const auto term = [&result](Term of) -> double& {
    return result.seconds_of[static_cast<size_t>(of)];
  };
  term(Term::messages) = 0;
  term(Term::bubble) = confirmed.bubble;
  result.seconds = confirmed.seconds;
  double sum = 0, passes = 0;
  for (const double seconds : result.seconds_of) sum += seconds;
  constexpr std::array<Term, 7> of_passes = {Term::forward, Term::backward, Term::recompute,
                                             Term::ends,    Term::tensor,   Term::context,
                                             Term::expert};
  for (const Term of : of_passes) passes += term(of);
  // The simulated slowest rank has less to compute than the priced one: its passes are shorter.
  const double excess = sum - confirmed.seconds;
  if (confirmed.bubble > 0 || passes <= excess) return result;
  for (const Term of : of_passes) term(of) *= 1 - excess / passes;
  return result;
}

double engine_bytes(const Job& job, const spec::Machine& machine, const Stack& /*stack*/,
                    const Layout& layout) {
  const spec::Plan plan = spec::solve_or_throw(job.model, workload_of(job), layout, job.backend);
  return bytes_of(plan, machine);
}

Confirmed confirm(const Job& job, const spec::Machine& machine, const Stack& stack,
                  const Layout& layout) {
  Pricer pricer(job, machine, stack);
  const Price price = pricer.price(layout);
  Confirmed result;
  result.seconds = price.seconds;
  result.bubble = price.at(Term::bubble);
  result.bytes = price.bytes;
  result.problem = missing_in_engine(job, layout);
  // The engine's plan does not describe memory and stages of another program.
  if (!result.problem.empty() || !stack.is_engine()) return result;
  spec::Solved solved = spec::solve(job.model, workload_of(job), layout, job.backend);
  if (!solved.broken.empty()) {
    result.problem = spec::to_text(solved.broken.front());
    return result;
  }
  result.plan = std::move(solved.plan);
  result.has_plan = true;
  result.bytes = bytes_of(result.plan, machine);
  const PlanCosts costs(job, stack, result.plan, pricer);
  result.stage_seconds = stage_seconds(costs);
  if (layout.pp > 1) simulate_pipeline(machine, layout, price, costs, result);
  return result;
}

sim::Result play_pipeline(const Job& job, const spec::Machine& machine, const Stack& stack,
                          const spec::Plan& plan, const Layout& layout) {
  Pricer pricer(job, machine, stack);
  return simulated(machine, layout, PlanCosts(job, stack, plan, pricer), true);
}

}  // namespace trireme::plan
