// SPDX-License-Identifier: Apache-2.0
// For tests: schedules by name, with their messages.
#pragma once

#include <string_view>

#include "schedule/catalogue.h"

namespace trireme::sim {

inline schedule::Schedule made(std::string_view name, int ranks, int microbatches) {
  return schedule::add_p2p(schedule::generate(name, {ranks, microbatches, 0}).value());
}

}  // namespace trireme::sim
