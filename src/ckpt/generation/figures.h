// SPDX-License-Identifier: Apache-2.0
// Summary statistics of one tensor of a checkpoint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "ckpt/disk/hash.h"
#include "ckpt/generation/generation.h"

namespace trireme::ckpt {

// Returns the element at `at`, or nothing for types that are not read as numbers (8-bit floats).
std::optional<double> number_at(base::DType, const std::byte* at);

struct TensorFigures {
  Hash hash;  // of all elements in row-major order: the same for every layout
  int64_t elements = 0, not_finite = 0;
  // Over the finite elements; 0 if there are none, or if the type is not read as numbers.
  double min = 0, max = 0, mean = 0, rms = 0;
};

// Needs the memory of one window. Throws as Generation::read() does.
TensorFigures figures_of(const Generation&, const TensorInfo&);

}  // namespace trireme::ckpt
