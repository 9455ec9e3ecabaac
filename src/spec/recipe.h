// SPDX-License-Identifier: Apache-2.0
// Recipe: which number format is used where. A GEMM operand looks its format up by role, and a
// layer its recipe by layer_recipe().
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/shape.h"

namespace trireme::spec {

struct ModelSpec;

// Recipes, named as in configurations. The engine supports all but fp4.
enum class Precision : uint8_t {
  fp32,
  bf16,
  fp8,  // "fp8-tensor": one scale for each tensor, of the values at hand
  fp4,
  fp16,         // with a loss scale
  fp8_block,    // "fp8-block": a scale for 128 values of a row, or for 128 x 128 of a weight
  fp8_delayed,  // "fp8-delayed": one scale for each tensor, of the steps before
  count
};
std::string_view name_of(Precision);
// Also accepts the spellings of base/text/type_spelling.h, and "fp8" for fp8-tensor.
std::optional<Precision> precision_from_name(std::string_view);
constexpr bool is_fp8(Precision p) {
  return p == Precision::fp8 || p == Precision::fp8_block || p == Precision::fp8_delayed;
}

// The operands of the three products of a linear map.
enum class Role : uint8_t { x_fwd, w_fwd, dy_dgrad, w_dgrad, x_wgrad, dy_wgrad, count };

// Which values of a matrix share a scale: all, 128 consecutive ones of a row, or 128 x 128.
enum class ScaleShape : uint8_t { tensor, row_128, block_128 };
constexpr int64_t scale_block = 128;

// Returns the tensor of scales of a [rows, cols] matrix, f32: [1] (tensor), [cols / 128, rows +
// pad] (row_128) or [rows / 128, cols / 128 + pad] (block_128). Both quotients are rounded up, and
// padded last dimensions to a multiple of 4, as the matrix library of NVIDIA GPUs requires. Padding
// is not written.
base::TensorSpec scale_spec(ScaleShape, int64_t rows, int64_t cols);

// Returns the memory of a [rows, cols] matrix in 8 bits, u8: its codes, then, from a multiple of
// 256 bytes on, its scales.
base::TensorSpec codes_spec(ScaleShape, int64_t rows, int64_t cols);
constexpr int64_t scales_offset(int64_t rows, int64_t cols) {
  return base::round_up(rows * cols, 256);
}

// How the products of blocks are computed in 8 bits. Codes times their scale are the values.
struct Float8Recipe {
  ScaleShape rows = ScaleShape::tensor;     // of activations and gradients, along k of the product
  ScaleShape weights = ScaleShape::tensor;  // transposing a weight transposes its scales
  bool fast_forward = true;                 // forward products may keep fewer bits while they sum
  bool is_delayed = false;  // scales are those of the largest values of `history` steps before
  int history = 0;
  bool operator==(const Float8Recipe&) const = default;

  // Is the largest magnitude of a tensor found before the tensor is quantised?
  bool finds_amax() const { return rows == ScaleShape::tensor && !is_delayed; }
  // Tokens of a micro-batch on a rank and widths of products must be multiples of it.
  int64_t grain() const { return rows == ScaleShape::tensor ? 16 : scale_block; }
};

// The matrices of a block that are quantised, as rows of its numerics.
enum class Quantized : uint8_t {
  h1,   // input of the qkv product; the tensors are named as in BlockSlot
  o,    // of the out product
  h2,   // of the up product; rows of experts
  act,  // of the down product; rows of experts
  dqkv,
  dx2,
  dup,
  dy,
  qkv_weight,
  out_weight,
  up_weight,
  down_weight,
  count
};
std::string_view name_of(Quantized);
constexpr int quantized_count = static_cast<int>(Quantized::count);
constexpr bool is_weight(Quantized q) { return q >= Quantized::qkv_weight; }
constexpr bool is_gradient(Quantized q) { return q >= Quantized::dqkv && q <= Quantized::dy; }

struct Recipe {
  std::string name;
  base::DType storage = base::DType::f32;                          // of parameters and activations
  std::array<base::DType, static_cast<size_t>(Role::count)> gemm;  // operand types by role
  base::DType grad = base::DType::f32;  // of accumulated parameter gradients
  // In the recipe of a plan: blocks may have products in 8 bits, and their weight matrices have
  // buckets without other parameters. In that of a layer (layer_recipe()): its products are in 8
  // bits.
  std::optional<Float8Recipe> fp8;
  // Blocks that stay in the storage type although fp8 is present: so many at both ends of the
  // model, and these, in ascending order.
  int first_blocks = 0, last_blocks = 0;
  std::vector<int> other_blocks;
  bool operator==(const Recipe&) const = default;

  // Master weights exist if parameters are stored in less than fp32.
  bool has_master() const { return storage != base::DType::f32; }
  bool has_loss_scale() const { return storage == base::DType::f16; }
  base::DType format(Role role) const { return gemm[static_cast<size_t>(role)]; }
  base::DType format(Quantized) const;  // REQUIRES: fp8
};

// Accepts the names of Precision except fp4; throws ConfigError for others. Gradients accumulate in
// fp32 and no block stays in bf16 unless the caller changes it.
Recipe recipe_from_name(const std::string& name);
// REQUIRES: not fp4.
Recipe recipe_of(Precision);

// Returns the recipe as a layer follows it: without fp8 unless it is a block whose products are in
// 8 bits.
Recipe layer_recipe(const Recipe&, const ModelSpec&, int layer);

}  // namespace trireme::spec
