// SPDX-License-Identifier: Apache-2.0
#include "spec/recipe.h"

#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "base/text/type_spelling.h"
#include "spec/model.h"

namespace trireme::spec {
namespace {

using base::DType;

constexpr std::array<std::string_view, static_cast<size_t>(Precision::count)> precision_names = {
    "fp32", "bf16", "fp8-tensor", "fp4", "fp16", "fp8-block", "fp8-delayed"};
constexpr std::array<std::string_view, quantized_count> quantized_names = {
    "h1",  "o",  "h2",         "act",        "dqkv",      "dx2",
    "dup", "dy", "qkv_weight", "out_weight", "up_weight", "down_weight"};

// Steps whose largest values delayed scaling remembers.
constexpr int default_history = 16;

Float8Recipe float8_recipe(Precision precision) {
  if (precision == Precision::fp8_block) {
    return {.rows = ScaleShape::row_128, .weights = ScaleShape::block_128, .fast_forward = false};
  }
  if (precision == Precision::fp8_delayed) return {.is_delayed = true, .history = default_history};
  return {};
}

[[noreturn]] void refuse_recipe(std::string_view name) {
  throw base::ConfigError(
      fmt::format("'{}' is not a recipe of this build; allowed are fp32, bf16, fp16, fp8-tensor, "
                  "fp8-block and fp8-delayed",
                  name));
}

}  // namespace

std::string_view name_of(Precision precision) {
  return precision_names[static_cast<size_t>(precision)];
}

std::string_view name_of(Quantized quantized) {
  return quantized_names[static_cast<size_t>(quantized)];
}

std::optional<Precision> precision_from_name(std::string_view word) {
  if (word == "fp8") return Precision::fp8;
  const auto type = base::short_type_name(word);
  const std::string_view name = type == "f32"   ? "fp32"
                                : type == "f16" ? "fp16"
                                                : type.value_or(word);
  for (size_t i = 0; i < precision_names.size(); ++i) {
    if (precision_names[i] == name) return static_cast<Precision>(i);
  }
  return {};
}

base::TensorSpec scale_spec(ScaleShape shape, int64_t rows, int64_t cols) {
  const auto blocks = [](int64_t n) { return (n + scale_block - 1) / scale_block; };
  switch (shape) {
    case ScaleShape::tensor:
      return {{1}, DType::f32};
    case ScaleShape::row_128:
      return {{blocks(cols), base::round_up(rows, 4)}, DType::f32};
    case ScaleShape::block_128:
      return {{blocks(rows), base::round_up(blocks(cols), 4)}, DType::f32};
  }
  TRIREME_CHECK(false, "scale shape {}", static_cast<int>(shape));
  return {};
}

base::TensorSpec codes_spec(ScaleShape shape, int64_t rows, int64_t cols) {
  const base::TensorSpec scales = scale_spec(shape, rows, cols);
  return {{scales_offset(rows, cols) + scales.shape.elements() * base::size_of(scales.dtype)},
          DType::u8};
}

DType Recipe::format(Quantized quantized) const {
  return format(is_weight(quantized)     ? Role::w_fwd
                : is_gradient(quantized) ? Role::dy_dgrad
                                         : Role::x_fwd);
}

Recipe recipe_from_name(const std::string& name) {
  const std::optional<Precision> precision = precision_from_name(name);
  if (!precision) refuse_recipe(name);
  return recipe_of(*precision);
}

Recipe recipe_of(Precision precision) {
  if (precision == Precision::fp4) refuse_recipe(name_of(precision));
  Recipe recipe;
  recipe.name = name_of(precision);
  recipe.storage = precision == Precision::fp32   ? DType::f32
                   : precision == Precision::fp16 ? DType::f16
                                                  : DType::bf16;
  recipe.gemm.fill(recipe.storage);
  if (!is_fp8(precision)) return recipe;
  recipe.fp8 = float8_recipe(precision);
  recipe.gemm.fill(DType::f8e4m3);
  if (precision != Precision::fp8_block) {
    for (const Role role : {Role::dy_dgrad, Role::dy_wgrad}) {
      recipe.gemm[static_cast<size_t>(role)] = DType::f8e5m2;
    }
  }
  return recipe;
}

Recipe layer_recipe(const Recipe& recipe, const ModelSpec& model, int layer) {
  if (!recipe.fp8) return recipe;
  const bool is_block = std::holds_alternative<BlockSpec>(model.layers[static_cast<size_t>(layer)]);
  const int block = layer - 1, blocks = model.blocks();
  if (is_block && block >= recipe.first_blocks && block < blocks - recipe.last_blocks &&
      !std::ranges::binary_search(recipe.other_blocks, block)) {
    return recipe;
  }
  Recipe plain = recipe;
  plain.fp8.reset();
  plain.gemm.fill(plain.storage);
  return plain;
}

}  // namespace trireme::spec
