// SPDX-License-Identifier: Apache-2.0
// Maps our parameters to the tensors of Hugging Face files: names, and which rows of a parameter
// each tensor holds. Both sides rotate the two halves of a head (RoPE), so nothing is permuted.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "spec/model.h"
#include "spec/parallel/shard.h"

namespace trireme::ckpt {

// One tensor of a file: rows [first_row, first_row + rows) of one of our parameters. The rows of
// the matrices of a parameter with three dimensions (experts) are counted one after the other; a
// tensor lies in one matrix.
struct HfTensor {
  std::string name;
  std::vector<int64_t> shape;  // as in the file
  int64_t first_row = 0, rows = 0;
  bool is_transposed = false;  // the file has [in, out], we have [out, in]

  int64_t elements() const;
};

struct HfParam {
  std::string name;  // ours, as in spec::params_of()
  std::vector<int64_t> shape;
  std::vector<HfTensor> tensors;  // in the order of rows

  int64_t elements() const;
  int64_t columns() const;  // 1 for a vector
  int64_t rows() const;     // of all matrices
  // Returns the row behind the last one of the matrix that has row `first`.
  int64_t matrix_end(int64_t first) const;
  // Returns the box of these rows and columns. REQUIRES: they lie in one matrix.
  spec::Piece box(spec::Range rows, spec::Range columns) const;
  spec::Piece box(spec::Range rows) const { return box(rows, {0, columns()}); }
};

// Calls each(rows, columns, element) for the parts of a box that lie in one matrix; `element` is
// the first of the part in the row-major box.
void for_each_matrix(
    const HfParam&, const spec::Piece& box,
    const std::function<void(spec::Range rows, spec::Range columns, int64_t element)>& each);

// Returns every parameter of the model once, in the order of its layers. A tied head has no tensor.
std::vector<HfParam> hf_params(const spec::ModelDims&);

// Returns the prefix that GPT-2's tensors carry in some files and lack in others: "transformer.",
// or an empty string for other families.
std::string_view optional_prefix(spec::Family);

// Returns whether a tensor may be in a file although the model has no such weight: constants that
// old writers stored (rotary frequencies, GPT-2's causal masks). REQUIRES: `name` has no optional
// prefix.
bool is_constant(spec::Family, std::string_view name);

}  // namespace trireme::ckpt
