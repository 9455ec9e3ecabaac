// SPDX-License-Identifier: Apache-2.0
// Elements of safetensors files as fp32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "ckpt/hf/safetensors.h"

namespace trireme::ckpt {

// F32, BF16, F16 and F64 are.
bool is_readable(std::string_view dtype);

// Fills `values` with the elements from `first` on. REQUIRES: they exist; is_readable(view.dtype).
void decode(const SafetensorsView& view, int64_t first, std::span<float> values);

// Whole pages of a mapped file that lie in `bytes` leave this process's memory, and come back when
// they are read again.
void drop_pages(std::span<const std::byte> bytes);

}  // namespace trireme::ckpt
