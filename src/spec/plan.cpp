// SPDX-License-Identifier: Apache-2.0
#include "spec/plan.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "base/error.h"
#include "spec/predict.h"

namespace trireme::spec {
namespace {

// As many rows as the back end's share of memory holds, in chunks of equal size.
int64_t default_head_chunk(const Backend& backend, base::DType dtype, int64_t vocab,
                           int64_t tokens) {
  constexpr int64_t row_grain = 128;
  const int64_t most = std::max(backend.logits_bytes / (vocab * base::size_of(dtype)), row_grain);
  const int64_t chunks = (tokens + most - 1) / most;
  return base::round_up((tokens + chunks - 1) / chunks, row_grain);
}

constexpr int64_t most_tokens = std::numeric_limits<int32_t>::max();  // of a micro-batch

bool tokens_fit(const Plan& plan) {
  return plan.microbatch_sequences >= 1 && plan.seq_len >= 1 &&
         plan.microbatch_sequences <= most_tokens / plan.seq_len;
}

int64_t vocab_of(const ModelSpec& model) { return std::get<HeadSpec>(model.layers.back()).vocab; }

}  // namespace

LocalShape local_shape_of(const Plan& plan) {
  return {.tokens = plan.microbatch_tokens(),
          .sequences = plan.microbatch_sequences,
          .seq_len = plan.seq_len,
          .head_chunk_rows = plan.head_chunk_rows,
          .has_documents = plan.document_mask,
          .mesh = plan.mesh};
}

LayerRange layers_of_stage(const ModelSpec& model, const Plan& plan, int stage) {
  TRIREME_CHECK(stage >= 0 && stage < plan.stages(), "stage {} of {}", stage, plan.stages());
  const auto at = static_cast<size_t>(stage);
  const bool is_last = stage + 1 == plan.stages();
  return {plan.first_layer_of_stage[at],
          is_last ? static_cast<int>(model.layers.size()) : plan.first_layer_of_stage[at + 1]};
}

Plan one_rank_plan(const ModelSpec& model, const OneRankOptions& options, const Backend& backend) {
  Plan plan;
  plan.microbatch_sequences = options.microbatch_sequences;
  plan.seq_len = options.seq_len;
  plan.recipe = options.recipe;
  plan.inference = options.inference;
  plan.document_mask = options.document_mask;
  plan.recompute.assign(model.layers.size(), options.recompute);
  plan.recompute.front() = plan.recompute.back() = Recompute::none;
  plan.head_chunk_rows = options.head_chunk_rows != 0 ? options.head_chunk_rows
                         : !tokens_fit(plan)
                             ? 1  // refused below
                             : default_head_chunk(backend, plan.recipe.storage, vocab_of(model),
                                                  plan.microbatch_tokens());
  if (options.microbatches < 1) {
    throw base::ConfigError(fmt::format("{} micro-batches: at least 1", options.microbatches));
  }
  plan.schedule =
      schedule::add_tied(schedule::add_reduce(schedule::one_f_one_b(1, options.microbatches)));
  check_plan(model, plan);
  plan.predicted = predict(model, plan, backend);
  return plan;
}

void check_plan(const ModelSpec& model, const Plan& plan) {
  std::string broken;
  const auto demand = [&broken](bool holds, std::string rule) {
    if (!holds) broken += "\n  " + rule;
  };
  const auto layers = static_cast<int>(model.layers.size());
  for (const Axis axis :
       {Axis::pp, Axis::dp, Axis::zero, Axis::cp, Axis::tp, Axis::ezero, Axis::ep, Axis::etp}) {
    demand(plan.mesh[axis] == 1,
           fmt::format("{} = {}: this build runs one rank; use 1", name_of(axis), plan.mesh[axis]));
  }
  demand(plan.context == Context::none, "context parallelism needs cp > 1");
  demand(!plan.sequence_parallel, "sequence parallelism needs tp > 1");
  demand(!plan.zero.params && !plan.zero.grads && !plan.zero.optim,
         "sharded training state needs zero > 1");
  demand(plan.logical_dp == 1,
         fmt::format("logical_dp = {}: must be dp * zero = 1 here", plan.logical_dp));
  demand(plan.optimizer.name == "adamw",
         fmt::format("optimizer '{}': this build has adamw", plan.optimizer.name));
  demand(plan.optimizer == OptimizerTypes{.name = plan.optimizer.name},
         "optimizer state types: this build keeps master and moments in f32");
  demand(plan.optimizer_place == Place::device && plan.stash_place == Place::device,
         "offload to the host is not in this build; place must be device");
  demand(plan.bucket_bytes == 0, "bucket_bytes: this build has one bucket per layer; use 0");
  demand(plan.expert_capacity == 0, "expert_capacity: the model has no experts; use 0");
  demand(plan.recipe.grad == base::DType::f32 || plan.recipe.grad == base::DType::bf16,
         fmt::format("gradients in {}: use f32 or bf16", base::name_of(plan.recipe.grad)));
  demand(!plan.inference || plan.schedule.microbatches == 1,
         fmt::format("{} micro-batches: inference runs one", plan.schedule.microbatches));
  demand(plan.microbatch_sequences >= 1,
         fmt::format("{} sequences in a micro-batch: at least 1", plan.microbatch_sequences));
  demand(plan.seq_len >= 1 && plan.seq_len <= model.max_seq,
         fmt::format("seq_len = {}: from 1 to the model's {}", plan.seq_len, model.max_seq));
  demand(plan.microbatch_sequences < 1 || plan.seq_len < 1 || tokens_fit(plan),
         fmt::format("{} sequences of {} tokens in a micro-batch: at most {} tokens",
                     plan.microbatch_sequences, plan.seq_len, most_tokens));
  demand(plan.head_chunk_rows >= 1,
         fmt::format("head_chunk_rows = {}: at least 1", plan.head_chunk_rows));
  demand(static_cast<int>(plan.recompute.size()) == layers,
         fmt::format("{} recompute policies for {} layers", plan.recompute.size(), layers));
  for (size_t i = 0; i < plan.recompute.size() && i < model.layers.size(); ++i) {
    demand(
        std::holds_alternative<BlockSpec>(model.layers[i]) || plan.recompute[i] == Recompute::none,
        fmt::format("layer {}: only blocks can be recomputed", i));
  }
  demand(!plan.first_layer_of_stage.empty() && plan.first_layer_of_stage.front() == 0 &&
             plan.stages() == plan.schedule.stages(),
         fmt::format("{} stage starts for a schedule of {} stages", plan.stages(),
                     plan.schedule.stages()));
  const auto checked = schedule::check(plan.schedule, 1);
  demand(static_cast<bool>(checked), "schedule: " + checked.reason());
  if (!broken.empty()) {
    throw base::ConfigError(
        fmt::format("the plan for model '{}' breaks these rules:{}", model.name, broken));
  }
}

}  // namespace trireme::spec
