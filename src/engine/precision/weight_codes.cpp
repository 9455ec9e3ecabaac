// SPDX-License-Identifier: Apache-2.0
#include "engine/precision/weight_codes.h"

#include <algorithm>

#include "kernels/ops.h"
#include "spec/state/state_layout.h"

namespace trireme::engine {
namespace {

namespace ops = kernels::ops;
using device::Tensor;
using spec::Quantized;

// Returns the row of a layer's numerics for a weight; none for the matrices of shared experts,
// which are counted with no other.
std::optional<Quantized> quantized_of(int param) {
  switch (static_cast<spec::BlockParam>(param)) {
    case spec::BlockParam::qkv_weight:
      return Quantized::qkv_weight;
    case spec::BlockParam::out_weight:
      return Quantized::out_weight;
    case spec::BlockParam::up_weight:
      return Quantized::up_weight;
    case spec::BlockParam::down_weight:
      return Quantized::down_weight;
    default:
      return std::nullopt;
  }
}

}  // namespace

WeightCodes::WeightCodes(const spec::ModelSpec& model, const spec::Plan& plan,
                         const Buckets& buckets, const TrainState& state, DataGroups& groups,
                         const Numerics& numerics, device::Arena& params, device::Arena& optim)
    : buckets_(buckets),
      state_(state),
      groups_(groups),
      numerics_(numerics),
      is_sharded_(plan.zero.optim),
      ranges_(static_cast<size_t>(buckets.size())),
      entries_(static_cast<size_t>(buckets.size())) {
  if (!plan.recipe.fp8) return;
  shape_ = plan.recipe.fp8->weights;
  std::vector<spec::BucketLayout> layouts;
  for (const Bucket& bucket : buckets) layouts.push_back(bucket.layout());
  const auto specs = spec::weight_scale_specs(layouts);
  for (size_t i = 0; i < specs.size(); ++i) {
    if (specs[i].shape.ndim() == 0) continue;
    scale_[i] = params.take(specs[i]);
    amax_[i] = optim.take(specs[i]);
  }
  std::array<int64_t, 2> next{};
  for (int b = 0; b < buckets.size(); ++b) {
    if (!has(b)) continue;
    const Bucket& bucket = buckets[b];
    const spec::BucketLayout& layout = bucket.layout();
    const size_t view = index(b);
    const auto at = static_cast<size_t>(b);
    ranges_[at] = {next[view], next[view] + layout.scales};
    std::vector<Tensor>& of_layer = scales_[buckets.key(b).layer];
    of_layer.resize(bucket.specs().size());
    for (size_t e = 0; e < layout.entries.size(); ++e) {
      const spec::BucketEntry& entry = layout.entries[e];
      const spec::MatrixShape m =
          spec::matrix_shape(bucket.specs()[static_cast<size_t>(entry.param)], plan.mesh);
      const base::Shape one = spec::scale_spec(shape_, m.rows, m.cols).shape;
      const int64_t first = next[view] + layout.first_scale[e], count = m.count * one.elements();
      // A shard may have no elements of a parameter; its scales are written all the same.
      const int64_t begin = std::max(bucket.updated().begin, entry.offset);
      const int64_t end = std::min(bucket.updated().end, entry.offset + entry.elements);
      const bool has_any = begin < end;
      const Tensor scale = scale_[view].slice_rows(first, count);
      entries_[at].push_back(
          {m, entry.param,
           has_any ? spec::Range{begin - entry.offset, end - entry.offset} : spec::Range{},
           has_any ? begin - bucket.updated().begin : 0, amax_[view].slice_rows(first, count),
           scale});
      of_layer[static_cast<size_t>(entry.param)] =
          m.count > 1 || one.ndim() == 1 ? scale : scale.reshape(one);
    }
    next[view] += layout.scales;
  }
  for (const int layer : spec::layers_of_rank(model, plan, groups.coord()[spec::Axis::pp])) {
    std::vector<Tensor>& all = scales_[layer];
    all.resize(spec::params_of(model, layer).size());
  }
}

std::span<const Tensor> WeightCodes::scales(int layer) const {
  const auto found = scales_.find(layer);
  return found == scales_.end() ? std::span<const Tensor>{} : found->second;
}

Tensor WeightCodes::weights(int bucket, const Entry& entry) const {
  return state_.weights(bucket).floats().values.slice_rows(entry.first,
                                                           entry.held.end - entry.held.begin);
}

void WeightCodes::measure(int bucket) {
  if (!has(bucket)) return;
  const spec::Range& range = ranges_[static_cast<size_t>(bucket)];
  ops::fill(groups_.compute(),
            {.d = amax_[index(bucket)].slice_rows(range.begin, range.end - range.begin)});
  for (const Entry& entry : entries_[static_cast<size_t>(bucket)]) {
    if (entry.held.begin == entry.held.end) continue;
    ops::weight_amax(groups_.compute(), {.weights = weights(bucket, entry),
                                         .first = entry.held.begin,
                                         .count = entry.shape.count,
                                         .rows = entry.shape.rows,
                                         .cols = entry.shape.cols,
                                         .shape = shape_,
                                         .amax = entry.amax});
  }
}

void WeightCodes::reduce() {
  if (!is_sharded_) return;
  if (amax_[0]) groups_.reduce_amax(spec::ParamView::dense, amax_[0]);
  if (amax_[1]) groups_.reduce_amax(spec::ParamView::expert, amax_[1]);
}

void WeightCodes::quantize(int bucket, bool counts) {
  if (!has(bucket)) return;
  const Tensor codes = buckets_[bucket].own_params();
  const Tensor cells = counts ? numerics_.counts(buckets_.key(bucket).layer) : Tensor{};
  for (const Entry& entry : entries_[static_cast<size_t>(bucket)]) {
    kernels::WeightQuantizeArgs args{
        .weights = weights(bucket, entry),
        .first = entry.held.begin,
        .count = entry.shape.count,
        .rows = entry.shape.rows,
        .cols = entry.shape.cols,
        .shape = shape_,
        .amax = entry.amax,
        .codes = codes.slice_rows(entry.first, entry.held.end - entry.held.begin),
        .scale = entry.scale};
    if (const auto which = quantized_of(entry.param); which && cells) {
      args.counts = Numerics::cell(cells, *which);
      args.measures = numerics_.measures();
    }
    ops::weight_quantize(groups_.compute(), args);
  }
}

void WeightCodes::make(int bucket) {
  if (!has(bucket)) return;
  measure(bucket);
  const spec::Range& range = ranges_[static_cast<size_t>(bucket)];
  if (is_sharded_) {
    groups_.reduce_amax(buckets_.key(bucket).view,
                        amax_[index(bucket)].slice_rows(range.begin, range.end - range.begin));
  }
  quantize(bucket, false);
}

}  // namespace trireme::engine
