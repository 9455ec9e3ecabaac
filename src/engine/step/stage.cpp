// SPDX-License-Identifier: Apache-2.0
#include "engine/step/stage.h"

#include <algorithm>

#include "base/check.h"
#include "nn/boundaries.h"

namespace trireme::engine {

using Kind = Step::Kind;

Stage::Stage(const spec::ModelSpec& model, const spec::Plan& plan, int stage, int index,
             const spec::Backend& backend, const StageShared& shared)
    : shared_(shared),
      index_(index),
      shape_(spec::local_shape_of(plan)),
      has_first_(stage == 0),
      has_last_(stage + 1 == plan.stages()),
      residency_(plan.zero),
      prefetch_(plan.layout.prefetch),
      prefetch_after_(plan.layout.prefetch_after) {
  const spec::LayerRange range = spec::layers_of_stage(model, plan, stage);
  first_layer_ = range.first;
  recompute_ = {plan.recompute.begin() + range.first, plan.recompute.begin() + range.last};
  for (int layer = range.first; layer < range.last; ++layer) {
    const spec::LayerSpec& spec = model.layers[static_cast<size_t>(layer)];
    layers_.push_back(nn::make_layer(
        spec, shape_, backend,
        {shared.tensor.boundary(), shared.context.boundary(), shared.experts.boundary()}));
    recipes_.push_back(spec::layer_recipe(plan.recipe, model, layer));
    names_.push_back(spec::name_of_layer(model, layer));
    phases_.push_back(layers_.back()->phases());
  }
}

device::Tensor Stage::input(int microbatch) {
  shared_.stash.begin(index_, microbatch);
  return shared_.stash.take(index_, 0, microbatch, spec::slot_x, false);
}

device::Tensor Stage::output_gradient(int microbatch) {
  return shared_.stash.take(index_, layers() - 1, microbatch, spec::slot_dy, true);
}

const std::vector<Step>& Stage::script_for(Walk walk, const Task& task) {
  const ScriptKey key{walk, task.begins, task.completes, task.gathers, task.releases};
  const auto [found, is_new] = scripts_.try_emplace(key);
  if (is_new) {
    // The last layer may read another layer's bucket, which must stay if it is in this stage.
    const int also_read = shared_.buckets.table().read_with(first_bucket(layers() - 1));
    const int stays = also_read < 0 ? -1 : shared_.buckets.key(also_read).layer - first_layer_;
    found->second = script(walk, {.phases_by_layer = phases_,
                                  .recompute = recompute_,
                                  .residency = residency_,
                                  .prefetch = prefetch_,
                                  .prefetch_after = prefetch_after_,
                                  .head = has_last_ ? layers() - 1 : -1,
                                  .stays = std::max(stays, -1),
                                  .begins = task.begins,
                                  .reduces = task.completes,
                                  .gathers = task.gathers,
                                  .releases = task.releases});
  }
  return found->second;
}

Stage::Progress Stage::begin(Walk walk, const Task& task, nn::StepSink& sink) {
  if (walk == Walk::forward) shared_.stash.begin(index_, task.microbatch);
  return {walk, script_for(walk, task), task, sink};
}

bool Stage::advance(Progress& progress) {
  const std::vector<Step>& steps = *progress.steps;
  if (progress.at == steps.size()) return false;
  const Step& step = steps[progress.at++];
  run_step(step, progress);
  const bool is_over = progress.at == steps.size();
  const bool is_last_of_layer =
      is_over || steps[progress.at].layer != step.layer || steps[progress.at].kind != step.kind;
  if (is_last_of_layer) finish(step, progress.task.microbatch);
  if (is_over) end(progress);
  return true;
}

void Stage::run(Walk walk, const Task& task, nn::StepSink& sink) {
  Progress progress = begin(walk, task, sink);
  while (advance(progress)) {
  }
}

void Stage::end(const Progress& progress) {
  const int microbatch = progress.task.microbatch;
  switch (progress.walk) {
    case Walk::forward:
      if (progress.task.evaluates) shared_.stash.end(index_, microbatch);
      break;
    case Walk::backward_input:
      shared_.stash.end_backward_input(index_, microbatch);
      break;
    case Walk::backward:
    case Walk::backward_weight:
      shared_.stash.end(index_, microbatch);
      break;
  }
}

void Stage::run_step(const Step& step, Progress& progress) {
  const Task& task = progress.task;
  const bool is_bucket_step = step.kind == Kind::gather || step.kind == Kind::release ||
                              step.kind == Kind::zero || step.kind == Kind::reduce;
  if (is_bucket_step) {
    run_bucket_step(step, task);
    return;
  }
  Buckets& buckets = shared_.buckets;
  const bool is_backward = step.kind != Kind::forward;
  const device::Range range(shared_.compute, names_[static_cast<size_t>(step.layer)]);
  if (step.kind != Kind::backward_weight) {
    for_each_bucket(step.layer, [&](int b) { buckets.use(b); });
  }
  const int also_read = buckets.table().read_with(first_bucket(step.layer));
  if (step.kind == Kind::forward && also_read >= 0) buckets.use(also_read);
  nn::Stash stash = shared_.stash.open(index_, step.layer, task.microbatch, is_backward);
  nn::Pass pass = make_pass(progress, step.layer, stash, is_backward);
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
  shared_.tensor.count(task.evaluates ? &spec::TrafficTable::other
                       : is_backward  ? &spec::TrafficTable::tp_backward
                                      : &spec::TrafficTable::tp_forward);
  shared_.context.count(task.evaluates ? &spec::TrafficTable::other
                        : is_backward  ? &spec::TrafficTable::cp_backward
                                       : &spec::TrafficTable::cp_forward);
  shared_.experts.count(task.evaluates ? &spec::TrafficTable::other
                        : is_backward  ? &spec::TrafficTable::ep_backward
                                       : &spec::TrafficTable::ep_forward);
  shared_.stash.count_taken(index_, step.layer, task.microbatch, is_backward);
}

void Stage::run_bucket_step(const Step& step, const Task& task) {
  const std::string& name = names_[static_cast<size_t>(step.layer)];
  switch (step.kind) {
    case Kind::gather: {
      const device::Range range(shared_.data, "gather " + name);
      for_each_bucket(step.layer, [&](int b) { shared_.buckets.gather(b); });
      break;
    }
    case Kind::release:
      for_each_bucket(step.layer, [&](int b) { shared_.buckets.release(b); });
      break;
    case Kind::zero:
      for_each_bucket(step.layer, [&](int b) { shared_.buckets.zero(b); });
      break;
    case Kind::reduce: {
      const device::Range range(shared_.data, "reduce " + name);
      for_each_bucket(step.layer, [&](int b) { shared_.buckets.reduce(b, task.leaf); });
      break;
    }
    default:
      TRIREME_CHECK(false, "step {} is not a step of a bucket", static_cast<int>(step.kind));
  }
}

void Stage::finish(const Step& step, int microbatch) {
  switch (step.kind) {
    case Kind::forward:
      shared_.stash.release_recomputed(index_, step.layer, microbatch);
      break;
    case Kind::backward_input:
      // With a merged backward, W of the layer still reads it.
      if (!shared_.stash.layout().is_merged) {
        shared_.stash.release_recomputed(index_, step.layer, microbatch);
      }
      break;
    case Kind::backward_weight:
      shared_.stash.release_layer(index_, step.layer, microbatch);
      break;
    default:
      break;
  }
}

nn::Pass Stage::make_pass(Progress& progress, int layer, nn::Stash& stash, bool is_backward) {
  const Task& task = progress.task;
  nn::Pass pass{
      .stream = shared_.compute,
      .params = shared_.buckets.params(first_layer_ + layer),
      .grads = shared_.buckets.grads(first_layer_ + layer),
      .state = shared_.state.own(first_layer_ + layer),
      .scales = shared_.codes.scales(first_layer_ + layer),
      .counts = shared_.numerics.counts(first_layer_ + layer),
      .measures = shared_.numerics.measures(),
      .delayed_amax = shared_.delayed.largest(first_layer_ + layer),
      .stash = stash,
      .scratch = shared_.scratch,
      .recipe = recipes_[static_cast<size_t>(layer)],
      .writes = task.writes,
      .writes_in_b = task.begins,
      .evaluating = task.evaluates,
      .arrival = &progress.arrival,
      .tokens = task.batch.tokens,
      .labels = task.batch.labels,
      .positions = task.batch.positions,
      .seq_offsets = task.batch.seq_offsets,
      .token_losses = task.evaluates ? progress.sink.token_losses
                      : progress.sink.step_losses.empty()
                          ? device::Tensor{}
                          : progress.sink.step_losses[static_cast<size_t>(task.microbatch)],
      .sequences = shape_.sequences,
      .max_seq = shape_.seq_len,
      .has_documents = shape_.has_documents,
      .rope_table = shared_.rope_table,
      .context_keys = task.batch.keys,
      .sink = progress.sink};
  const bool is_first = layer == 0, is_last = layer + 1 == layers();
  StashPools& pools = shared_.stash;
  if (!(is_first && has_first_)) pass.x = stash[spec::slot_x];
  if (!is_backward) {
    pass.y =
        is_last ? task.out : pools.take(index_, layer + 1, task.microbatch, spec::slot_x, false);
    return pass;
  }
  if (!(is_last && has_last_)) pass.dy = stash[spec::slot_dy];
  // W computes no input gradient.
  if (progress.walk == Walk::backward_weight) return pass;
  pass.dx =
      is_first ? task.out : pools.take(index_, layer - 1, task.microbatch, spec::slot_dy, true);
  return pass;
}

}  // namespace trireme::engine
