// SPDX-License-Identifier: Apache-2.0
#include "spec/recipe.h"

#include "base/check.h"
#include "base/error.h"

namespace trireme::spec {

Recipe recipe_from_name(const std::string& name) {
  if (name != "fp32" && name != "bf16") {
    throw base::ConfigError(
        fmt::format("'{}' is not a recipe of this build; allowed are fp32 and bf16", name));
  }
  Recipe recipe;
  recipe.name = name;
  recipe.storage = name == "fp32" ? base::DType::f32 : base::DType::bf16;
  recipe.gemm.fill({.dtype = recipe.storage});
  return recipe;
}

}  // namespace trireme::spec
