// SPDX-License-Identifier: Apache-2.0
#include "ckpt/hf/safetensors_layout.h"

#include <algorithm>
#include <array>

#include "base/check.h"

namespace trireme::ckpt {

namespace {

struct DTypeBits {
  std::string_view name;
  int bits;
};

// By ascending alignment, in the order in which the reference writer ranks them.
constexpr std::array dtype_table = {
    DTypeBits{"BOOL", 8},        DTypeBits{"F4", 4},          DTypeBits{"F6_E2M3", 6},
    DTypeBits{"F6_E3M2", 6},     DTypeBits{"U8", 8},          DTypeBits{"I8", 8},
    DTypeBits{"F8_E5M2", 8},     DTypeBits{"F8_E4M3", 8},     DTypeBits{"F8_E8M0", 8},
    DTypeBits{"F8_E4M3FNUZ", 8}, DTypeBits{"F8_E5M2FNUZ", 8}, DTypeBits{"I16", 16},
    DTypeBits{"U16", 16},        DTypeBits{"F16", 16},        DTypeBits{"BF16", 16},
    DTypeBits{"I32", 32},        DTypeBits{"U32", 32},        DTypeBits{"F32", 32},
    DTypeBits{"C64", 64},        DTypeBits{"F64", 64},        DTypeBits{"I64", 64},
    DTypeBits{"U64", 64},
};

}  // namespace

int dtype_rank(std::string_view dtype) {
  const auto found = std::find_if(dtype_table.begin(), dtype_table.end(),
                                  [&](const DTypeBits& row) { return row.name == dtype; });
  return found == dtype_table.end() ? -1 : static_cast<int>(found - dtype_table.begin());
}

std::string known_dtypes() {
  std::string names;
  for (const DTypeBits& row : dtype_table) {
    if (!names.empty()) names += ", ";
    names += row.name;
  }
  return names;
}

std::optional<int64_t> tensor_bytes(std::string_view dtype, const std::vector<int64_t>& shape) {
  const int rank = dtype_rank(dtype);
  TRIREME_CHECK(rank >= 0, "dtype '{}'; known are {}", dtype, known_dtypes());
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  int64_t bits = dtype_table[static_cast<size_t>(rank)].bits;
  for (const int64_t dim : shape) {
    if (dim < 0 || __builtin_mul_overflow(bits, dim, &bits)) return std::nullopt;
  }
  if (bits % 8 != 0) return std::nullopt;
  return bits / 8;
}

}  // namespace trireme::ckpt
