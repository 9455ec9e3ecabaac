// SPDX-License-Identifier: Apache-2.0
// Measures the machine that this process runs on and fits the constants of its file.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "config/config.h"
#include "plan/validate/fit_machine.h"
#include "spec/machine.h"
#include "train/setup/setup.h"

namespace trireme::train {

struct CalibrationOptions {
  std::string name = "this-machine";
  bool is_quick = false;              // fewer shapes, fewer repetitions
  std::optional<spec::Machine> like;  // where a GPU's links, network and fp8 are copied from
  // Called before each of the two parts ("operations", "steps") with the number of measurements,
  // and after each measurement. May be empty.
  std::function<void(std::string_view part, int64_t total)> begin;
  std::function<void(std::string_view what)> measured;
};

struct Calibration {
  spec::Machine machine;
  plan::Times times;    // that the constants were fitted to
  size_t steps = 0;     // whole steps that were timed
  std::string warning;  // what was wrong with the measurement; empty if nothing was
};

// `platform` is made for `system`. Throws ConfigError for `like` on a CPU, whose links are
// measured.
Calibration calibrate(const config::System& system, Platform& platform, const CalibrationOptions&);

}  // namespace trireme::train
