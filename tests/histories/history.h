// SPDX-License-Identifier: Apache-2.0
// Random histories of a run under `trireme launch`: a configuration, a layout, and the list of what
// happens to its processes. A history is a pure function of its seed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trireme::tests {

enum class Harm : uint8_t {
  kill_rank,
  kill_two_ranks,   // at once
  freeze_rank,      // SIGSTOP, and nothing after it
  kill_supervisor,  // of the launcher
  kill_guardian,    // likewise
  stop,             // SIGTERM, and --resume=auto when the job has ended
  kill_all,         // the same without a save
};
const char* name_of(Harm);

struct Happening {
  Harm harm = Harm::kill_rank;
  int rank = 0;
  int64_t steps_later = 0;  // than the newest step when the one before happened; 0: at once
  double more_seconds = 0;  // after that step was seen
};

// Which layouts: those with the bits of one rank, and those that sum in another order than one rank
// does, whose bits are the same in every run of that layout.
enum class LayoutKind : uint8_t { exact, near };

struct History {
  uint64_t seed = 0;
  int ranks = 1;
  int spares = 0;
  int64_t steps = 0;
  std::string config;  // history.toml
  std::vector<Happening> happenings;
};
History history_of(uint64_t seed, LayoutKind);
std::string to_text(
    const History&);  // "ranks 4, spares 0: kill_rank 2 after 12 steps + 0.01 s, ..."

// Writes history.toml and the models and texts that it names.
void write_files(const History&, const std::string& folder);

}  // namespace trireme::tests
