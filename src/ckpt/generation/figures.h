// SPDX-License-Identifier: Apache-2.0
// A tensor of a generation in a few numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "ckpt/generation/generation.h"
#include "ckpt/disk/hash.h"

namespace trireme::ckpt {

// The element at `at`; nothing for types that are not read as numbers (8-bit floats).
std::optional<double> number_at(base::DType, const std::byte* at);

struct TensorFigures {
  Hash hash;  // of all elements in row-major order: the same for every layout
  int64_t elements = 0, not_finite = 0;
  // Of the finite elements; 0 where there is none, or the type is not read as numbers.
  double min = 0, max = 0, mean = 0, rms = 0;
};

// Memory: one window. Throws as Generation::read().
TensorFigures figures_of(const Generation&, const TensorInfo&);

}  // namespace trireme::ckpt
