// SPDX-License-Identifier: Apache-2.0
// When this process started, as the system recorded it.
#pragma once

namespace trireme::obs {

// Returns seconds since 1970, at most 10 ms (a tick of the system's clock) after the true start;
// the current time if the system does not tell.
double process_start_seconds();

}  // namespace trireme::obs
