// SPDX-License-Identifier: Apache-2.0
#include "spec/facts/state.h"

#include "base/check.h"
#include "spec/facts/facts.h"

namespace trireme::spec {

bool covers(const StateTensor& tensor, const Param& param) {
  switch (tensor.covers) {
    case StateCover::all:
      return true;
    case StateCover::matrices:
      return !param.matrices.empty();
    case StateCover::others:
      return param.matrices.empty();
    case StateCover::own:
      return false;
  }
  return false;
}

std::string saved_name(const StateTensor& tensor, std::string_view owner) {
  return tensor.saved_as + "/" + std::string(owner);
}

std::vector<StateTensor> optimizer_state(const OptimizerTypes& types, const Recipe& recipe,
                                         std::span<const Param> /*params*/) {
  const StateTensor weight{.name = weight_state,
                           .saved_as = "weight",
                           .dtype = recipe.has_master() ? types.master : recipe.storage,
                           .is_param = !recipe.has_master()};
  return {weight,
          {.name = "adamw.first_moment", .saved_as = "m"},
          {.name = "adamw.second_moment", .saved_as = "v"}};
}

}  // namespace trireme::spec
