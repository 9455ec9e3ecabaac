// SPDX-License-Identifier: Apache-2.0
#include "tests/launch/launch_rig.h"

#include <fmt/format.h>

#include <fstream>
#include <regex>

#include "comm/store/store_wire.h"
#include "comm/threads.h"
#include "kernels/table.h"
#include "tests/launch/exercise.h"

namespace trireme::tests {

Words launch_words(int ranks, double deadline_s, const Words& more) {
  Words words = {"launch",
                 "-n",
                 std::to_string(ranks),
                 "--program",
                 TRIREME_RANK_PROGRAM,
                 "--deadline",
                 fmt::format("{}", deadline_s),
                 "--flight",
                 "flight"};
  words.insert(words.end(), more.begin(), more.end());
  return trireme_command(words);
}

pid_t process_of(const Scratch& scratch, int rank) {
  const std::string name = fmt::format("rank{}.pid", rank);
  if (!scratch.has(name)) return 0;
  return static_cast<pid_t>(comm::integer_from(scratch.read(name)).value_or(0));
}
bool all_loop(const Scratch& scratch, int ranks) {
  for (int rank = 0; rank < ranks; ++rank) {
    if (process_of(scratch, rank) == 0) return false;
  }
  return true;
}
Words left_over(const Scratch& scratch, int ranks) {
  Words left;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t process = process_of(scratch, rank);
    std::ifstream status(fmt::format("/proc/{}/stat", process));
    std::string id, name, state;
    if (process > 0 && status >> id >> name >> state && state != "Z" && name == "(rank_program)") {
      left.push_back(std::to_string(rank));
    }
  }
  return left;
}

std::string first_error(const std::string& err) {
  const std::regex line(R"((?:^|\n)(?:\[rank\d+\]: )?error: ([^\n]*))");
  std::smatch found;
  return std::regex_search(err, found, line) ? found[1].str() : "";
}

std::vector<std::string> thread_hashes(int ranks, device::StreamMode streams) {
  comm::ThreadWorld world(ranks, 60);
  std::vector<std::string> hashes(static_cast<size_t>(ranks));
  comm::run_ranks(world, [&](int rank) {
    device::CpuDevice device(kernels::cpu_kernels(), {.threads = 1, .streams = streams});
    const auto group = world.communicator(rank, {.name = "world", .deadline_s = 60});
    hashes[static_cast<size_t>(rank)] = exercise(*group, device);
  });
  return hashes;
}

}  // namespace trireme::tests
