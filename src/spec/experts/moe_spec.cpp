// SPDX-License-Identifier: Apache-2.0
#include "spec/experts/moe_spec.h"

namespace trireme::spec {
namespace {

constexpr std::array<std::string_view, static_cast<size_t>(AuxScope::count)> scope_names = {
    "sequence", "micro_batch", "global"};

}  // namespace

std::string_view name_of(AuxScope scope) { return scope_names[static_cast<size_t>(scope)]; }

std::optional<AuxScope> aux_scope_from_name(std::string_view name) {
  for (size_t i = 0; i < scope_names.size(); ++i) {
    if (scope_names[i] == name) return static_cast<AuxScope>(i);
  }
  return {};
}

}  // namespace trireme::spec
