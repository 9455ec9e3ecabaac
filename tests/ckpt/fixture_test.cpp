// SPDX-License-Identifier: Apache-2.0
// Generations of every format version, kept as they were written: they must load forever, whatever
// this program writes today. Version 1 contains small_generation_test.h at step 7.
#include <gtest/gtest.h>

#include "ckpt/disk/memory_disk.h"
#include "ckpt/disk/posix_disk.h"
#include "ckpt/generation/generation.h"
#include "ckpt/generation/small_generation_test.h"

namespace trireme::ckpt_tests {
namespace {

std::filesystem::path fixture(int version) {
  return std::filesystem::path(TRIREME_SOURCE_DIR) / "tests/golden" /
         ("checkpoint_v" + std::to_string(version));
}

TEST(FixtureTest, version_1_loads) {
  const auto disk = ckpt::posix_disk();
  const auto found = ckpt::newest_good(*disk, fixture(1), ckpt::Verify::all);
  ASSERT_TRUE(found.generation) << found.skipped.at(0).problem;
  EXPECT_EQ(found.generation->manifest().step, 7);
  EXPECT_EQ(found.generation->manifest().state["data"]["position"], 70);
  EXPECT_EQ(found.generation->manifest().plan["mesh"]["dp"], 2);
  EXPECT_EQ(ckpt::loaded_small(*found.generation), ckpt::content_of_small(7, {}));
}

// Other bytes for the same content are another version: give it a number, and keep both fixtures.
TEST(FixtureTest, version_1_is_still_what_is_written) {
  ASSERT_EQ(ckpt::format_version, 1);
  ckpt::MemoryDisk written;
  ckpt::save_small(written, "/run", 7);
  const auto disk = ckpt::posix_disk();
  const auto folder = fixture(1) / "step-00000007";
  const auto entries = disk->list(folder);
  EXPECT_EQ(entries, written.list("/run/step-00000007"));
  for (const ckpt::DiskEntry& entry : entries) {
    EXPECT_EQ(ckpt::read_text(*disk, folder / entry.name, 1 << 20),
              ckpt::read_text(written, "/run/step-00000007/" + entry.name, 1 << 20))
        << entry.name;
  }
}

}  // namespace
}  // namespace trireme::ckpt_tests
