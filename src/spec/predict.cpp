// SPDX-License-Identifier: Apache-2.0
#include "spec/predict.h"

#include <algorithm>

#include "base/check.h"
#include "spec/bucket.h"
#include "spec/data_parallel.h"
#include "spec/stash_layout.h"
#include "spec/tensor_parallel.h"

namespace trireme::spec {
namespace {

bool has_split_backward(const std::vector<schedule::Action>& program) {
  return std::any_of(program.begin(), program.end(),
                     [](const schedule::Action& a) { return a.op == schedule::Op::B; });
}

// Parameters, gradients and optimizer state of one layer.
void add_state(const Facts& layer, const BucketLayout& bucket, const Plan& plan, MemoryTable& sum) {
  const int64_t shards = plan.mesh[Axis::zero];
  const auto elements = [&](bool is_sharded) {
    return is_sharded ? bucket.elements / shards : bucket.elements;
  };
  sum.params += base::bytes_of({{elements(plan.zero.params)}, plan.recipe.storage});
  if (plan.inference) return;
  const GradSpecs grads = grad_specs(plan, bucket);
  sum.grads +=
      base::bytes_of(grads.leaf) + base::bytes_of(grads.round_sum) + base::bytes_of(grads.shard);
  for (const base::TensorSpec& node : grads.nodes) sum.grads += base::bytes_of(node);
  const int64_t kept = elements(plan.zero.optim);
  if (plan.recipe.has_master()) sum.optim += base::bytes_of({{kept}, plan.optimizer.master});
  sum.optim += base::bytes_of({{kept}, plan.optimizer.first_moment});
  sum.optim += base::bytes_of({{kept}, plan.optimizer.second_moment});
  for (const Param& param : layer.params) {
    if (!param.tied_copy) continue;
    sum.grads += base::bytes_of({{local_elements(param.shard, plan.mesh)}, plan.recipe.grad});
  }
}

}  // namespace

std::vector<base::TensorSpec> input_specs(const LocalShape& shape) {
  const base::TensorSpec per_token{{shape.tokens}, base::DType::i32};
  return {per_token, per_token, per_token, {{shape.tokens + 1}, base::DType::i32}};
}

std::vector<Facts> facts_of_stage(const ModelSpec& model, const Plan& plan, int stage,
                                  const Backend& backend) {
  const LayerRange range = layers_of_stage(model, plan, stage);
  std::vector<Facts> layers;
  for (int layer = range.first; layer < range.last; ++layer) {
    layers.push_back(facts(model, layer, local_shape_of(plan), plan.recipe,
                           plan.recompute[static_cast<size_t>(layer)], backend));
  }
  return layers;
}

StashLayout stash_layout_of_stage(const ModelSpec& model, const Plan& plan, int stage,
                                  std::span<const Facts> layers) {
  const auto first = static_cast<size_t>(layers_of_stage(model, plan, stage).first);
  const auto rank = static_cast<size_t>(plan.schedule.lanes.front()[static_cast<size_t>(stage)]);
  return stash_layout(layers, std::span(plan.recompute).subspan(first, layers.size()),
                      schedule::in_flight(plan.schedule)[rank],
                      {.is_merged = !has_split_backward(plan.schedule.program[rank]),
                       .is_inference = plan.inference});
}

base::TensorSpec sample_hash_spec() { return {{sizeof(uint64_t)}, base::DType::u8}; }

base::TensorSpec token_losses_spec(const LocalShape& shape) {
  return {{shape.tokens}, base::DType::f32};
}

MemoryTable predict_memory(const ModelSpec& model, const Plan& plan, const Backend& backend,
                           int pp_rank) {
  TRIREME_CHECK(plan.stages() == 1 && pp_rank == 0, "stage {} of {}", pp_rank, plan.stages());
  const LocalShape shape = local_shape_of(plan);
  const std::vector<Facts> layers = facts_of_stage(model, plan, pp_rank, backend);
  MemoryTable sum;
  std::vector<BucketLayout> buckets;
  for (const Facts& layer : layers) {
    buckets.push_back(bucket_layout(layer.params, plan.mesh));
    add_state(layer, buckets.back(), plan, sum);
    for (const ScratchSet& set : layer.scratch) {
      if (!plan.inference || set.in_forward) sum.scratch = std::max(sum.scratch, bytes_of(set));
    }
  }
  sum.comm += bytes_of(data_buffers(plan, buckets, is_tied(model)));
  sum.comm += base::bytes_of(tensor_buffer(model, plan));
  sum.scratch += base::bytes_of(stream_workspace_spec(backend));
  sum.params += base::bytes_of(rope_table_spec(model, shape.seq_len));
  sum.optim += base::bytes_of({{step_sums_bytes}, base::DType::u8});
  sum.optim += base::bytes_of({{step_state_bytes}, base::DType::u8});

  const StashLayout stash = stash_layout_of_stage(model, plan, pp_rank, layers);
  sum.stash_f_to_b = stash.of(Pool::f_to_b).total();
  sum.stash_f_to_w = stash.of(Pool::f_to_w).total();
  sum.stash_b_to_w = stash.of(Pool::b_to_w).total();
  sum.stash_recompute = stash.of(Pool::recompute).total();
  sum.stash_stream = stash.of(Pool::stream).total();

  for (const base::TensorSpec& spec : input_specs(shape)) {
    // Twice: the batch that is read, and the next one, which arrives meanwhile.
    sum.staging += 2 * plan.schedule.microbatches * base::bytes_of(spec);
  }
  sum.staging += 2 * base::bytes_of(sample_hash_spec());
  sum.staging += base::bytes_of(token_losses_spec(shape));
  return sum;
}

Prediction predict(const ModelSpec& model, const Plan& plan, const Backend& backend) {
  Prediction prediction;
  for (int rank = 0; rank < plan.schedule.ranks; ++rank) {
    prediction.memory.push_back(predict_memory(model, plan, backend, rank));
  }
  const LocalShape shape = local_shape_of(plan);
  for (int layer = 0; layer < static_cast<int>(model.layers.size()); ++layer) {
    const Facts f = facts(model, layer, shape, plan.recipe,
                          plan.recompute[static_cast<size_t>(layer)], backend);
    double once = 0, again = 0;
    for (const auto* ops : {&f.f, &f.b, &f.w}) {
      for (const OpCost& op : *ops) once += op.flops;
    }
    for (const OpCost& op : f.r) again += op.flops;
    prediction.model_flops += once;
    prediction.hardware_flops += once + again;
  }
  const double replicas = static_cast<double>(plan.schedule.microbatches) * plan.mesh[Axis::dp] *
                          plan.mesh[Axis::zero] * plan.mesh[Axis::tp];
  prediction.model_flops *= replicas;
  prediction.hardware_flops *= replicas;
  return prediction;
}

}  // namespace trireme::spec
