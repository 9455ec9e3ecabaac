// SPDX-License-Identifier: Apache-2.0
// The check of verify() on what routers counted: every rank must have the statistics and biases of
// one rank after every step, in all layers with experts that it has.
#pragma once

#include <optional>

#include "train/verify/verify_checks.h"

namespace trireme::train {

struct RoutingCheck {
  VerifyCheck check;
  bool begins_wrong = false;  // at the first step
};
// Returns nothing if the model has no experts.
std::optional<RoutingCheck> routing_of(const CheckedRun&);

}  // namespace trireme::train
