// SPDX-License-Identifier: Apache-2.0
// Shared by tests of ranks as processes: launching rank_program, and finding its remaining
// processes.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "device/cpu/cpu_device.h"
#include "tests/cli/program.h"

namespace trireme::tests {

using Words = std::vector<std::string>;

// Returns the words of `trireme launch` of rank_program; `more` are options of either.
Words launch_words(int ranks, double deadline_s, const Words& more);

// ---- for ranks in mode loop
pid_t process_of(const Scratch& scratch, int rank);  // 0 until it has begun
bool all_loop(const Scratch& scratch, int ranks);
// Returns the ranks with a live process. A zombie does not count.
Words left_over(const Scratch& scratch, int ranks);

// Returns the text of the first line with "error: ".
std::string first_error(const std::string& err);

// Returns the results of exercise() with ranks as threads, on the CPU.
std::vector<std::string> thread_hashes(int ranks, device::StreamMode streams);

}  // namespace trireme::tests
