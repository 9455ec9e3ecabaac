// SPDX-License-Identifier: Apache-2.0
#include "spec/recipe.h"

#include "base/check.h"
#include "base/error.h"
#include "base/text/type_spelling.h"

namespace trireme::spec {
namespace {

constexpr std::array<std::string_view, static_cast<size_t>(Precision::count)> precision_names = {
    "fp32", "bf16", "fp8", "fp4"};

}  // namespace

std::string_view name_of(Precision precision) {
  return precision_names[static_cast<size_t>(precision)];
}

std::optional<Precision> precision_from_name(std::string_view word) {
  const auto type = base::short_type_name(word);
  const std::string_view name = type == "f32" ? "fp32" : type.value_or(word);
  for (size_t i = 0; i < precision_names.size(); ++i) {
    if (precision_names[i] == name) return static_cast<Precision>(i);
  }
  return {};
}

Recipe recipe_of(Precision precision) { return recipe_from_name(std::string(name_of(precision))); }

Recipe recipe_from_name(const std::string& name) {
  if (name != "fp32" && name != "bf16") {
    throw base::ConfigError(
        fmt::format("'{}' is not a recipe of this build; allowed are fp32 and bf16", name));
  }
  Recipe recipe;
  recipe.name = name;
  recipe.storage = name == "fp32" ? base::DType::f32 : base::DType::bf16;
  recipe.gemm.fill(recipe.storage);
  return recipe;
}

}  // namespace trireme::spec
