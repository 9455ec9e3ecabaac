// SPDX-License-Identifier: Apache-2.0
// The time by which a launcher measures spans.
#pragma once

#include "comm/clock.h"

namespace trireme::agent {

// In seconds, of a steady clock.
inline double now() { return comm::seconds_of(comm::Clock::now()); }

}  // namespace trireme::agent
