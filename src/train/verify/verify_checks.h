// SPDX-License-Identifier: Apache-2.0
// The checks of verify() on a layout that ran, each with a hint where to look if it fails.
#pragma once

#include <vector>

#include "train/verify/verify_run.h"

namespace trireme::train {

// Errors that the recipe and the layout may have, relative to one fp32 rank.
struct VerifyBounds {
  double loss = 0, norm = 0, grads = 0, weights = 0;
  bool same_bits = false;  // as one rank with the same recipe
};
VerifyBounds bounds_of(const spec::Plan&, const spec::Backend&);

struct CheckedRun {
  const spec::ModelSpec& model;
  const spec::Plan& plan;
  const RankRecord& reference;  // one fp32 rank
  const RankRecord& twin;       // one rank with the plan's recipe
  const LayoutResult& layout;
  VerifyBounds bounds;
};

// Returns the checks in the order in which to read them: the first that fails is nearest to the
// cause.
std::vector<VerifyCheck> checks_of(const CheckedRun&);

}  // namespace trireme::train
