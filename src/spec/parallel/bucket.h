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

// What the ranges of a bucket on ranks depend on.
struct BucketSize {
  int64_t elements = 0;  // with padding
  ParamView view = ParamView::dense;
};

struct BucketLayout {
  ParamView view = ParamView::dense;
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

  BucketSize size() const { return {elements, view}; }
};

// Returns `elements` padded for a bucket whose gradients `ranks` ranks sum.
int64_t padded_elements(int64_t elements, int64_t ranks);

// Returns the views that a layer's parameters have, each once, in the order of the enum.
std::vector<ParamView> views_of(std::span<const Param>);
// Tied copies, parameters that the layer does not have (empty shape) and those of other views are
// left out.
BucketLayout bucket_layout(std::span<const Param>, const Sizes&, ParamView = ParamView::dense);

}  // namespace trireme::spec
