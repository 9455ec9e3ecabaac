// SPDX-License-Identifier: Apache-2.0
// What tests of ranks as processes share: how rank_program is launched, and what is left of it.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "device/cpu/cpu_device.h"
#include "tests/cli/program.h"

namespace trireme::tests {

using Words = std::vector<std::string>;

// `trireme launch` of rank_program; `more` are options of either.
Words launch_words(int ranks, double deadline_s, const Words& more);

// ---- of ranks that loop
pid_t process_of(const Scratch& scratch, int rank);  // 0 as long as it does not
bool all_loop(const Scratch& scratch, int ranks);
// Ranks of which a process is left. A zombie is not.
Words left_over(const Scratch& scratch, int ranks);

// The first line that says "error: ".
std::string first_error(const std::string& err);

// exercise() of ranks as threads, on the CPU.
std::vector<std::string> thread_hashes(int ranks, device::StreamMode streams);

}  // namespace trireme::tests
