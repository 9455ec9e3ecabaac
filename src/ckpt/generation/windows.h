// SPDX-License-Identifier: Apache-2.0
// A tensor of a generation from front to back, a window after the other: whatever layout saved it,
// and however large it is, memory is that of one window.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "ckpt/generation/generation.h"

namespace trireme::ckpt {

constexpr int64_t window_bytes = int64_t{32} << 20;

int64_t elements_of(const TensorInfo&);

// Fills `bytes` with the elements from `first` on, in row-major order. REQUIRES: they exist; a
// whole number of them. Throws as Generation::read().
void read_flat(const Generation&, const TensorInfo&, int64_t first, std::span<std::byte> bytes);

// Calls each(range) for consecutive ranges of elements that fill all of the tensor, each of at most
// window_bytes.
void for_each_window(const TensorInfo&, const std::function<void(spec::Range)>& each);

}  // namespace trireme::ckpt
