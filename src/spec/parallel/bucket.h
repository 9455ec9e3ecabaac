// SPDX-License-Identifier: Apache-2.0
// The parameters of one layer that have the same view of the mesh, as one flat vector, which is
// gathered, reduced and updated as a unit.
// Parameters, gradients, master weights and moments all use the same element offsets. Parameters
// with weight decay come first, so an optimizer gets at most two flat ranges per bucket; in each of
// the two, parameters that are cut along tp come first. Every layer has a dense bucket, which is
// its first.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "spec/facts/facts.h"
#include "spec/parallel/mesh_view.h"

namespace trireme::spec {

struct BucketEntry {
  int param = 0;  // index into the layer's params
  int64_t offset = 0, elements = 0;
  bool operator==(const BucketEntry&) const = default;
};

// The parameters of a layer that form one bucket: those of a view, and of these the ones with
// Param::is_matrix, or the others.
struct BucketKind {
  ParamView view = ParamView::dense;
  bool is_matrix = false;
  base::DType storage = base::DType::f32;  // of its parameters
  bool operator==(const BucketKind&) const = default;

  // Are parameters codes of 8 bits? Then their fp32 weights are the optimizer's, with scales
  // beside.
  bool has_codes() const { return base::is_float8(storage); }
  bool is_like(const BucketKind& other) const {
    return view == other.view && is_matrix == other.is_matrix;
  }
};

// What the ranges of a bucket on ranks depend on, and the bytes of its parameters.
struct BucketSize {
  int64_t elements = 0;  // with padding
  ParamView view = ParamView::dense;
  bool is_matrix = false;
  base::DType storage = base::DType::f32;
  int64_t scales = 0;  // of codes, see BucketLayout

  BucketKind kind() const { return {view, is_matrix, storage}; }
};

struct BucketLayout {
  ParamView view = ParamView::dense;
  bool is_matrix = false;
  base::DType storage = base::DType::f32;
  // If parameters are codes: the first scale of each entry, and the number of all.
  std::vector<int64_t> first_scale;
  int64_t scales = 0;
  std::vector<BucketEntry> entries;
  int64_t decayed = 0;   // elements [0, decayed) have weight decay
  int64_t matrices = 0;  // elements [0, matrices) are those of Param::matrices
  // Parameters that are cut along tp, or along ep and etp: with weight decay, and without.
  std::array<Range, 2> cut;
  // Parameters replicated along tp whose gradient is partial only under sequence parallelism
  // (Param::is_by_rows), with weight decay and without, and those whose gradient is always partial.
  Range by_rows_decayed, by_rows, partial;
  // Gradients that must start at zero: all except those that the first product of a leaf overwrites
  // (Param::is_written).
  std::vector<Range> zeroed;
  // With padding: each entry to the shard grain, the total to a multiple of one grain for each of
  // the ranks of the view.
  int64_t elements = 0;

  BucketSize size() const { return {elements, view, is_matrix, storage, scales}; }
  bool has_codes() const { return base::is_float8(storage); }
};

// Returns `elements` padded for a bucket whose gradients `ranks` ranks sum.
int64_t padded_elements(int64_t elements, int64_t ranks);

// Returns the kinds of a layer's buckets: by view in the order of the enum, and matrices after
// the others of the view. `recipe` is that of a plan.
std::vector<BucketKind> bucket_kinds(const ModelSpec&, int layer, const Recipe& recipe);
// Tied copies, parameters that the layer does not have (empty shape) and those of other kinds are
// left out. `weights`: the shape of the scales of codes.
BucketLayout bucket_layout(std::span<const Param>, const Sizes&, const BucketKind&,
                           ScaleShape weights = ScaleShape::tensor);
// The same for parameters without Param::is_matrix.
BucketLayout bucket_layout(std::span<const Param>, const Sizes&, ParamView = ParamView::dense);
// Returns all buckets of a layer, in the order of bucket_kinds().
std::vector<BucketLayout> layer_buckets(const ModelSpec&, int layer, const Recipe&, const Sizes&);

// The matrices of a parameter on a rank, one after the other.
struct MatrixShape {
  int64_t count = 1, rows = 0, cols = 0;
};
// REQUIRES: two or three dimensions.
MatrixShape matrix_shape(const Param&, const Sizes&);

}  // namespace trireme::spec
