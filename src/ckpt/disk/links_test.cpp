// SPDX-License-Identifier: Apache-2.0
// Symbolic links in a checkpoint folder: their targets are read and never removed. Entries that
// cannot be removed are reported and left.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "ckpt/disk/forward_disk_test.h"
#include "ckpt/disk/memory_disk.h"
#include "ckpt/disk/posix_disk.h"
#include "ckpt/generation/folder.h"
#include "ckpt/generation/generation.h"
#include "ckpt/generation/small_generation_test.h"

namespace trireme::ckpt {
namespace {

namespace fs = std::filesystem;

class CkptLinksTest : public testing::Test {
 protected:
  CkptLinksTest()
      : top_(fs::temp_directory_path() / ("trireme_ckpt_links_" + std::to_string(::getpid()))),
        root_(top_ / "run"),
        archive_(top_ / "archive") {
    fs::remove_all(top_);
    fs::create_directories(root_);
    fs::create_directories(archive_);
  }
  ~CkptLinksTest() override {
    std::error_code ignored;
    fs::remove_all(top_, ignored);
  }

  void move_to_archive(const std::string& name) {
    fs::rename(root_ / name, archive_ / name);
    fs::create_directory_symlink(archive_ / name, root_ / name);
  }
  static void write(const fs::path& file) { std::ofstream(file) << "precious"; }

  const fs::path top_, root_, archive_;
  const std::unique_ptr<Disk> disk_ = posix_disk();
};

TEST_F(CkptLinksTest, a_list_says_what_is_a_link) {
  fs::create_directory(root_ / "folder");
  write(root_ / "file");
  fs::create_directory_symlink("folder", root_ / "to_folder");
  fs::create_symlink("nowhere", root_ / "to_nothing");
  EXPECT_EQ(disk_->list(root_), (std::vector<DiskEntry>{{.name = "file"},
                                                        {.name = "folder", .is_folder = true},
                                                        {.name = "to_folder", .is_link = true},
                                                        {.name = "to_nothing", .is_link = true}}));
  EXPECT_TRUE(disk_->is_link(root_ / "to_nothing"));
  EXPECT_FALSE(disk_->is_link(root_ / "folder"));
  EXPECT_FALSE(disk_->is_link(root_ / "not_there"));
}

TEST_F(CkptLinksTest, an_archived_generation_is_read_through_its_link_and_outlives_it) {
  const SmallGeneration small;
  for (const int64_t step : {10, 20}) save_small(*disk_, root_, step, small);
  move_to_archive("step-00000010");
  EXPECT_EQ(loaded_small(Generation::open(*disk_, root_ / "step-00000010"), small),
            content_of_small(10, small));
  EXPECT_EQ(remove_old(*disk_, root_, {.latest = 1}), (std::vector<int64_t>{10}));
  EXPECT_EQ(disk_->list(root_),
            (std::vector<DiskEntry>{{.name = "step-00000020", .is_folder = true}}));
  EXPECT_EQ(loaded_small(Generation::open(*disk_, archive_ / "step-00000010"), small),
            content_of_small(10, small));
}

TEST_F(CkptLinksTest, links_with_the_name_of_a_leftover_go_and_their_targets_stay) {
  write(archive_ / "thesis.txt");
  fs::create_directory_symlink(archive_, root_ / "step-00000002.tmp-0");
  fs::create_symlink(archive_ / "nowhere", root_ / "step-00000003.old-1");
  fs::create_directory(root_ / "step-00000004.tmp-0");
  fs::create_directory_symlink(archive_, root_ / "step-00000004.tmp-0" / "inside");
  const Leftovers leftovers = remove_leftovers(*disk_, root_);
  EXPECT_EQ(leftovers.removed,
            (std::vector<std::string>{"step-00000002.tmp-0", "step-00000003.old-1",
                                      "step-00000004.tmp-0"}));
  EXPECT_TRUE(leftovers.problems.empty());
  EXPECT_TRUE(fs::is_empty(root_));
  EXPECT_TRUE(fs::exists(archive_ / "thesis.txt"));
}

TEST_F(CkptLinksTest, a_checkpoint_folder_may_be_a_link_itself) {
  const SmallGeneration small;
  fs::create_directory_symlink(root_, top_ / "linked");
  for (const int64_t step : {10, 20}) save_small(*disk_, top_ / "linked", step, small);
  fs::create_directory(root_ / "step-00000030.tmp-0");
  EXPECT_EQ(remove_leftovers(*disk_, top_ / "linked").removed.size(), 1U);
  EXPECT_EQ(remove_old(*disk_, top_ / "linked", {.latest = 1}), (std::vector<int64_t>{10}));
  EXPECT_EQ(committed_steps(*disk_, root_), (std::vector<int64_t>{20}));
}

TEST_F(CkptLinksTest, removing_what_another_process_removed_is_no_error) {
  remove_all(*disk_, root_ / "gone");
  disk_->remove_file(root_ / "gone");
  disk_->remove_folder(root_ / "gone");
  MemoryDisk memory;
  remove_all(memory, "/gone");
}

// Like an immutable file, or one that NFS keeps while a process has it open.
class StubbornDisk final : public ForwardDisk {
 public:
  using ForwardDisk::ForwardDisk;
  void remove_file(const Path& path) override {
    if (path.filename() == "immutable") {
      throw base::IoError("cannot remove " + path.string() + ": Operation not permitted");
    }
    ForwardDisk::remove_file(path);
  }
};

TEST(CkptStubbornDiskTest, a_leftover_that_stays_is_reported_and_keeps_no_other) {
  MemoryDisk memory;
  memory.put_file("/run/step-00000010.tmp-0/immutable", {});
  memory.put_file("/run/step-00000020.tmp-0/data-00000", {});
  StubbornDisk disk(memory);
  const Leftovers leftovers = remove_leftovers(disk, "/run");
  EXPECT_EQ(leftovers.removed, (std::vector<std::string>{"step-00000020.tmp-0"}));
  EXPECT_EQ(leftovers.problems,
            (std::vector<std::string>{"cannot remove /run/step-00000010.tmp-0/immutable: "
                                      "Operation not permitted"}));
  save_small(disk, "/run", 10, {});
  EXPECT_EQ(committed_steps(memory, "/run"), (std::vector<int64_t>{10}));
}

TEST(CkptStubbornDiskTest, an_old_generation_that_stays_keeps_no_other) {
  MemoryDisk memory;
  for (const int64_t step : {10, 20, 30}) save_small(memory, "/run", step, {});
  memory.put_file("/run/step-00000020/immutable", {});
  StubbornDisk disk(memory);
  EXPECT_THROW(remove_old(disk, "/run", {.latest = 1}), base::IoError);
  EXPECT_EQ(committed_steps(memory, "/run"), (std::vector<int64_t>{30}));
  EXPECT_FALSE(memory.exists("/run/step-00000010.old-0"));
  EXPECT_TRUE(memory.exists("/run/step-00000020.old-0/immutable"));
}

}  // namespace
}  // namespace trireme::ckpt
