// SPDX-License-Identifier: Apache-2.0
#include "spec/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "schedule/catalogue.h"
#include "schedule/lives.h"
#include "spec/experts/expert_rows.h"
#include "spec/memory/predict.h"
#include "spec/parallel/pipeline_parallel.h"
#include "spec/parallel/stage_cut.h"

namespace trireme::spec {
namespace {

Sizes mesh_of(const ModelSpec& model, const Layout& l) {
  Sizes mesh;
  mesh[Axis::pp] = l.pp;
  mesh[Axis::dp] = l.dp_replicate;
  mesh[Axis::zero] = l.dp_shard;
  mesh[Axis::cp] = l.cp;
  mesh[Axis::tp] = l.tp;
  if (moe_of(model) == nullptr) return mesh;
  const std::optional<ExpertSizes> experts = expert_sizes(l);
  if (!experts) return mesh;  // the rule ep.ranks is violated
  mesh[Axis::edp] = experts->edp;
  mesh[Axis::ezero] = experts->ezero;
  mesh[Axis::ep] = l.ep;
  mesh[Axis::etp] = l.etp;
  return mesh;
}

Residency residency_of(const Layout& l) {
  return {.params = l.shards_params(), .grads = l.shards_grads(), .optim = l.shards_optimizer()};
}

std::vector<Recompute> recompute_by_layer(const ModelSpec& model, const Layout& l) {
  std::vector<Recompute> all(model.layers.size(), Recompute::none);
  const int blocks = model.blocks();
  const int some = l.recompute_blocks < 0 ? blocks : std::min(blocks, l.recompute_blocks);
  for (int block = 0; block < some; ++block) all[static_cast<size_t>(block) + 1] = l.recompute;
  return all;
}

schedule::Schedule make_schedule(const Layout& l) {
  const auto microbatches = static_cast<int>(l.rank_microbatches());
  if (l.custom_schedule) return schedule::add_missing(*l.custom_schedule);
  if (l.has_one_stage()) return schedule::add_missing(schedule::one_f_one_b(1, microbatches));
  const auto made = schedule::generate(l.schedule, {l.pp, microbatches, l.chunks});
  TRIREME_CHECK(made, "{}", made.reason());
  return schedule::add_missing(made.value());
}

// Returns the first layers of stages whose FLOPs are as equal as possible.
std::vector<int> priced_cut(const ModelSpec& model, const Plan& plan, const Backend& backend) {
  const int stages = plan.schedule.stages(), layers = static_cast<int>(model.layers.size());
  if (stages == 1) return {0};
  std::vector<double> costs;
  LocalShape whole = local_shape_of(plan);
  whole.mesh = {};
  whole.sequence_parallel = false;
  whole.tokens = plan.microbatch_tokens();
  whole.ulysses = 1;
  for (int layer = 0; layer < layers; ++layer) {
    const Facts f = facts(model, layer, whole, plan.recipe,
                          plan.recompute[static_cast<size_t>(layer)], backend);
    double flops = 0;
    for (const auto* ops : {&f.f, &f.b, &f.w, &f.r}) {
      for (const OpCost& op : *ops) flops += op.flops;
    }
    costs.push_back(flops);
  }
  return balanced_cut(costs, stages);
}

}  // namespace

int64_t default_head_chunk(const Backend& backend, base::DType dtype, int64_t vocab,
                           int64_t tokens) {
  constexpr int64_t row_grain = 128;
  const int64_t max = std::max(backend.logits_bytes / (vocab * base::size_of(dtype)), row_grain);
  const int64_t chunks = (tokens + max - 1) / max;
  return base::round_up((tokens + chunks - 1) / chunks, row_grain);
}

LocalShape local_shape_of(const Plan& plan) {
  return {.tokens = plan.rank_tokens(),
          .sequences = plan.layout.micro_batch,
          .seq_len = plan.seq_len,
          .head_chunk_rows = plan.head_chunk_rows,
          .ffn_rows = plan.layout.ffn_rows,
          .has_documents = plan.document_mask,
          .mesh = plan.mesh,
          .sequence_parallel = plan.layout.sequence_parallel,
          .row_budget = plan.layout.row_budget,
          .expert_capacity = plan.layout.expert_capacity,
          .expert_grain = expert_grain(plan.recipe),
          .ulysses = std::max(plan.layout.ulysses, 1),
          .slices = plan.layout.context_slices,
          .is_ring = has_ring(plan.layout.context_kind)};
}

LayerRange layers_of_stage(const ModelSpec& model, const Plan& plan, int stage) {
  TRIREME_CHECK(stage >= 0 && stage < plan.stages(), "stage {} of {}", stage, plan.stages());
  const auto at = static_cast<size_t>(stage);
  const bool is_last = stage + 1 == plan.stages();
  return {plan.first_layer_of_stage[at],
          is_last ? static_cast<int>(model.layers.size()) : plan.first_layer_of_stage[at + 1]};
}

int rank_of_layer(const Plan& plan, int layer) {
  const std::vector<int>& cut = plan.first_layer_of_stage;
  const auto behind = std::upper_bound(cut.begin(), cut.end(), layer);
  return plan.schedule.lanes.front()[static_cast<size_t>(behind - cut.begin()) - 1];
}

std::vector<int> layers_of_rank(const ModelSpec& model, const Plan& plan, int pp_rank) {
  std::vector<int> layers;
  for (const int stage : schedule::stages_of(plan.schedule, pp_rank)) {
    const LayerRange range = layers_of_stage(model, plan, stage);
    for (int layer = range.first; layer < range.last; ++layer) layers.push_back(layer);
  }
  return layers;
}

Plan unscheduled_plan(const ModelSpec& model, const Workload& work, const Layout& l,
                      const Backend& backend) {
  Plan plan;
  plan.layout = l;
  plan.seq_len = work.seq_len;
  plan.document_mask = work.document_mask;
  plan.inference = work.inference;
  plan.keeps_losses = work.keeps_losses;
  plan.mesh = mesh_of(model, l);
  plan.zero = residency_of(l);
  plan.recipe = recipe_of(l);
  plan.optimizer = {l.optimizer, l.master_dtype};
  plan.recompute = recompute_by_layer(model, l);
  plan.head_chunk_rows = l.head_chunk_rows != 0
                             ? l.head_chunk_rows
                             : default_head_chunk(backend, plan.recipe.storage,
                                                  vocab_of(model) / l.tp, plan.rank_tokens());
  plan.schedule.microbatches = static_cast<int>(l.rank_microbatches());
  return plan;
}

namespace {

// REQUIRES: a settled layout that breaks no rule.
Plan derived_plan(const ModelSpec& model, const Workload& work, const Layout& l,
                  const Backend& backend) {
  Plan plan = unscheduled_plan(model, work, l, backend);
  plan.schedule = make_schedule(l);
  plan.first_layer_of_stage =
      l.first_layers.empty() ? priced_cut(model, plan, backend) : l.first_layers;
  return plan;
}

std::string listed(const std::vector<std::string>& broken, const ModelSpec& model) {
  return fmt::format("the plan for model '{}' breaks these rules:\n  {}", model.name,
                     fmt::join(broken, "\n  "));
}

std::vector<std::string> texts_of(const std::vector<Broken>& broken) {
  std::vector<std::string> texts;
  for (const Broken& one : broken) texts.push_back(to_text(one));
  return texts;
}

}  // namespace

Solved solve(const ModelSpec& model, const Workload& work, const Layout& asked,
             const Backend& backend, int64_t ranks) {
  Settled settled = settle(sizes_of(model), work, ranks, asked);
  Solved solved;
  solved.plan.layout = settled.layout;
  solved.broken = std::move(settled.broken);
  if (!solved.broken.empty()) return solved;
  solved.plan = derived_plan(model, work, settled.layout, backend);
  solved.plan.predicted = predict(model, solved.plan, backend);
  return solved;
}

Plan solve_or_throw(const ModelSpec& model, const Workload& work, const Layout& layout,
                    const Backend& backend) {
  Solved solved = solve(model, work, layout, backend);
  if (!solved.broken.empty()) throw base::ConfigError(listed(texts_of(solved.broken), model));
  return std::move(solved.plan);
}

void check_plan(const ModelSpec& model, const Plan& plan) {
  const Settled settled = settle(sizes_of(model), plan.workload(), 0, plan.layout);
  std::vector<std::string> broken = texts_of(settled.broken);
  const auto demand = [&broken](bool holds, std::string rule) {
    if (!holds) broken.push_back(std::move(rule));
  };
  const bool is_legal = broken.empty();
  demand(!is_legal || settled.layout == plan.layout, "plan: its layout has fields without a value");
  demand(plan.mesh == mesh_of(model, plan.layout), "plan: its mesh is not that of its layout");
  demand(plan.zero == residency_of(plan.layout), "plan: its shards are not those of its layout");
  demand(plan.layout.precision != Precision::fp4 && plan.recipe == recipe_of(plan.layout) &&
             plan.optimizer.master == plan.layout.master_dtype,
         "plan: its number formats are not those of its layout");
  demand(plan.optimizer.kind == plan.layout.optimizer,
         "plan: its optimizer is not that of its layout");
  demand(plan.head_chunk_rows >= 1,
         fmt::format("head_chunk_rows = {}: at least 1", plan.head_chunk_rows));
  demand(plan.recompute == recompute_by_layer(model, plan.layout),
         fmt::format("plan: {} recompute policies for {} layers that are not those of its layout",
                     plan.recompute.size(), model.layers.size()));
  if (is_legal) check_stages(model, plan, [&](const std::string& rule) { demand(false, rule); });
  if (!broken.empty()) throw base::ConfigError(listed(broken, model));
}

}  // namespace trireme::spec
