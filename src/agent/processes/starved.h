// SPDX-License-Identifier: Apache-2.0
// Whether a process lacks a processor: what distinguishes a rank that is late because its host is
// busy from one that is stopped.
#pragma once

#include <sys/types.h>

namespace trireme::agent {

// Returns whether a thread of the process is ready to run, or runs, at this moment; not if all of
// them wait or are stopped, and not if the process cannot be read.
bool has_ready_thread(pid_t process);

}  // namespace trireme::agent
