// SPDX-License-Identifier: Apache-2.0
#include "spec/memory/predict.h"

#include <algorithm>

#include "schedule/lives.h"
#include "spec/context/context_traffic.h"
#include "spec/experts/expert_traffic.h"
#include "spec/memory/grad_places.h"
#include "spec/memory/stash_layout.h"
#include "spec/parallel/bucket.h"
#include "spec/parallel/data_parallel.h"
#include "spec/parallel/pipeline_parallel.h"
#include "spec/parallel/tensor_parallel.h"
#include "spec/state/float8_state.h"
#include "spec/state/state_layout.h"

namespace trireme::spec {
namespace {

// Adds what a pp rank holds of the token table of a tied head besides its buckets.
void add_table(const SharedTable& table, int pp_rank, MemoryTable& sum) {
  if (table.owner == pp_rank) sum.comm += base::bytes_of(table.received_grads);
  if (table.reader != pp_rank) return;
  sum.params += base::bytes_of(table.copy);
  sum.grads += base::bytes_of(table.head_grads);
  for (const base::TensorSpec& staged : table.staged_grads) sum.comm += base::bytes_of(staged);
}

}  // namespace

int64_t tied_elements(std::span<const Param> params, const Sizes& sizes) {
  for (const Param& param : params) {
    if (param.tied_copy) return local_elements(param.shard, sizes);
  }
  return 0;
}

void add_state(const Plan& plan, std::span<const StateTensor> state, const BucketLayout& bucket,
               MemoryTable& sum) {
  const int64_t elements = bucket.elements;
  const auto share = [&](bool is_sharded) {
    return is_sharded ? elements / state_shards(plan, bucket.view) : elements;
  };
  sum.params += base::bytes_of({{share(plan.zero.params)}, bucket.storage});
  sum.optim += state_bytes(bucket_state(state, bucket), plan, bucket).total;
  if (plan.inference) return;
  const GradSpecs grads = grad_specs(plan, bucket.size());
  sum.grads +=
      base::bytes_of(grads.leaf) + base::bytes_of(grads.round_sum) + base::bytes_of(grads.shard);
  for (const base::TensorSpec& node : grads.nodes) sum.grads += base::bytes_of(node);
}

std::vector<int> float8_layers(const ModelSpec& model, const Plan& plan, int pp_rank) {
  std::vector<int> layers;
  if (plan.inference) return layers;
  for (const int layer : layers_of_rank(model, plan, pp_rank)) {
    if (layer_recipe(plan.recipe, model, layer).fp8) layers.push_back(layer);
  }
  return layers;
}

base::TensorSpec numerics_spec(const ModelSpec& model, const Plan& plan, int pp_rank) {
  return numerics_spec(std::ssize(float8_layers(model, plan, pp_rank)));
}

base::TensorSpec numerics_spec(int64_t float8_blocks) {
  if (float8_blocks == 0) return {};
  return {{float8_blocks * quantized_count, quantize_counts_bytes}, base::DType::u8};
}

StepMemory step_memory(const Plan& plan) {
  const auto bytes = [](const base::Shape& shape) {
    return base::TensorSpec{shape, base::DType::u8};
  };
  const int64_t layers = plan.layers();
  return {.record = bytes({step_record_bytes(layers)}),
          .squares = bytes({layers + 1, wide_sum_bytes}),
          .signals = bytes({step_state_bytes + step_totals_bytes(layers, data_ranks(plan.mesh))})};
}

int64_t bytes_of(const StepMemory& memory) {
  return base::bytes_of(memory.record) + base::bytes_of(memory.squares) +
         base::bytes_of(memory.signals);
}

StagingBytes staging_bytes(const LocalShape& shape, bool keeps_losses) {
  StagingBytes bytes;
  // Twice: the batch that is read, and the next one, which is copied meanwhile.
  for (const base::TensorSpec& spec : input_specs(shape)) {
    bytes.by_microbatch += 2 * base::bytes_of(spec);
  }
  bytes.once = 2 * base::bytes_of(batch_counts_spec());
  (keeps_losses ? bytes.by_microbatch : bytes.once) += base::bytes_of(token_losses_spec(shape));
  return bytes;
}

std::vector<base::TensorSpec> input_specs(const LocalShape& shape) {
  const auto ints = [](int64_t count) { return base::TensorSpec{{count}, base::DType::i32}; };
  const ContextSplit split = shape.context();
  std::vector<base::TensorSpec> specs(3, ints(shape.tokens));
  specs.push_back(ints(split.tokens() + 1));
  if (split.groups > 1) {
    specs.push_back(ints(split.key_sources() * split.group_tokens()));
    specs.push_back(ints(split.key_sources() * split.group_tokens()));
    if (!split.is_ring) specs.push_back(ints(split.tokens()));
  }
  return specs;
}

std::vector<Facts> facts_of_stage(const ModelSpec& model, const Plan& plan, int stage,
                                  const Backend& backend) {
  const LayerRange range = layers_of_stage(model, plan, stage);
  std::vector<Facts> layers;
  for (int layer = range.first; layer < range.last; ++layer) {
    layers.push_back(facts(model, layer, local_shape_of(plan), plan.recipe,
                           plan.recompute[static_cast<size_t>(layer)], backend, plan.optimizer));
  }
  return layers;
}

std::vector<StashStage> stash_stages(const ModelSpec& model, const Plan& plan, int pp_rank,
                                     const Backend& backend) {
  std::vector<StashStage> stages;
  for (const int stage : schedule::stages_of(plan.schedule, pp_rank)) {
    const LayerRange range = layers_of_stage(model, plan, stage);
    stages.push_back({stage,
                      facts_of_stage(model, plan, stage, backend),
                      {plan.recompute.begin() + range.first, plan.recompute.begin() + range.last}});
  }
  return stages;
}

StashLayout stash_layout_of_rank(const Plan& plan, int pp_rank,
                                 std::span<const StashStage> stages) {
  return stash_layout(stages, plan.schedule, pp_rank, plan.inference);
}

base::TensorSpec rope_table_of_rank(const ModelSpec& model, const Plan& plan, int pp_rank) {
  for (const int layer : layers_of_rank(model, plan, pp_rank)) {
    if (std::holds_alternative<BlockSpec>(model.layers[static_cast<size_t>(layer)])) {
      return rope_table_spec(model, plan.seq_len);
    }
  }
  return {};
}

base::TensorSpec batch_counts_spec() { return {{batch_counts_bytes}, base::DType::u8}; }

base::TensorSpec token_losses_spec(const LocalShape& shape) {
  return {{shape.tokens}, base::DType::f32};
}

MemoryTable predict_memory(const ModelSpec& model, const Plan& plan, const Backend& backend,
                           int pp_rank) {
  const LocalShape shape = local_shape_of(plan);
  const std::vector<StashStage> stages = stash_stages(model, plan, pp_rank, backend);
  MemoryTable sum;
  std::vector<BucketLayout> buckets;
  for (const StashStage& stage : stages) {
    int stage_layer = layers_of_stage(model, plan, stage.number).first;
    for (const Facts& layer : stage.layers) {
      std::vector<StateTensor> state = plan.inference ? inference_state(layer.state) : layer.state;
      for (const BucketLayout& bucket :
           layer_buckets(model, stage_layer++, plan.recipe, plan.mesh)) {
        buckets.push_back(bucket);
        add_state(plan, state, buckets.back(), sum);
        // Own tensors are part of a layer's first bucket.
        std::erase_if(state, [](const StateTensor& tensor) { return tensor.is_own(); });
      }
      for (const ScratchSet& set : layer.scratch) {
        if (!plan.inference || set.in_forward) sum.scratch = std::max(sum.scratch, bytes_of(set));
      }
    }
  }
  for (const base::TensorSpec& scales : weight_scale_specs(buckets)) {
    sum.params += base::bytes_of(scales);
    sum.optim += base::bytes_of(scales);  // the largest weights
  }
  const auto table = shared_table(model, plan);
  if (table) add_table(*table, pp_rank, sum);
  sum.comm += bytes_of(data_buffers(plan, buckets, table && table->is_in_one_stage));
  sum.comm += base::bytes_of(tensor_buffer(model, plan));
  sum.comm += base::bytes_of(context_buffer(model, plan)) + base::bytes_of(context_reports(plan));
  sum.comm += base::bytes_of(expert_buffer(model, plan));
  sum.comm += bytes_of(pipe_buffers(model, plan, pp_rank));
  sum.scratch += base::bytes_of(stream_workspace_spec(backend));
  sum.params += base::bytes_of(rope_table_of_rank(model, plan, pp_rank));
  sum.optim += bytes_of(step_memory(plan)) + base::bytes_of(numerics_spec(model, plan, pp_rank));
  sum.optim += base::bytes_of(
      delayed_amax_spec(plan.recipe, std::ssize(float8_layers(model, plan, pp_rank))));

  const StashLayout stash = stash_layout_of_rank(plan, pp_rank, stages);
  const std::vector<std::optional<SlotHome>> places = grad_places(plan, stash, buckets);
  for (size_t b = 0; b < places.size(); ++b) {
    if (places[b]) sum.grads -= base::bytes_of(grad_specs(plan, buckets[b].size()).leaf);
  }
  sum.stash_inputs = stash.of(Pool::inputs).peak;
  sum.stash_f_to_b = stash.of(Pool::f_to_b).peak;
  sum.stash_f_to_w = stash.of(Pool::f_to_w).peak;
  sum.stash_b_to_w = stash.of(Pool::b_to_w).peak;
  sum.stash_gradients = stash.of(Pool::gradients).peak;
  sum.stash_recompute = stash.of(Pool::recompute).peak;
  sum.stash_stream = stash.of(Pool::stream).peak;
  sum.stash_gaps = stash.gap_bytes();

  const StagingBytes staging = staging_bytes(shape, plan.keeps_losses);
  sum.staging = plan.schedule.microbatches * staging.by_microbatch + staging.once;
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
    prediction.model_flops += once - f.b_recomputed_flops;
    prediction.hardware_flops += once + again;
  }
  const double replicas =
      static_cast<double>(plan.schedule.microbatches) * sum_ranks(plan.mesh) * plan.mesh[Axis::tp];
  prediction.model_flops *= replicas;
  prediction.hardware_flops *= replicas;
  return prediction;
}

}  // namespace trireme::spec
