// SPDX-License-Identifier: Apache-2.0
#include "spec/plan.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "base/check.h"
#include "base/error.h"
#include "schedule/catalogue.h"
#include "schedule/lives.h"
#include "spec/data_parallel.h"
#include "spec/pipeline_parallel.h"
#include "spec/predict.h"
#include "spec/stage_cut.h"
#include "spec/tensor_parallel.h"

namespace trireme::spec {
namespace {

constexpr int64_t most_tokens = std::numeric_limits<int32_t>::max();  // of a micro-batch

bool tokens_fit(const Plan& plan) {
  return plan.microbatch_sequences >= 1 && plan.seq_len >= 1 &&
         plan.microbatch_sequences <= most_tokens / plan.seq_len;
}

// Can facts() of the model's layers be computed for a micro-batch of the plan?
bool sizes_fit(const ModelSpec& model, const Plan& plan) {
  return tokens_fit(plan) &&
         activation_elements(model, static_cast<double>(plan.microbatch_tokens())) <=
             static_cast<double>(max_step_activations);
}

// Limits that no job comes near; they keep products of what a file says inside their types.
constexpr int most_workers = 1 << 16;
constexpr int most_microbatches = 1 << 20;

using Demand = std::function<void(bool holds, std::string rule)>;

void check_data_axes(const Plan& plan, const Demand& demand) {
  const int dp = plan.mesh[Axis::dp], zero = plan.mesh[Axis::zero];
  const bool in_range = dp >= 1 && zero >= 1 && dp <= most_workers && zero <= most_workers / dp;
  demand(in_range, fmt::format("dp = {}, zero = {}: at least 1 each, and {} together at most", dp,
                               zero, most_workers));
  demand(plan.prefetch >= 0, fmt::format("prefetch = {}: at least 0", plan.prefetch));
  demand(plan.reduce_dtype == base::DType::f32 || plan.reduce_dtype == base::DType::bf16,
         fmt::format("reduce_dtype = {}: use f32 or bf16", base::name_of(plan.reduce_dtype)));
  if (!in_range) return;
  const Residency& z = plan.zero;
  demand(zero > 1 || !(z.params || z.grads || z.optim), "sharded training state needs zero > 1");
  demand(zero == 1 || z.optim,
         fmt::format("zero = {} shards nothing: shard optim (ZeRO-1), or use dp", zero));
  demand((!z.grads || z.optim) && (!z.params || z.grads),
         "sharded gradients need a sharded optimizer, sharded parameters need sharded gradients");
  const int ranks = dp * zero;
  demand(!plan.inference || (ranks == 1 && plan.logical_dp == 1),
         fmt::format("dp * zero = {}, logical_dp = {}: inference runs on one rank", ranks,
                     plan.logical_dp));
  if (plan.logical_dp < 1 || plan.logical_dp > most_workers || plan.logical_dp % ranks != 0) {
    demand(false,
           fmt::format("logical_dp = {}: must be a multiple of dp * zero = {} up to {}, for "
                       "example {}",
                       plan.logical_dp, ranks, most_workers,
                       nearest_multiples(std::min(plan.logical_dp, most_workers / 2), ranks)));
    return;
  }
  const int hosted = hosted_workers(plan);
  if (plan.schedule.microbatches < 1 || plan.schedule.microbatches % hosted != 0) {
    demand(false,
           fmt::format("{} micro-batches on a rank that hosts {} workers (logical_dp / (dp * "
                       "zero)): must be a multiple, for example {}",
                       plan.schedule.microbatches, hosted,
                       nearest_multiples(plan.schedule.microbatches, hosted)));
    return;
  }
  demand(!z.grads || plan.reduce == ReduceWhen::each || worker_microbatches(plan) == 1,
         fmt::format("sharded gradients with {} micro-batches a worker: reduce must be each, "
                     "because a whole gradient lives only as long as its layer's backward",
                     worker_microbatches(plan)));
  const std::vector<std::vector<schedule::Action>>& programs = plan.schedule.program;
  const bool is_single = !z.grads && hosted == 1 && reduce_rounds(plan) == 1;
  demand(
      is_single || leaves_come_in_turn(plan, z.grads),
      "sharded gradients, several workers a rank and reduce = each need a schedule that ends the "
      "backward of a micro-batch before the gradients of the next begin: on the last stage, whose "
      "head adds to them in the forward, before its forward (1f1b does, and interleaved where "
      "micro-batches divide by pp)");
  demand(!z.grads || std::none_of(programs.begin(), programs.end(), schedule::splits_backward),
         "sharded gradients need a schedule with merged backward (BW): between B and W of a layer "
         "its whole gradient would have to be kept");
  demand(!plan.keep_params || z.params, "keep_params needs sharded parameters");
  const bool reduces = std::all_of(programs.begin(), programs.end(), [](const auto& program) {
    return std::any_of(program.begin(), program.end(), [](const schedule::Action& action) {
      return action.op == schedule::Op::ReduceGrads;
    });
  });
  demand(ranks == 1 || reduces, "a schedule for several data ranks needs ReduceGrads");
}

schedule::Schedule make_schedule(const SplitOptions& split, int microbatches) {
  schedule::Schedule schedule;
  if (split.own_schedule) {
    schedule = *split.own_schedule;
    if (schedule.microbatches != microbatches) {
      throw base::ConfigError(fmt::format("the schedule has {} micro-batches, and a rank runs {}",
                                          schedule.microbatches, microbatches));
    }
  } else if (split.pp == 1 && split.chunks == 0) {
    schedule = schedule::one_f_one_b(1, microbatches);
  } else {
    const base::Result<schedule::Schedule> made =
        schedule::generate(split.schedule, {split.pp, microbatches, split.chunks});
    if (!made) throw base::ConfigError(made.reason());
    schedule = made.value();
  }
  return schedule::add_missing(std::move(schedule));
}

// Stages with as nearly as possible the same FLOPs.
std::vector<int> priced_cut(const ModelSpec& model, const Plan& plan, const Backend& backend) {
  const int stages = plan.schedule.stages(), layers = static_cast<int>(model.layers.size());
  if (stages == 1) return {0};
  if (stages > layers) {
    const int chunks = stages / plan.schedule.ranks;
    throw base::ConfigError(fmt::format(
        "{} stages (pp = {}, {} on each rank), and '{}' has {} layers with embedding and head: at "
        "most pp = {} with as many on each, or {} stages in all",
        stages, plan.schedule.ranks, chunks, model.name, layers, std::max(1, layers / chunks),
        layers));
  }
  std::vector<double> costs;
  LocalShape whole = local_shape_of(plan);
  whole.mesh = {};
  whole.sequence_parallel = false;
  const bool fits = sizes_fit(model, plan);
  for (int layer = 0; layer < layers; ++layer) {
    if (!fits) {  // refused below
      costs.push_back(1);
      continue;
    }
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

std::string nearest_multiples(int64_t value, int64_t unit) {
  const int64_t below = value / unit * unit;
  return below < unit ? fmt::format("{}", unit) : fmt::format("{} or {}", below, below + unit);
}

int64_t usual_head_chunk(const Backend& backend, base::DType dtype, int64_t vocab, int64_t tokens) {
  constexpr int64_t row_grain = 128;
  const int64_t most = std::max(backend.logits_bytes / (vocab * base::size_of(dtype)), row_grain);
  const int64_t chunks = (tokens + most - 1) / most;
  return base::round_up((tokens + chunks - 1) / chunks, row_grain);
}

LocalShape local_shape_of(const Plan& plan) {
  return {.tokens = plan.microbatch_tokens(),
          .sequences = plan.microbatch_sequences,
          .seq_len = plan.seq_len,
          .head_chunk_rows = plan.head_chunk_rows,
          .has_documents = plan.document_mask,
          .mesh = plan.mesh,
          .sequence_parallel = plan.sequence_parallel};
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

Plan one_rank_plan(const ModelSpec& model, const OneRankOptions& options, const Backend& backend) {
  return parallel_plan(model, options, {}, backend);
}

Plan unscheduled_plan(const ModelSpec& model, const OneRankOptions& options,
                      const SplitOptions& split, const Backend& backend) {
  Plan plan;
  plan.mesh[Axis::dp] = split.dp;
  plan.mesh[Axis::zero] = split.zero;
  plan.mesh[Axis::tp] = split.tp;
  plan.mesh[Axis::pp] = split.pp;
  plan.sequence_parallel = split.sequence_parallel;
  plan.zero = split.residency;
  // What is out of range is refused below.
  const int dp = std::clamp(split.dp, 1, most_workers);
  const int ranks = dp * std::clamp(split.zero, 1, most_workers / dp);
  plan.logical_dp = split.logical_dp != 0 ? split.logical_dp : ranks;
  plan.reduce = split.reduce;
  plan.reduce_dtype = split.reduce_dtype;
  plan.prefetch = split.prefetch;
  plan.prefetch_after = split.prefetch_after;
  plan.keep_params = split.keep_params;
  plan.send_buffers = split.send_buffers;
  plan.microbatch_sequences = options.microbatch_sequences;
  plan.seq_len = options.seq_len;
  plan.recipe = options.recipe;
  plan.optimizer.master = options.master;
  plan.inference = options.inference;
  plan.document_mask = options.document_mask;
  plan.recompute.assign(model.layers.size(), Recompute::none);
  const int blocks = model.blocks();
  const int recomputed = options.recompute_blocks < 0 ? blocks : options.recompute_blocks;
  for (int block = 0; block < std::min(blocks, recomputed); ++block) {
    plan.recompute[static_cast<size_t>(block) + 1] = options.recompute;
  }
  plan.head_chunk_rows =
      options.head_chunk_rows != 0 ? options.head_chunk_rows
      : !sizes_fit(model, plan)
          ? 1  // refused below
          : usual_head_chunk(backend, plan.recipe.storage, vocab_of(model) / std::max(split.tp, 1),
                             plan.microbatch_tokens());
  if (options.microbatches < 1) {
    throw base::ConfigError(fmt::format("{} micro-batches: at least 1", options.microbatches));
  }
  const int hosted = std::clamp(plan.logical_dp / ranks, 1, most_workers);
  if (options.microbatches > most_microbatches / hosted) {
    throw base::ConfigError(
        fmt::format("{} micro-batches for each of {} workers of a rank: at most "
                    "{} together",
                    options.microbatches, hosted, most_microbatches));
  }
  plan.schedule.microbatches = hosted * options.microbatches;
  return plan;
}

Plan parallel_plan(const ModelSpec& model, const OneRankOptions& options, const SplitOptions& split,
                   const Backend& backend) {
  Plan plan = unscheduled_plan(model, options, split, backend);
  plan.schedule = make_schedule(split, plan.schedule.microbatches);
  plan.first_layer_of_stage = split.first_layer_of_stage.empty() ? priced_cut(model, plan, backend)
                                                                 : split.first_layer_of_stage;
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
  for (const Axis axis : {Axis::cp, Axis::ezero, Axis::ep, Axis::etp}) {
    demand(plan.mesh[axis] == 1, fmt::format("{} = {}: this build does not cut it; use 1",
                                             name_of(axis), plan.mesh[axis]));
  }
  check_data_axes(plan, demand);
  demand(plan.context == Context::none, "context parallelism needs cp > 1");
  const auto is_broken = [&](const std::string& rule) { demand(false, rule); };
  check_tensor_axis(model, plan, is_broken);
  check_pipeline_axis(model, plan, is_broken);
  demand(plan.optimizer.name == "adamw",
         fmt::format("optimizer '{}': this build has adamw", plan.optimizer.name));
  demand(plan.optimizer.first_moment == base::DType::f32 &&
             plan.optimizer.second_moment == base::DType::f32,
         "optimizer state types: this build keeps moments in f32");
  demand(plan.optimizer.master == base::DType::f32 || plan.optimizer.master == base::DType::u16,
         fmt::format("master weights in {}: use f32 or u16", base::name_of(plan.optimizer.master)));
  demand(plan.optimizer.master == base::DType::f32 || plan.recipe.storage == base::DType::bf16,
         fmt::format("master weights in u16: they are what bf16 parameters lack of fp32; of {} "
                     "there is no master, use f32",
                     base::name_of(plan.recipe.storage)));
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
  const double activations = activation_elements(
      model, static_cast<double>(plan.microbatch_sequences) * static_cast<double>(plan.seq_len) *
                 plan.schedule.microbatches);
  demand(
      activations <= static_cast<double>(max_step_activations),
      fmt::format("{} micro-batches of {} sequences of {} tokens: with this model that is {:.3g} "
                  "activations in a step; at most {:.3g}",
                  plan.schedule.microbatches, plan.microbatch_sequences, plan.seq_len, activations,
                  static_cast<double>(max_step_activations)));
  demand(plan.head_chunk_rows >= 1,
         fmt::format("head_chunk_rows = {}: at least 1", plan.head_chunk_rows));
  demand(static_cast<int>(plan.recompute.size()) == layers,
         fmt::format("{} recompute policies for {} layers", plan.recompute.size(), layers));
  for (size_t i = 0; i < plan.recompute.size() && i < model.layers.size(); ++i) {
    demand(
        std::holds_alternative<BlockSpec>(model.layers[i]) || plan.recompute[i] == Recompute::none,
        fmt::format("layer {}: only blocks can be recomputed", i));
  }
  if (!broken.empty()) {
    throw base::ConfigError(
        fmt::format("the plan for model '{}' breaks these rules:{}", model.name, broken));
  }
}

}  // namespace trireme::spec
