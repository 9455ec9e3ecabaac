// SPDX-License-Identifier: Apache-2.0
// Cuts the power after every operation of a workload and checks every state of the disk that may
// result: all of them for a short workload, a sample for a longer one (20,000 distinct disks; a
// million with TRIREME_FULL set).
#include <gtest/gtest.h>

#include <cstdlib>
#include <unordered_set>

#include "ckpt/generation/folder.h"
#include "crash_disk.h"
#include "workload.h"

namespace trireme::crashlab {
namespace {

constexpr uint64_t cut_seed = 5;

struct Logged {
  CrashDisk disk;
  Promises promises;
  explicit Logged(const Workload& workload)
      : promises(run(disk, workload, [&] { return disk.operations(); })) {}
};

TEST(PowerCutTest, every_state_of_a_short_workload_keeps_its_promises) {
  std::unordered_set<uint64_t> distinct;
  size_t images = 0, operations = 0;
  for (uint64_t order = 0; order < 4; ++order) {
    // Two ranks; data files of two and three pages, indexes and a manifest of a few sectors.
    const Workload workload{.small = {.rows = 60}, .is_short = true, .order = order};
    const Logged logged(workload);
    ASSERT_EQ(logged.promises.at(logged.disk.operations()), (std::vector<int64_t>{20}));
    operations += logged.disk.operations();
    for (size_t cut = 0; cut <= logged.disk.operations(); ++cut) {
      Every every;
      do {
        ++images;
        const auto image = logged.disk.image(cut, every);
        distinct.insert(hash_of(*image).low);
        // Also counts repeated disks: a later cut has more promises to keep.
        ASSERT_EQ(broken_promise(*image, logged.promises.at(cut), workload), "")
            << "order " << order << ", cut after operation " << cut;
      } while (every.next());
    }
  }
  std::printf("%zu operations, %zu images, %zu distinct\n", operations, images, distinct.size());
  EXPECT_GT(distinct.size(), 400U);
}

TEST(PowerCutTest, sampled_states_of_a_longer_workload_keep_their_promises) {
  const bool is_full = std::getenv("TRIREME_FULL") != nullptr;
  const size_t orders = is_full ? 500 : 20, wanted = is_full ? 2'000 : 1'000;
  std::printf("seed %llu\n", static_cast<unsigned long long>(cut_seed));
  std::unordered_set<uint64_t> distinct;
  size_t samples = 0, operations = 0;
  for (uint64_t order = 0; order < orders; ++order) {
    const Workload workload{.small = {.rows = 1000, .ranks = 3}, .order = cut_seed + 1'000 * order};
    const Logged logged(workload);
    operations += logged.disk.operations();
    const std::vector<size_t> writes = logged.disk.after_large_writes();
    for (size_t tries = 0; distinct.size() < (order + 1) * wanted; ++tries) {
      ASSERT_LT(tries, 100 * wanted) << distinct.size() << " distinct images";
      Dice dice(cut_seed + 1'000'003 * samples++);
      const size_t cut = samples % 4 == 0 ? dice.pick(logged.disk.operations() + 1)
                                          : writes[dice.pick(writes.size())];
      const auto image = logged.disk.image(cut, dice);
      if (!distinct.insert(hash_of(*image).low).second) continue;
      ASSERT_EQ(broken_promise(*image, logged.promises.at(cut), workload), "")
          << "order " << order << ", sample " << samples - 1 << ", cut after operation " << cut;
    }
  }
  std::printf("%zu operations, %zu distinct images of %zu\n", operations, distinct.size(), samples);
}

// A run resumes from what is left, and the power is cut again.
TEST(PowerCutTest, a_second_power_cut_loses_nothing_either) {
  const Workload workload{.small = {.rows = 400}};
  const Logged logged(workload);
  for (uint64_t sample = 0; sample < 300; ++sample) {
    Dice dice(cut_seed + 77 * sample);
    const size_t cut = dice.pick(logged.disk.operations() + 1);
    const auto left = logged.disk.image(cut, dice);
    const std::vector<int64_t> before = ckpt::committed_steps(*left, root);
    CrashDisk disk(*left);
    const size_t start = disk.operations();
    const int64_t next = (before.empty() ? 0 : before.front()) + 10;
    ckpt::remove_leftovers(disk, root);
    if (disk.exists("/run")) {
      ckpt::save_small(disk, root, next, workload.small);
    }
    const size_t end = disk.operations();
    for (int second = 0; second < 5; ++second) {
      const size_t at = start + dice.pick(end - start + 1);
      auto promised = logged.promises.at(cut);
      if (at == end && disk.exists("/run")) promised.push_back(next);
      const auto image = disk.image(at, dice);
      ASSERT_EQ(broken_promise(*image, promised, workload), "")
          << "sample " << sample << ", cuts " << cut << " and " << at;
    }
  }
}

}  // namespace
}  // namespace trireme::crashlab
