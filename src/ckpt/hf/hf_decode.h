// SPDX-License-Identifier: Apache-2.0
// Converts elements of safetensors files to fp32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "ckpt/hf/safetensors.h"

namespace trireme::ckpt {

// True for F32, BF16, F16 and F64.
bool is_readable(std::string_view dtype);

// Fills `values` with the elements from `first` on. REQUIRES: they exist; is_readable(view.dtype).
void decode(const SafetensorsView& view, int64_t first, std::span<float> values);

// Releases the whole pages of a mapped file within `bytes`; they are read from disk again on the
// next access.
void drop_pages(std::span<const std::byte> bytes);

}  // namespace trireme::ckpt
