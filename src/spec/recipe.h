// SPDX-License-Identifier: Apache-2.0
// Recipe: which number format is used where. A GEMM operand looks its format up by role.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/dtype.h"

namespace trireme::spec {

// Formats of matrix products, named as in configurations. The engine supports fp32 and bf16.
enum class Precision : uint8_t { fp32, bf16, fp8, fp4, count };
std::string_view name_of(Precision);
// Also accepts the spellings of base/text/type_spelling.h.
std::optional<Precision> precision_from_name(std::string_view);

enum class Role : uint8_t { x_fwd, w_fwd, dy_dgrad, w_dgrad, x_wgrad, dy_wgrad, count };

struct Recipe {
  std::string name;
  base::DType storage = base::DType::f32;                          // of parameters and activations
  std::array<base::DType, static_cast<size_t>(Role::count)> gemm;  // operand types by role
  base::DType grad = base::DType::f32;  // of accumulated parameter gradients
  bool operator==(const Recipe&) const = default;

  // Master weights exist if parameters are stored in less than fp32.
  bool has_master() const { return storage != base::DType::f32; }
};

// Accepts "fp32" and "bf16"; throws ConfigError for others. Gradients accumulate in fp32 unless the
// caller changes it.
Recipe recipe_from_name(const std::string& name);
// REQUIRES: fp32 or bf16.
Recipe recipe_of(Precision);

}  // namespace trireme::spec
