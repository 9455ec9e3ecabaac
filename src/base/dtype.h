// SPDX-License-Identifier: Apache-2.0
// Element types, and bf16 as a storage type: arithmetic is always done in fp32 or fp64. fp16 is in
// float16.h, the 8-bit formats are in float8.h.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

namespace trireme::base {

enum class DType : uint8_t { f32, bf16, f8e4m3, f8e5m2, f64, i32, i64, u8, u16, f16 };

constexpr bool is_float8(DType dtype) { return dtype == DType::f8e4m3 || dtype == DType::f8e5m2; }

// The types of parameters, activations and their gradients.
constexpr bool is_real(DType dtype) {
  return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16;
}

int64_t size_of(DType);
std::string_view name_of(DType);
// Throws ConfigError unless `name` is one that name_of() returns.
DType dtype_from_name(std::string_view name);

// The upper 16 bits of an fp32. Rounds to nearest, ties to even; a NaN stays a (quiet) NaN.
struct Bf16 {
  uint16_t bits = 0;

  Bf16() = default;
  explicit Bf16(float value) {
    const auto u = std::bit_cast<uint32_t>(value);
    const uint32_t rounded = (u + 0x7fffU + ((u >> 16) & 1U)) >> 16;
    const uint32_t quiet_nan = (u >> 16) | 0x40U;
    bits = static_cast<uint16_t>((u & 0x7fffffffU) > 0x7f800000U ? quiet_nan : rounded);
  }
  explicit operator float() const {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }
  bool operator==(const Bf16&) const = default;
};

}  // namespace trireme::base
