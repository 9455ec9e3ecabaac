// SPDX-License-Identifier: Apache-2.0
// The matrices that Muon updates: where a rank's part of each lies in its bucket, the memory of
// Newton-Schulz iterations, and which of the ranks with the same parameters computes which matrix.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "spec/facts/facts.h"
#include "spec/parallel/bucket.h"
#include "spec/plan.h"

namespace trireme::spec {

struct MuonMatrix {
  int64_t rows = 0, cols = 0;              // of the whole matrix
  int64_t local_rows = 0, local_cols = 0;  // of a rank's part along tp
  int64_t offset = 0;                      // of that part in the bucket

  int64_t elements() const { return rows * cols; }
  int64_t local_elements() const { return local_rows * local_cols; }
  bool operator==(const MuonMatrix&) const = default;
};

// Returns the FLOPs of one Newton-Schulz iteration (optim/newton_schulz.h).
double iteration_flops(const MuonMatrix&);
constexpr int default_iterations = 5;

// Returns the matrices of a bucket, in its order; the parts of a rank are contiguous.
std::vector<MuonMatrix> muon_matrices(std::span<const Param>, const BucketLayout&, const Sizes&);

// Tensors that an update of the bucket needs at one time, in this order: the momentum of the whole
// bucket; the two matrices and the two squares of Newton-Schulz; one WideSum. Without matrices:
// no tensors.
ScratchSet muon_scratch(std::span<const MuonMatrix>, const BucketLayout&);

// Returns the rank, of `ranks` that share the work, that computes each matrix: matrices in the
// order of their FLOPs, each to the rank with the fewest so far.
std::vector<int> muon_owners(std::span<const MuonMatrix>, int ranks);

// Returns the bytes that a rank sends for one update of a layer: momentum to the ranks that share
// its state; of the matrices that it computes, momentum along tp, and directions to all ranks with
// the same parameters. 0 for other optimizers.
int64_t muon_traffic(const Plan&, const Coord&, std::span<const Param>);

}  // namespace trireme::spec
