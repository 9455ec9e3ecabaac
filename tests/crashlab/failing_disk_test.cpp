// SPDX-License-Identifier: Apache-2.0
// Injects an error and a full disk at every operation, once and permanently, followed by a power
// cut: what was committed stays, and the next save on a healthy disk works.
#include "failing_disk.h"

#include <gtest/gtest.h>

#include "ckpt/generation/folder.h"
#include "crash_disk.h"
#include "workload.h"

namespace trireme::crashlab {
namespace {

TEST(FailingDiskTest, an_error_at_any_operation_loses_nothing_that_was_committed) {
  const Workload workload{.small = {.rows = 400}};
  int64_t operations = 0;
  {
    ckpt::MemoryDisk memory;
    FailingDisk disk(memory, {});
    run(disk, workload, [] { return 0; });
    operations = disk.operations();
  }
  ASSERT_GT(operations, 100);
  size_t committed = 0, images = 0;
  for (int64_t at = 0; at < operations; ++at) {
    for (const bool is_full : {false, true}) {
      for (const bool for_good : {false, true}) {
        CrashDisk below;
        FailingDisk disk(below, {.operation = at, .for_good = for_good, .is_full = is_full});
        const Promises promises = run(disk, workload, [&] { return below.operations(); });
        const std::string where = "operation " + std::to_string(at) +
                                  (is_full ? " full" : " failed") + (for_good ? " for good" : "");
        // While the machine keeps running.
        const std::vector<int64_t> promised = promises.at(below.operations());
        ASSERT_EQ(broken_promise(below, promised, workload), "") << where;
        committed += promised.size();
        for (uint64_t sample = 0; sample < 4; ++sample, ++images) {
          Dice dice(static_cast<uint64_t>(at) * 100 + sample);
          const size_t cut = dice.pick(below.operations() + 1);
          ASSERT_EQ(broken_promise(*below.image(cut, dice), promises.at(cut), workload), "")
              << where << ", sample " << sample << ", cut " << cut;
        }
        // The disk works again.
        ckpt::remove_leftovers(below, root);
        ckpt::save_small(below, root, 90, workload.small);
        auto later = promised;
        later.push_back(90);
        ASSERT_EQ(broken_promise(below, later, workload), "") << where;
      }
    }
  }
  std::printf("%lld operations, %zu images, %zu checkpoints kept\n",
              static_cast<long long>(operations), images, committed);
}

TEST(FailingDiskTest, errors_of_parallel_writers_end_all_of_them) {
  // Six chunks, four in flight; the disk's exception is thrown, and no thread is left.
  const ckpt::SmallGeneration small{.rows = 500'000, .ranks = 1};
  for (int64_t at = 2; at < 12; ++at) {
    ckpt::MemoryDisk memory;
    FailingDisk disk(memory, {.operation = at, .for_good = true, .is_full = at % 2 == 0});
    if (at % 2 == 0) {
      EXPECT_THROW(ckpt::save_small(disk, root, 1, small, {.queue_depth = 4}), ckpt::NoSpace);
    } else {
      EXPECT_THROW(ckpt::save_small(disk, root, 1, small, {.queue_depth = 4}), base::IoError);
    }
    EXPECT_TRUE(ckpt::committed_steps(memory, root).empty());
  }
}

TEST(FailingDiskTest, a_load_from_a_failing_disk_ends_with_its_error) {
  ckpt::MemoryDisk memory;
  const ckpt::SmallGeneration small{.rows = 500'000};
  ckpt::save_small(memory, root, 10, small);
  int64_t operations = 0;
  for (int64_t at = 0; at == 0 || at < operations; ++at) {
    FailingDisk disk(memory, {.operation = at == 0 ? -1 : at - 1});
    const auto load_all = [&] {
      const auto generation = ckpt::Generation::open(disk, "/run/step-00000010");
      return ckpt::loaded_small(generation, small, {.queue_depth = 4});
    };
    if (at == 0) {
      EXPECT_EQ(load_all(), ckpt::content_of_small(10, small));
      operations = disk.operations();
      ASSERT_GT(operations, 16);
      continue;
    }
    // Workers open a file when they reach it, so late operations may not happen.
    if (at < operations - 8) {
      EXPECT_THROW(load_all(), base::IoError) << at;
    }
  }
}

}  // namespace
}  // namespace trireme::crashlab
