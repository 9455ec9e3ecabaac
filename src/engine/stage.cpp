// SPDX-License-Identifier: Apache-2.0
#include "engine/stage.h"

#include "base/check.h"
#include "kernels/ops.h"
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
             const spec::Backend& backend, device::Device& device, device::Stream& setup,
             const StageMemory& memory)
    : shape_(spec::local_shape_of(plan)),
      recipe_(plan.recipe),
      recompute_(recompute_of(model, plan, stage)),
      stash_(make_pools(model, plan, stage, backend, device)),
      scratch_(memory.scratch) {
  const spec::LayerRange range = spec::layers_of_stage(model, plan, stage);
  std::vector<int> phases;
  for (int layer = range.first; layer < range.last; ++layer) {
    const spec::LayerSpec& spec = model.layers[static_cast<size_t>(layer)];
    layers_.push_back(nn::make_layer(spec, shape_, backend));
    names_.push_back(spec::name_of_layer(model, layer));
    phases.push_back(layers_.back()->phases());
    buckets_.emplace_back(spec::params_of(model, layer), recipe_, plan.mesh, memory.params,
                          plan.inference ? nullptr : &memory.grads);
    const auto* block = std::get_if<spec::BlockSpec>(&spec);
    if (block == nullptr || !block->rope || rope_table_) continue;
    host_rope_table_ = spec::rope_table(*block->rope, block->head_dim, shape_.seq_len);
    rope_table_ = memory.params.take({{shape_.seq_len, block->head_dim}, base::DType::f32});
    setup.upload(rope_table_, std::as_bytes(std::span(host_rope_table_)));
  }
  buckets_.back().tie(buckets_.front());

  const ScriptOptions options{.phases_by_layer = phases,
                              .recompute = recompute_,
                              .residency = plan.zero,
                              .prefetch = plan.prefetch};
  forward_ = script(Walk::forward, options);
  backward_ = script(Walk::backward, options);
  backward_input_ = script(Walk::backward_input, options);
  backward_weight_ = script(Walk::backward_weight, options);
}

void Stage::zero_grads(device::Stream& stream) {
  for (const Bucket& bucket : buckets_) {
    kernels::ops::fill(stream, {.d = bucket.flat_grads()});
    for (size_t i = 0; i < bucket.specs().size(); ++i) {
      if (bucket.specs()[i].tied_copy) kernels::ops::fill(stream, {.d = bucket.grads()[i]});
    }
  }
}

void Stage::forward(device::Stream& stream, int microbatch, const Microbatch& batch,
                    nn::StepSink& sink) {
  stash_.begin_forward(microbatch);
  walk(forward_, {stream, microbatch, batch, sink});
}

void Stage::backward(device::Stream& stream, int microbatch, const Microbatch& batch,
                     nn::StepSink& sink) {
  TRIREME_CHECK(stash_.layout().is_merged, "BW in a schedule that splits the backward");
  walk(backward_, {stream, microbatch, batch, sink});
  stash_.end_backward_input(microbatch);
  stash_.end_backward_weight(microbatch);
}

void Stage::backward_input(device::Stream& stream, int microbatch, const Microbatch& batch,
                           nn::StepSink& sink) {
  stash_.begin_backward(microbatch);
  walk(backward_input_, {stream, microbatch, batch, sink});
  stash_.end_backward_input(microbatch);
}

void Stage::backward_weight(device::Stream& stream, int microbatch, const Microbatch& batch,
                            nn::StepSink& sink) {
  walk(backward_weight_, {stream, microbatch, batch, sink});
  stash_.end_backward_weight(microbatch);
}

void Stage::evaluate(device::Stream& stream, int microbatch, const Microbatch& batch,
                     nn::StepSink& sink) {
  stash_.begin_forward(microbatch);
  walk(forward_, {stream, microbatch, batch, sink, true});
  stash_.end_evaluation(microbatch);
}

void Stage::sync_tied(device::Stream& stream) {
  for (Bucket& bucket : buckets_) {
    for (size_t i = 0; i < bucket.specs().size(); ++i) {
      if (!bucket.specs()[i].tied_copy) continue;
      const Bucket& owner = buckets_.front();
      const int at = owner.find(bucket.specs()[i].shard.name);
      TRIREME_CHECK(at >= 0, "the owner of '{}' is on another stage", bucket.specs()[i].shard.name);
      kernels::ops::accumulate(
          stream, {.x = bucket.grads()[i], .d = owner.grads()[static_cast<size_t>(at)]});
    }
  }
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
  const bool is_backward = step.kind != Kind::forward;
  const device::Range range(work.stream, names_[static_cast<size_t>(step.layer)]);
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
      TRIREME_CHECK(false, "gather, release and reduce need more than one rank");
  }
  stash_.settle(step.layer, work.microbatch, is_backward);
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
  const Bucket& bucket = buckets_[static_cast<size_t>(layer)];
  nn::Pass pass{.stream = work.stream,
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
