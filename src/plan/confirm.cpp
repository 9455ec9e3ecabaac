// SPDX-License-Identifier: Apache-2.0
#include "plan/confirm.h"

#include <algorithm>

#include "base/error.h"
#include "plan/collective.h"
#include "plan/search.h"
#include "sim/sim.h"

namespace trireme::plan {
namespace {

// Seconds of a stage's layers, as the simulator wants them.
sim::Costs stage_costs(const spec::ModelSpec& model, const spec::Plan& plan,
                       const LayerCosts& costs) {
  sim::Costs all;
  for (int stage = 0; stage < plan.stages(); ++stage) {
    sim::StageSeconds sum{0, 0, 0, 0, 0, 0, 0};
    const spec::LayerRange range = spec::layers_of_stage(model, plan, stage);
    for (int layer = range.first; layer < range.last; ++layer) {
      const spec::LayerSpec& spec = model.layers[static_cast<size_t>(layer)];
      const LayerCost& c = std::holds_alternative<spec::EmbeddingSpec>(spec) ? costs.embedding
                           : std::holds_alternative<spec::HeadSpec>(spec)    ? costs.head
                                                                             : costs.block;
      sum.f += c.f + c.f_tp;
      sum.b += c.b + c.b_tp + c.r + c.r_tp;
      sum.w += c.w;
    }
    sum.bw = sum.b + sum.w;
    sum.fb = sum.f + sum.bw;
    all.seconds.push_back(sum);
    all.output_bytes.push_back(costs.block.input);
  }
  return all;
}

double simulated_step(const Job& job, const spec::Machine& machine, const Layout& l,
                      const spec::Plan& plan, const LayerCosts& costs) {
  const int64_t stride = int64_t{l.tp} * l.cp * (l.placement == Placement::dp_inside ? l.dp : 1);
  const double bytes = costs.block.input / (l.sequence_parallel ? 1 : l.tp);
  const sim::Links links{{{.latency = message_seconds(machine, stride, bytes)}}, {}};
  sim::Costs stages = stage_costs(job.model, plan, costs);
  return sim::simulate(plan.schedule, stages, links, {.send_buffers = plan.send_buffers}).step_time;
}

spec::Plan engine_plan(const Job& job, const Stack& stack, const Layout& l) {
  return spec::parallel_plan(job.model, one_rank_of(job, stack, l), split_of(stack, l),
                             job.backend);
}

double bytes_of(const spec::Plan& plan, const spec::Machine& machine) {
  return static_cast<double>(plan.predicted.largest().total()) + machine.processor.reserved_bytes;
}

}  // namespace

spec::SplitOptions split_of(const Layout& l) {
  spec::SplitOptions split;
  split.tp = l.tp;
  split.pp = l.pp;
  (l.zero > 0 ? split.zero : split.dp) = l.dp;
  split.schedule = std::string(name_of(l.pipe));
  split.chunks = l.chunks;
  split.sequence_parallel = l.sequence_parallel && l.tp > 1;
  split.residency = {.params = l.zero >= 3, .grads = l.zero >= 2, .optim = l.zero >= 1};
  // Whole gradients of a step are not kept where they are sharded.
  if (l.zero >= 2) split.reduce = spec::ReduceWhen::each;
  split.keep_params = l.zero >= 3 && l.pp > 1;
  return split;
}

spec::OneRankOptions one_rank_of(const Job& job, const Layout& l) {
  spec::OneRankOptions options;
  options.recipe = spec::recipe_from_name(l.precision == Precision::fp32 ? "fp32" : "bf16");
  options.recompute = l.recompute;
  options.microbatch_sequences = l.micro_batch;
  options.microbatches = static_cast<int>(l.micro_batches(job));
  options.seq_len = job.seq_len;
  return options;
}

spec::SplitOptions split_of(const Stack& stack, const Layout& l) {
  spec::SplitOptions split = split_of(l);
  if (stack.reduce_bytes < stack.grad_bytes) split.reduce_dtype = base::DType::bf16;
  return split;
}

spec::OneRankOptions one_rank_of(const Job& job, const Stack& stack, const Layout& l) {
  spec::OneRankOptions one = one_rank_of(job, l);
  one.recipe = recipe_of(stack, l.precision);
  one.master = master_of(stack, l.precision);
  return one;
}

double engine_bytes(const Job& job, const spec::Machine& machine, const Stack& stack,
                    const Layout& layout) {
  return bytes_of(engine_plan(job, stack, layout), machine);
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
  // Another program's memory and stages are not those of a plan.
  if (!result.problem.empty() || !stack.is_engine()) return result;
  try {
    result.plan = engine_plan(job, stack, layout);
  } catch (const base::ConfigError& error) {
    result.problem = error.what();
    return result;
  }
  result.has_plan = true;
  result.bytes = bytes_of(result.plan, machine);
  if (layout.pp > 1) {
    const LayerCosts& costs = pricer.layers(layout);
    const double step = simulated_step(job, machine, layout, result.plan, costs);
    const double priced = price.at(Term::bubble) + price.at(Term::messages);
    double others = 0;
    for (const Term term : {Term::data, Term::optimizer, Term::jitter, Term::rest, Term::host}) {
      others += price.at(term);
    }
    result.seconds = step + others;
    result.bubble = std::max(0.0, step - (price.seconds - others - priced));
  }
  return result;
}

}  // namespace trireme::plan
