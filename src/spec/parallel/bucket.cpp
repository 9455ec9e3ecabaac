// SPDX-License-Identifier: Apache-2.0
#include "spec/parallel/bucket.h"

#include <algorithm>

#include "base/check.h"
#include "base/shape.h"

namespace trireme::spec {
namespace {

constexpr int64_t scale_grain = 4;

// Parameters of the same kind along tp are adjacent, in this order.
enum class ParamKind : uint8_t { cut, copy, by_rows, partial };

ParamKind kind_of(const Param& param) {
  if (param.view == ParamView::expert) return ParamKind::cut;
  const bool is_cut = std::any_of(param.shard.cuts.begin(), param.shard.cuts.end(),
                                  [](const Cut& cut) { return cut.axis == Axis::tp; });
  if (is_cut) return ParamKind::cut;
  if (param.is_by_rows) return ParamKind::by_rows;
  return is_partial_along_tp(param, false) ? ParamKind::partial : ParamKind::copy;
}

// Ranks along ep and etp count different elements of an expert bucket in the gradient norm and save
// different ones, so every parameter in it is cut along both.
void check_expert(const Param& param) {
  if (param.view != ParamView::expert) return;
  for (const Axis axis : {Axis::ep, Axis::etp}) {
    TRIREME_CHECK(
        std::ranges::any_of(param.shard.cuts, [axis](const Cut& cut) { return cut.axis == axis; }),
        "'{}' is a parameter of experts, but is not cut along {}", param.shard.name, name_of(axis));
  }
}

// Returns the ranges between the entries that are written, in order.
std::vector<Range> gaps(std::span<const Param> params, const BucketLayout& layout) {
  std::vector<Range> all;
  int64_t begin = 0;
  const auto add = [&](int64_t end) {
    if (begin < end) all.push_back({begin, end});
  };
  for (const BucketEntry& entry : layout.entries) {
    if (!params[static_cast<size_t>(entry.param)].is_written) continue;
    add(entry.offset);
    begin = entry.offset + entry.elements;
  }
  add(layout.elements);
  return all;
}

// Returns where the entries with Param::matrices end. They come before all others.
int64_t end_of_matrices(std::span<const Param> params, const BucketLayout& layout) {
  int64_t end = 0;
  for (const BucketEntry& entry : layout.entries) {
    if (params[static_cast<size_t>(entry.param)].matrices.empty()) continue;
    TRIREME_CHECK(entry.offset == end, "a matrix at element {}, after other parameters",
                  entry.offset);
    end += base::round_up(entry.elements, shard_grain_elements);
  }
  return end;
}

}  // namespace

int64_t padded_elements(int64_t elements, int64_t ranks) {
  return base::round_up(elements, shard_grain_elements * ranks);
}

std::vector<BucketKind> bucket_kinds(const ModelSpec& model, int layer, const Recipe& recipe) {
  const std::vector<Param> params = params_of(model, layer, recipe);
  const Recipe own = layer_recipe(recipe, model, layer);
  std::vector<BucketKind> kinds;
  for (int i = 0; i < static_cast<int>(ParamView::count); ++i) {
    for (const bool is_matrix : {false, true}) {
      const bool has_codes = is_matrix && own.fp8;
      const BucketKind kind{static_cast<ParamView>(i), is_matrix,
                            has_codes ? own.format(Role::w_fwd) : own.storage};
      const auto is_in = [&](const Param& param) {
        return !param.shard.shape.empty() && param.view == kind.view &&
               param.is_matrix == kind.is_matrix;
      };
      if (std::ranges::any_of(params, is_in)) kinds.push_back(kind);
    }
  }
  return kinds;
}

MatrixShape matrix_shape(const Param& param, const Sizes& sizes) {
  const std::vector<int64_t> dims = local_shape(param.shard, sizes);
  TRIREME_CHECK(dims.size() == 2 || dims.size() == 3, "'{}' has {} dimensions", param.shard.name,
                dims.size());
  const bool is_list = dims.size() == 3;
  return {is_list ? dims[0] : 1, dims[is_list ? 1 : 0], dims.back()};
}

std::vector<BucketLayout> layer_buckets(const ModelSpec& model, int layer, const Recipe& recipe,
                                        const Sizes& sizes) {
  const std::vector<Param> params = params_of(model, layer, recipe);
  std::vector<BucketLayout> layouts;
  for (const BucketKind& kind : bucket_kinds(model, layer, recipe)) {
    layouts.push_back(
        bucket_layout(params, sizes, kind, recipe.fp8 ? recipe.fp8->weights : ScaleShape::tensor));
  }
  return layouts;
}

BucketLayout bucket_layout(std::span<const Param> params, const Sizes& sizes, ParamView view) {
  return bucket_layout(params, sizes, BucketKind{view});
}

BucketLayout bucket_layout(std::span<const Param> params, const Sizes& sizes,
                           const BucketKind& kind, ScaleShape weights) {
  BucketLayout layout;
  const ParamView view = kind.view;
  layout.view = view;
  layout.is_matrix = kind.is_matrix;
  layout.storage = kind.storage;
  const auto add = [&](bool decays, ParamKind which) {
    const int64_t begin = layout.elements;
    for (size_t i = 0; i < params.size(); ++i) {
      const Param& param = params[i];
      if (param.tied_copy || param.shard.shape.empty() || param.view != view ||
          param.is_matrix != layout.is_matrix || param.decays != decays || kind_of(param) != which) {
        continue;
      }
      const int64_t elements = local_elements(param.shard, sizes);
      layout.entries.push_back({static_cast<int>(i), layout.elements, elements});
      layout.elements += base::round_up(elements, shard_grain_elements);
    }
    return Range{begin, layout.elements};
  };
  layout.cut[0] = add(true, ParamKind::cut);
  add(true, ParamKind::copy);
  layout.by_rows_decayed = add(true, ParamKind::by_rows);
  layout.decayed = layout.elements;
  layout.cut[1] = add(false, ParamKind::cut);
  add(false, ParamKind::copy);
  layout.by_rows = add(false, ParamKind::by_rows);
  layout.partial = add(false, ParamKind::partial);
  const auto is_left_out = [](const Param& param) {
    return param.decays && !param.shard.shape.empty() && kind_of(param) == ParamKind::partial;
  };
  TRIREME_CHECK(std::none_of(params.begin(), params.end(), is_left_out),
                "a parameter with weight decay whose gradient is partial along tp");
  for (const BucketEntry& entry : layout.entries) {
    const Param& param = params[static_cast<size_t>(entry.param)];
    check_expert(param);
    if (!kind.has_codes()) continue;
    const MatrixShape m = matrix_shape(param, sizes);
    layout.first_scale.push_back(layout.scales);
    // Scales of a product begin at a multiple of 16 bytes, as matrix libraries require.
    layout.scales += base::round_up(m.count * scale_spec(weights, m.rows, m.cols).shape.elements(),
                                    scale_grain);
  }
  layout.matrices = end_of_matrices(params, layout);
  layout.elements = padded_elements(layout.elements, mesh_view(view).ranks(sizes));
  layout.zeroed = gaps(params, layout);
  return layout;
}

}  // namespace trireme::spec
