// SPDX-License-Identifier: Apache-2.0
// A process outlives its groups: engines of several ranks are built and closed again and again,
// half of them aborted in a step; nothing is left behind, and later runs have the bits of the
// first.
#include <gtest/gtest.h>
#include <malloc.h>

#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/ranks/ranks_rig.h"

namespace trireme::tests {
namespace {

int64_t entries_of(const char* folder) {
  return std::distance(std::filesystem::directory_iterator(folder),
                       std::filesystem::directory_iterator());
}
int64_t open_descriptors() { return entries_of("/proc/self/fd"); }
int64_t running_threads() { return entries_of("/proc/self/task"); }
// The memory of all threads; 0 under a sanitizer, which has its own allocator.
int64_t allocated_bytes() {
  const struct mallinfo2 memory = ::mallinfo2();
  return static_cast<int64_t>(memory.uordblks + memory.hblkhd);
}

std::vector<Layout> lives() {
  const auto workers = device::StreamMode::worker_threads;
  return {{.dims = tiny_llama(), .dp = 2, .logical_dp = 2},
          {.dims = tiny_llama(), .zero = 2, .stage = 3, .logical_dp = 2, .streams = workers},
          {.dims = tiny_llama(), .tp = 2, .sequence_parallel = true, .logical_dp = 1},
          {.dims = tiny_llama(), .cp = 2, .logical_dp = 1, .seq_len = 8},
          {.dims = tiny_llama(), .pp = 2, .logical_dp = 2, .streams = workers},
          {.dims = tiny_llama(), .zero = 2, .stage = 1, .pp = 2, .logical_dp = 2}};
}

// The last rank fails before its second step, which the others have begun.
void abort_in_a_step(const Layout& layout) {
  const auto body = [](RankRig& rig) {
    rig.engine.step(rig.source, 1e-3);
    rig.next_step();
    comm::Communicator& world = rig.mesh.world();
    if (world.rank() == world.size() - 1) throw std::runtime_error("planted");
    rig.engine.step(rig.source, 1e-3);
    rig.engine.compute().synchronize();
    world.barrier();
  };
  try {
    run_layout(layout, body);
    ADD_FAILURE() << "the planted error is lost";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "planted");
  }
}

// 36 engines of two or four ranks; 1,000 with TRIREME_FULL=1.
TEST(LivesTest, engines_are_built_and_closed_many_times) {
  const std::vector<Layout> layouts = lives();
  const int rounds = std::getenv("TRIREME_FULL") != nullptr ? 167 : 6;
  std::vector<std::string> quiet;
  for (const Layout& layout : layouts) quiet.push_back(train_layout(layout, 2));
  abort_in_a_step(layouts.front());
  const int64_t descriptors = open_descriptors(), threads = running_threads();
  const int64_t bytes = allocated_bytes();
  for (int round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < layouts.size(); ++i) {
      SCOPED_TRACE(to_string(layouts[i]));
      if (round % 2 == 0) {
        abort_in_a_step(layouts[i]);
      } else {
        EXPECT_EQ(train_layout(layouts[i], 2), quiet[i]);
      }
    }
  }
  EXPECT_EQ(open_descriptors(), descriptors);
  EXPECT_EQ(running_threads(), threads);
  // The smallest of these engines holds 100 KiB, and a world with its flight recorders as much. One
  // that is left behind in fifty lives would be found; caches of threads vary by less.
  const auto lives_lived = static_cast<int64_t>(rounds * std::ssize(layouts));
  EXPECT_LE(allocated_bytes() - bytes, (int64_t{64} << 10) + lives_lived * 2048);
}

}  // namespace
}  // namespace trireme::tests
