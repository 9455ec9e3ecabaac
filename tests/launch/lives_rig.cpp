// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <regex>

#include "comm/store/store_server.h"
#include "tests/launch/launch_rig.h"
#include "tests/launch/lives.h"

namespace trireme::tests {

std::string lives_of(int ranks, const std::string& options, double deadline_seconds) {
  const comm::StoreServer server({.host = "127.0.0.1", .grace_s = 0});
  // Every rank in the background; the shell ends with the first code that is not 0.
  std::string script = "pids=;";
  for (int rank = 0; rank < ranks; ++rank) {
    script +=
        fmt::format(" {} lives --rank={} --ranks={} --store=127.0.0.1:{} {} & pids=\"$pids $!\";",
                    TRIREME_RANK_PROGRAM, rank, ranks, server.port(), options);
  }
  script += " code=0; for pid in $pids; do wait $pid || code=$?; done; exit $code";
  const Scratch scratch;
  Running running(scratch.path(), {"/bin/sh", "-c", script},
                  {.deadline_seconds = deadline_seconds});
  const Outcome outcome = running.wait();
  EXPECT_EQ(outcome.exit_code, 0) << "-- stdout\n" << outcome.out << "\n-- stderr\n" << outcome.err;
  return outcome.out;
}

double expect_lives(const std::string& lines, int ranks, int64_t lives, bool is_nccl) {
  int64_t aborted = 0, sealed = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    std::smatch ends, growth;
    const std::regex end_line(
        fmt::format("rank {} lives {} aborted ([0-9]+) sealed ([0-9]+) wrong ([0-9]+) other "
                    "([0-9]+)\n",
                    rank, lives));
    const std::regex growth_line(
        fmt::format("rank {} grew by (-?[0-9]+) descriptors (-?[0-9]+) threads (-?[0-9]+) bytes "
                    "(-?[0-9]+) device bytes\n",
                    rank));
    if (!std::regex_search(lines, ends, end_line) ||
        !std::regex_search(lines, growth, growth_line)) {
      ADD_FAILURE() << "rank " << rank << " has not reported:\n" << lines;
      return 0;
    }
    aborted += std::stoll(ends[1]);
    sealed += std::stoll(ends[2]);
    EXPECT_EQ(std::stoll(ends[3]), 0) << lines;  // wrong states
    EXPECT_EQ(std::stoll(ends[4]), 0) << lines;  // other bits
    // NCCL 2.28 keeps descriptors and memory of a connection that an abort has interrupted. Of the
    // GPU's memory only the use of all processes is known, and other tests run beside this one.
    const int64_t leaks = is_nccl ? std::stoll(ends[1]) : 0;
    EXPECT_LE(std::stoll(growth[1]), leaks) << lines;
    EXPECT_LE(std::stoll(growth[2]), 0) << lines;
    // A tiny engine that is left behind holds more than 100 KiB of host memory; libraries' caches
    // grow a little.
    EXPECT_LE(std::stoll(growth[3]), lives * (int64_t{16} << 10) + leaks * (int64_t{64} << 10))
        << lines;
  }
  return aborted == 0 ? 1 : static_cast<double>(sealed) / static_cast<double>(aborted);
}

}  // namespace trireme::tests
