// SPDX-License-Identifier: Apache-2.0
#include "spec/state/state.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "spec/facts/facts.h"

namespace trireme::spec {
namespace {

constexpr std::array<std::string_view, 2> names = {"adamw", "muon"};
static_assert(names.size() == static_cast<size_t>(OptimizerKind::count));

}  // namespace

std::vector<StateTensor> inference_state(std::span<const StateTensor> state) {
  std::vector<StateTensor> kept;
  std::ranges::copy_if(state, std::back_inserter(kept),
                       [](const StateTensor& tensor) { return tensor.is_input; });
  return kept;
}

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

std::string_view name_of(OptimizerKind kind) { return names[static_cast<size_t>(kind)]; }

std::optional<OptimizerKind> optimizer_from_name(std::string_view name) {
  const auto found = std::ranges::find(names, name);
  if (found == names.end()) return {};
  return static_cast<OptimizerKind>(found - names.begin());
}

std::vector<StateTensor> optimizer_state(const OptimizerTypes& types, const Recipe& recipe) {
  const StateTensor weight{.name = weight_state,
                           .saved_as = "weight",
                           .dtype = recipe.has_master() ? types.master : recipe.storage,
                           .is_param = !recipe.has_master()};
  const bool is_muon = types.kind == OptimizerKind::muon;
  const StateCover moments = is_muon ? StateCover::others : StateCover::all;
  std::vector<StateTensor> all = {weight};
  if (is_muon) {
    all.push_back({.name = momentum_state, .saved_as = "momentum", .covers = StateCover::matrices});
  }
  all.push_back({.name = first_moment_state, .saved_as = "m", .covers = moments});
  all.push_back({.name = second_moment_state, .saved_as = "v", .covers = moments});
  return all;
}

}  // namespace trireme::spec
