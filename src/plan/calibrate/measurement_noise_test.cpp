// SPDX-License-Identifier: Apache-2.0
#include "plan/calibrate/measurement_noise.h"

#include <gtest/gtest.h>

namespace trireme::plan {
namespace {

TEST(MeasurementNoise, a_busy_machine_is_named_and_its_figures_fit_a_file) {
  spec::Machine quiet;
  quiet.time_error = 0.1;
  quiet.step_factor = 1.2;
  EXPECT_EQ(clamp_noise(quiet), "");
  EXPECT_EQ(quiet.time_error, 0.1);
  EXPECT_EQ(quiet.step_factor, 1.2);

  spec::Machine busy = quiet;
  busy.time_error = 1.003;
  busy.step_factor = 7;
  const std::string noise = clamp_noise(busy);
  EXPECT_NE(noise.find("the machine was busy"), std::string::npos) << noise;
  EXPECT_NE(noise.find("Measure again"), std::string::npos) << noise;
  EXPECT_EQ(busy.time_error, 1);
  EXPECT_EQ(busy.step_factor, 5);
}

}  // namespace
}  // namespace trireme::plan
