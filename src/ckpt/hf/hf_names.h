// SPDX-License-Identifier: Apache-2.0
// Maps our parameters to the tensors of Hugging Face files: names, and which rows of a parameter
// each tensor holds. Both sides rotate the two halves of a head (RoPE), so nothing is permuted.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "spec/model.h"

namespace trireme::ckpt {

// One tensor of a file: rows [first_row, first_row + rows) of one of our parameters.
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
};

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
