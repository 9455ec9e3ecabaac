// SPDX-License-Identifier: Apache-2.0
// Norms of q and k over their whole width, and limits on q, k and v: their gradients are slopes of
// the loss.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/engine/rig.h"

namespace trireme::tests {
namespace {

double loss_of(Rig& rig) {
  rig.engine.accumulate(rig.source);
  rig.engine.apply(0);  // changes no weight
  return rig.engine.report().mean_loss;
}

// Moves a parameter along its gradient by `step`, both ways, and compares the slope of the loss
// with the squared length of the gradient. The loss is computed in fp32, and few values cross a
// limit in between: slopes agree to about 1e-3.
void expect_slope(Rig& rig, const std::string& name) {
  const std::vector<float> weights = rig.engine.read_weights(name);
  rig.engine.accumulate(rig.source);
  const std::vector<float> sums = rig.engine.read_grads(name);
  rig.engine.apply(0);
  const auto tokens = static_cast<double>(rig.engine.report().tokens);
  double squares = 0;
  for (const float sum : sums) squares += std::pow(static_cast<double>(sum) / tokens, 2);
  ASSERT_GT(squares, 0) << name;
  const double step = 2e-3 / std::sqrt(squares);
  const auto moved = [&](double by) {
    std::vector<float> changed = weights;
    for (size_t i = 0; i < changed.size(); ++i) {
      changed[i] += static_cast<float>(by * static_cast<double>(sums[i]) / tokens);
    }
    rig.engine.write_weights(name, changed);
    return loss_of(rig);
  };
  const double above = moved(step), below = moved(-step);
  rig.engine.write_weights(name, weights);
  EXPECT_NEAR((above - below) / (2 * step), squares, 0.02 * squares) << name;
}

TEST(RotationTest, gradients_are_slopes_of_the_loss) {
  for (spec::ModelDims dims : {tiny_whole_norm(), tiny_clipped()}) {
    SCOPED_TRACE(dims.name);
    dims.init_std = 0.2F;
    Rig rig({.dims = dims});
    int checked = 0;
    for (const auto& param : rig.engine.parameters()) {
      const bool is_attention = param.name.find("qkv") != std::string::npos ||
                                param.name.find("_norm") != std::string::npos ||
                                param.name.find("norm1") != std::string::npos;
      if (!is_attention) continue;
      ++checked;
      expect_slope(rig, param.name);
    }
    EXPECT_GE(checked, 2 * dims.layers);
  }
}

// Without limits that any value exceeds, limits change nothing; with them, they do.
TEST(RotationTest, limits_act_where_values_exceed_them) {
  for (spec::ModelDims dims : {tiny_whole_norm(), tiny_clipped()}) {
    SCOPED_TRACE(dims.name);
    const auto loss_with = [&](float limit) {
      dims.clip_qkv = limit;
      Rig rig({.dims = dims});
      return loss_of(rig);
    };
    EXPECT_EQ(loss_with(1e6F), loss_with(0));
    EXPECT_NE(loss_with(0.25F), loss_with(0));
  }
}

}  // namespace
}  // namespace trireme::tests
