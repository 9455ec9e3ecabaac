// SPDX-License-Identifier: Apache-2.0
// Reads a tensor of a checkpoint from front to back, window by window, in the memory of one window,
// independent of the layout that saved it and of its size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "ckpt/generation/generation.h"

namespace trireme::ckpt {

constexpr int64_t window_bytes = int64_t{32} << 20;

int64_t elements_of(const TensorInfo&);

// Fills `bytes` with the elements from `first` on, in row-major order. REQUIRES: the elements
// exist, and `bytes` is a whole number of them. Throws as Generation::read() does.
void read_flat(const Generation&, const TensorInfo&, int64_t first, std::span<std::byte> bytes);

// Calls each(range) for consecutive ranges that cover the tensor, each of at most window_bytes.
void for_each_window(const TensorInfo&, const std::function<void(spec::Range)>& each);

}  // namespace trireme::ckpt
