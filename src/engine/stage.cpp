// SPDX-License-Identifier: Apache-2.0
#include "engine/stage.h"

#include "base/check.h"
#include "spec/predict.h"
#include "spec/rope.h"

namespace trireme::engine {
namespace {

using Kind = Step::Kind;

std::vector<spec::Recompute> recompute_of(const spec::ModelSpec& model, const spec::Plan& plan,
                                          int stage) {
  const spec::LayerRange range = spec::layers_of_stage(model, plan, stage);
  return {plan.recompute.begin() + range.first, plan.recompute.begin() + range.last};
}

StashPools make_pools(const spec::ModelSpec& model, const spec::Plan& plan, int stage,
                      const spec::Backend& backend, device::Device& device) {
  const std::vector<spec::Facts> layers = spec::facts_of_stage(model, plan, stage, backend);
  return {device, layers, recompute_of(model, plan, stage),
          spec::stash_layout_of_stage(model, plan, stage, layers)};
}

}  // namespace

Stage::Stage(const spec::ModelSpec& model, const spec::Plan& plan, int stage,
             const spec::Backend& backend, device::Device& device, DataGroups& groups,
             TensorGroup& tensor, const StageMemory& memory)
    : groups_(groups),
      tensor_(tensor),
      shape_(spec::local_shape_of(plan)),
      recipe_(plan.recipe),
      recompute_(recompute_of(model, plan, stage)),
      buckets_(model, plan, spec::layers_of_stage(model, plan, stage), groups, tensor,
               {memory.params, memory.grads, memory.comm}),
      stash_(make_pools(model, plan, stage, backend, device)),
      scratch_(memory.scratch) {
  const spec::LayerRange range = spec::layers_of_stage(model, plan, stage);
  std::vector<int> phases;
  int head = -1;
  for (int layer = range.first; layer < range.last; ++layer) {
    const spec::LayerSpec& spec = model.layers[static_cast<size_t>(layer)];
    layers_.push_back(nn::make_layer(spec, shape_, backend, tensor.boundary()));
    names_.push_back(spec::name_of_layer(model, layer));
    phases.push_back(layers_.back()->phases());
    if (std::holds_alternative<spec::HeadSpec>(spec)) head = layer - range.first;
    const auto* block = std::get_if<spec::BlockSpec>(&spec);
    if (block == nullptr || !block->rope || rope_table_) continue;
    host_rope_table_ = spec::rope_table(*block->rope, block->head_dim, shape_.seq_len);
    rope_table_ = memory.params.take({{shape_.seq_len, block->head_dim}, base::DType::f32});
    groups_.compute().upload(rope_table_, std::as_bytes(std::span(host_rope_table_)));
  }
  for (const Walk walk :
       {Walk::forward, Walk::backward, Walk::backward_input, Walk::backward_weight}) {
    for (const bool begins : {false, true}) {
      for (const bool completes : {false, true}) {
        scripts_[static_cast<size_t>(walk)][begins][completes] =
            script(walk, {.phases_by_layer = phases,
                          .recompute = recompute_,
                          .residency = plan.zero,
                          .prefetch = plan.prefetch,
                          .prefetch_after = plan.prefetch_after,
                          .head = head,
                          .tied_to = buckets_.tied_to(),
                          .begins = begins,
                          .reduces = completes});
      }
    }
  }
}

const std::vector<Step>& Stage::script_for(Walk walk, const Task& task) const {
  return scripts_[static_cast<size_t>(walk)][task.begins][task.completes];
}

void Stage::forward(const Task& task, nn::StepSink& sink) {
  stash_.begin_forward(task.microbatch);
  walk(script_for(Walk::forward, task), {task.microbatch, task.batch, sink, task.leaf});
}

void Stage::backward(const Task& task, nn::StepSink& sink) {
  TRIREME_CHECK(stash_.layout().is_merged, "BW in a schedule that splits the backward");
  walk(script_for(Walk::backward, task), {task.microbatch, task.batch, sink, task.leaf});
  stash_.end_backward_input(task.microbatch);
  stash_.end_backward_weight(task.microbatch);
}

void Stage::backward_input(const Task& task, nn::StepSink& sink) {
  stash_.begin_backward(task.microbatch);
  walk(script_for(Walk::backward_input, task), {task.microbatch, task.batch, sink, task.leaf});
  stash_.end_backward_input(task.microbatch);
}

void Stage::backward_weight(const Task& task, nn::StepSink& sink) {
  walk(script_for(Walk::backward_weight, task), {task.microbatch, task.batch, sink, task.leaf});
  stash_.end_backward_weight(task.microbatch);
}

void Stage::evaluate(int microbatch, const Microbatch& batch, nn::StepSink& sink) {
  stash_.begin_forward(microbatch);
  walk(scripts_[static_cast<size_t>(Walk::forward)][0][0], {microbatch, batch, sink, {}, true});
  stash_.end_evaluation(microbatch);
}

void Stage::walk(const std::vector<Step>& steps, const Work& work) {
  for (size_t i = 0; i < steps.size(); ++i) {
    run(steps[i], work);
    const bool is_last_of_layer = i + 1 == steps.size() || steps[i + 1].layer != steps[i].layer ||
                                  steps[i + 1].kind != steps[i].kind;
    if (is_last_of_layer) finish(steps[i], work);
  }
}

void Stage::run(const Step& step, const Work& work) {
  const bool is_move = step.kind == Kind::gather || step.kind == Kind::release ||
                       step.kind == Kind::zero || step.kind == Kind::reduce;
  if (is_move) {
    move(step, work);
    return;
  }
  const bool is_backward = step.kind != Kind::forward;
  const device::Range range(groups_.compute(), names_[static_cast<size_t>(step.layer)]);
  if (step.kind != Kind::backward_weight) buckets_.use(step.layer);
  if (step.kind == Kind::forward && buckets_[step.layer].has_tied_copies()) {
    buckets_.use(buckets_.tied_to());
  }
  nn::Stash stash = stash_.open(step.layer, work.microbatch, is_backward);
  nn::Pass pass = make_pass(work, step.layer, stash, is_backward);
  const nn::Layer& layer = *layers_[static_cast<size_t>(step.layer)];
  switch (step.kind) {
    case Kind::forward:
      layer.forward(pass, step.phase);
      break;
    case Kind::recompute:
      pass.recomputing = true;
      layer.forward(pass, step.phase);
      break;
    case Kind::backward_input:
      layer.backward_input(pass, step.phase);
      break;
    case Kind::backward_weight:
      layer.backward_weight(pass);
      break;
    default:
      TRIREME_CHECK(false, "step {}", static_cast<int>(step.kind));
  }
  tensor_.count(work.is_evaluating ? &spec::TrafficTable::other
                : is_backward      ? &spec::TrafficTable::tp_backward
                                   : &spec::TrafficTable::tp_forward);
  stash_.settle(step.layer, work.microbatch, is_backward);
}

void Stage::move(const Step& step, const Work& work) {
  const std::string& name = names_[static_cast<size_t>(step.layer)];
  switch (step.kind) {
    case Kind::gather: {
      const device::Range range(groups_.stream(), "gather " + name);
      buckets_.gather(step.layer);
      break;
    }
    case Kind::release:
      buckets_.release(step.layer);
      break;
    case Kind::zero:
      buckets_.zero(step.layer);
      break;
    case Kind::reduce: {
      const device::Range range(groups_.stream(), "reduce " + name);
      buckets_.reduce(step.layer, work.leaf);
      break;
    }
    default:
      TRIREME_CHECK(false, "step {} moves nothing", static_cast<int>(step.kind));
  }
}

void Stage::finish(const Step& step, const Work& work) {
  switch (step.kind) {
    case Kind::forward:
      stash_.release_dropped(step.layer, work.microbatch);
      break;
    case Kind::backward_input:
      if (!stash_.layout().is_merged) stash_.release_after_input(step.layer, work.microbatch);
      break;
    case Kind::backward_weight:
      stash_.release_after_weight(step.layer, work.microbatch);
      break;
    default:
      break;
  }
}

nn::Pass Stage::make_pass(const Work& work, int layer, nn::Stash& stash, bool is_backward) {
  const Bucket& bucket = buckets_[layer];
  nn::Pass pass{.stream = groups_.compute(),
                .params = bucket.params(),
                .grads = bucket.grads(),
                .stash = stash,
                .scratch = scratch_,
                .recipe = recipe_,
                .evaluating = work.is_evaluating,
                .tokens = work.batch.tokens,
                .labels = work.batch.labels,
                .positions = work.batch.positions,
                .seq_offsets = work.batch.seq_offsets,
                .sequences = shape_.sequences,
                .max_seq = shape_.seq_len,
                .has_documents = shape_.has_documents,
                .rope_table = rope_table_,
                .microbatch = work.microbatch,
                .sink = work.sink};
  const bool is_first = layer == 0, is_last = layer + 1 == layers();
  if (!is_first) pass.x = stash[spec::slot_x];
  if (!is_backward && !is_last) {
    pass.y = stash_.take(layer + 1, work.microbatch, spec::slot_x, false);
  }
  if (is_backward && !is_last) pass.dy = stash[spec::slot_dy];
  if (is_backward && !is_first) {
    pass.dx = stash_.take(layer - 1, work.microbatch, spec::slot_dy, true);
  }
  return pass;
}

}  // namespace trireme::engine
