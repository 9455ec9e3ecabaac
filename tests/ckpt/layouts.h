// SPDX-License-Identifier: Apache-2.0
// The pieces that the ranks of a layout save and load, by the trainer's rules
// (spec/parallel/bucket.h, spec/parallel/data_parallel.h) but without a trainer.
#pragma once

#include <string>
#include <vector>

#include "ckpt/generation/generation.h"
#include "ckpt/generation/save.h"
#include "spec/model.h"
#include "spec/parallel/axes.h"

namespace trireme::ckpt_tests {

struct Layout {
  int dp = 1, zero = 1, tp = 1, pp = 1;
  int ep = 1, etp = 1;  // 1 for a model without experts
  int ranks() const { return dp * zero * tp * pp; }
  std::string name() const;
};

// Returns all layouts of up to `max_ranks` ranks whose degrees divide the model.
std::vector<Layout> all_layouts(const spec::ModelSpec&, int max_ranks);

// Weights and two moments of every parameter, unsharded, with distinct values.
struct State {
  std::vector<ckpt::TensorInfo> tensors;
  std::vector<std::vector<float>> values;  // by tensor, row-major
  size_t find(const std::string& name) const;
};
State state_of(const spec::ModelSpec&);

// A rank's part of its layers' buckets: everything that it updates (wanted_by), or the part that
// only it saves (saved_by).
struct Held {
  std::vector<ckpt::TensorPieces> tensors;  // Piece::local counts from the start of the memory
  int64_t elements = 0;
};
Held saved_by(const spec::ModelSpec&, const Layout&, int rank);
Held wanted_by(const spec::ModelSpec&, const Layout&, int rank);

// Writes a generation as this layout saves it.
void save(ckpt::Disk&, const std::filesystem::path& root, int64_t step, const spec::ModelSpec&,
          const Layout&, const State&);

// Loads the part of every rank and compares. Returns the first difference; empty: none.
std::string load_and_compare(const ckpt::Generation&, const spec::ModelSpec&, const Layout&,
                             const State&);

}  // namespace trireme::ckpt_tests
