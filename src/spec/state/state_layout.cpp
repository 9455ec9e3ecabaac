// SPDX-License-Identifier: Apache-2.0
#include "spec/state/state_layout.h"

#include <algorithm>

#include "base/check.h"
#include "spec/parallel/data_parallel.h"

namespace trireme::spec {

std::vector<StateTensor> state_of(const ModelSpec& model, int layer, const Plan& plan) {
  std::vector<StateTensor> all = state_of(model, layer, plan.optimizer, plan.recipe);
  return plan.inference ? inference_state(all) : all;
}

std::vector<StateTensor> bucket_state(std::span<const StateTensor> state,
                                      const BucketLayout& bucket) {
  std::vector<StateTensor> own(state.begin(), state.end());
  if (!bucket.has_codes()) return own;
  for (StateTensor& tensor : own) {
    if (tensor.name == weight_state) tensor.dtype = base::DType::f32;
  }
  return own;
}

std::array<base::TensorSpec, 2> weight_scale_specs(std::span<const BucketLayout> buckets) {
  std::array<int64_t, 2> scales{};
  for (const BucketLayout& bucket : buckets) {
    scales[bucket.view == ParamView::expert ? 1 : 0] += bucket.scales;
  }
  std::array<base::TensorSpec, 2> specs;
  for (size_t i = 0; i < specs.size(); ++i) {
    if (scales[i] > 0) specs[i] = {{scales[i]}, base::DType::f32};
  }
  return specs;
}

Range covered_range(const StateTensor& tensor, const BucketLayout& layout) {
  TRIREME_CHECK(!tensor.is_own(), "'{}' is not part of a bucket", tensor.name);
  switch (tensor.covers) {
    case StateCover::matrices:
      return {0, layout.matrices};
    case StateCover::others:
      return {layout.matrices, layout.elements};
    default:
      return {0, layout.elements};
  }
}

Range state_range(const StateTensor& tensor, const Plan& plan, const Coord& coord,
                  const BucketLayout& layout) {
  const Range updated = updated_range(plan, coord, layout.size());
  const Range covered = covered_range(tensor, layout);
  const int64_t begin = std::max(updated.begin, covered.begin);
  return {begin, std::max(begin, std::min(updated.end, covered.end))};
}

base::TensorSpec own_state_spec(const StateTensor& tensor, const Sizes& sizes) {
  TRIREME_CHECK(tensor.is_own() && tensor.dtype == base::DType::f32, "own tensor '{}'",
                tensor.name);
  return {{local_elements(tensor.shard, sizes)}, tensor.dtype};
}

bool is_cut_along_tp(const StateTensor& tensor) {
  return std::ranges::any_of(tensor.shard.cuts,
                             [](const Cut& cut) { return cut.axis == Axis::tp; });
}

StateBytes state_bytes(std::span<const StateTensor> state, const Plan& plan,
                       const BucketLayout& layout) {
  StateBytes bytes;
  const auto size = [](const Range& range) { return range.end - range.begin; };
  // Matrices come first in a bucket, so the first or the last shard has most elements.
  Coord last;
  for (const Axis axis : mesh_view(layout.view).shard) last[axis] = plan.mesh[axis] - 1;
  for (const Coord& coord : {Coord{}, last}) {
    int64_t elements = 0;
    for (const StateTensor& tensor : state) {
      if (tensor.is_own() || tensor.name == weight_state) continue;
      TRIREME_CHECK(tensor.dtype == base::DType::f32, "'{}' is not fp32", tensor.name);
      elements += size(state_range(tensor, plan, coord, layout));
    }
    bytes.elements = std::max(bytes.elements, elements);
  }
  bytes.total = base::bytes_of({{bytes.elements}, base::DType::f32});
  for (const StateTensor& tensor : state) {
    if (tensor.is_own()) {
      bytes.total += base::bytes_of(own_state_spec(tensor, plan.mesh));
    } else if (tensor.name == weight_state && !tensor.is_param) {
      bytes.total += base::bytes_of({{size(state_range(tensor, plan, {}, layout))}, tensor.dtype});
    }
  }
  return bytes;
}

int64_t state_traffic(std::span<const StateTensor> state, const Plan& plan) {
  const Sizes& sizes = plan.mesh;
  int64_t bytes = 0;
  for (const StateTensor& tensor : state) {
    if (tensor.reduction == StateReduction::none) continue;
    const int64_t own = own_state_spec(tensor, sizes).shape.elements();
    const bool is_max = tensor.reduction == StateReduction::max;
    const auto sent = [&](int ranks) {
      if (is_max) return (ranks - 1) * own * base::size_of(tensor.dtype);
      return sent_bytes({CommKind::all_reduce, Axis::tp, own, tensor.dtype}, ranks);
    };
    bytes += sent(sum_ranks(sizes));
    const bool is_along_tp = is_max || plan.layout.sequence_parallel;
    if (is_along_tp && !is_cut_along_tp(tensor)) bytes += sent(sizes[Axis::tp]);
  }
  return bytes;
}

}  // namespace trireme::spec
