// SPDX-License-Identifier: Apache-2.0
// Round trips of a small checkpoint on a disk in memory and on a real one, and the handling of
// drafts and old checkpoints.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>

#include "ckpt/disk/aligned.h"
#include "ckpt/disk/forward_disk_test.h"
#include "ckpt/disk/memory_disk.h"
#include "ckpt/disk/posix_disk.h"
#include "ckpt/generation/folder.h"
#include "ckpt/generation/generation.h"
#include "ckpt/generation/save.h"
#include "ckpt/generation/small_generation_test.h"

namespace trireme::ckpt {
namespace {

class RealFolder {
 public:
  RealFolder()
      : path_(std::filesystem::temp_directory_path() /
              ("trireme_ckpt_" + std::to_string(::getpid()))) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~RealFolder() { std::filesystem::remove_all(path_); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

std::vector<std::string> names_in(Disk& disk, const Disk::Path& folder) {
  std::vector<std::string> names;
  for (const DiskEntry& entry : disk.list(folder)) names.push_back(entry.name);
  return names;
}

TEST(CkptSaveTest, a_generation_comes_back_from_memory_and_from_a_real_disk) {
  const RealFolder real;
  MemoryDisk memory;
  for (const bool in_memory : {true, false}) {
    for (const bool direct : {true, false}) {
      for (const int queue_depth : {1, 3}) {
        const auto posix = posix_disk({.direct = direct});
        Disk& disk = in_memory ? memory : *posix;
        const std::string name = "r" + std::to_string(queue_depth) + (direct ? "d" : "p");
        const Disk::Path root = (in_memory ? Disk::Path("/") : real.path()) / name;
        SmallGeneration small{.rows = 700'000};  // several chunks in every file
        save_small(disk, root, 20, small, {.queue_depth = queue_depth, .reread = true});
        const Generation generation = Generation::open(disk, root / "step-00000020");
        EXPECT_EQ(generation.manifest().step, 20);
        EXPECT_EQ(generation.manifest().state["data"]["position"], 200);
        EXPECT_EQ(loaded_small(generation, small, {.queue_depth = queue_depth}),
                  content_of_small(20, small));
        EXPECT_TRUE(generation.damage({.queue_depth = queue_depth}).empty());
      }
    }
  }
}

TEST(CkptSaveTest, only_wanted_bytes_are_written_into_the_destination) {
  MemoryDisk disk;
  const SmallGeneration small{.rows = 10};
  save_small(disk, "/run", 1, small);
  const Generation generation = Generation::open(disk, "/run/step-00000001");
  std::vector<float> bytes(12, -1.0F);
  generation.read(std::vector<ReadRequest>{
      {small.tensor(0), {{{4, 1}, {7, 3}, 2}}, std::as_writable_bytes(std::span(bytes))}});
  const std::vector<float> all = content_of_small(1, small)[0];
  EXPECT_EQ(bytes, (std::vector<float>{-1, -1, all[13], all[14], all[16], all[17], all[19], all[20],
                                       -1, -1, -1, -1}));
}

TEST(CkptSaveTest, a_layout_is_known_before_there_are_bytes) {
  const TensorInfo tensor{"weight/w", base::DType::bf16, {100, 64}};
  const std::vector<TensorPieces> pieces = {
      {tensor, {{{0, 0}, {50, 64}, 0}, {{50, 0}, {51, 3}, 0}}},
      {{"m/w", base::DType::f32, {5}}, {{{0}, {5}, 0}}}};
  const FileLayout layout = plan_file(pieces);
  EXPECT_EQ(layout.bytes, 8192 + 4096 + 4096);
  EXPECT_EQ(layout.tensors[0].boxes[1].offset, 8192);
  EXPECT_EQ(layout.tensors[1].boxes[0].offset, 12288);
  EXPECT_EQ(plan_file({}).bytes, 0);
}

TEST(CkptSaveTest, drafts_are_not_seen_and_do_not_meet) {
  MemoryDisk disk;
  const SmallGeneration small;
  save_small(disk, "/run", 10, small);
  const Draft left = begin_generation(disk, "/run", 20);
  EXPECT_EQ(left.folder, "/run/step-00000020.tmp-0");
  write_text(disk, left.folder / "data-00000", "of a run that died");
  EXPECT_EQ(newest_good(disk, "/run", Verify::all).generation->manifest().step, 10);
  const Draft next = begin_generation(disk, "/run", 20);
  EXPECT_EQ(next.folder, "/run/step-00000020.tmp-1");
  abandon(disk, next);
  EXPECT_FALSE(disk.exists(next.folder));
  EXPECT_EQ(remove_leftovers(disk, "/run").removed,
            (std::vector<std::string>{"step-00000020.tmp-0"}));
  EXPECT_EQ(names_in(disk, "/run"), (std::vector<std::string>{"step-00000010"}));
  EXPECT_THROW(begin_generation(disk, "/run", 10), base::IoError);
}

TEST(CkptSaveTest, old_generations_go_when_enough_newer_ones_are_whole) {
  MemoryDisk disk;
  const SmallGeneration small;
  for (const int64_t step : {10, 20, 30, 40}) save_small(disk, "/run", step, small);
  disk.remove_file("/run/step-00000030/data-00001");
  disk.put_folder("/run/step-00000005.mine");
  disk.put_file("/run/notes", {});
  for (const int64_t all : {int64_t{1} << 31, (int64_t{1} << 32) + 1, INT64_MAX}) {
    EXPECT_TRUE(remove_old(disk, "/run", {.latest = all}).empty()) << all;
  }
  EXPECT_EQ(remove_old(disk, "/run", {.latest = 2}), (std::vector<int64_t>{10}));
  EXPECT_EQ(names_in(disk, "/run"),
            (std::vector<std::string>{"notes", "step-00000005.mine", "step-00000020",
                                      "step-00000030", "step-00000040"}));
  EXPECT_EQ(remove_old(disk, "/run", {.latest = 1}), (std::vector<int64_t>{30, 20}));
  EXPECT_TRUE(remove_old(disk, "/run", {.latest = 1}).empty());
}

TEST(CkptSaveTest, a_run_that_goes_back_sets_newer_generations_aside) {
  MemoryDisk disk;
  const SmallGeneration small;
  for (const int64_t step : {10, 20, 30}) save_small(disk, "/run", step, small);
  EXPECT_EQ(set_aside_newer(disk, "/run", 10),
            (std::vector<std::string>{"step-00000030.aside-0", "step-00000020.aside-0"}));
  EXPECT_EQ(committed_steps(disk, "/run"), (std::vector<int64_t>{10}));
  save_small(disk, "/run", 20, small);
  EXPECT_EQ(set_aside_newer(disk, "/run", -1),
            (std::vector<std::string>{"step-00000020.aside-1", "step-00000010.aside-0"}));
  EXPECT_TRUE(committed_steps(disk, "/nowhere").empty());
}

TEST(CkptSaveTest, a_copy_under_another_name_opens_and_a_slash_changes_nothing) {
  MemoryDisk disk;
  save_small(disk, "/run/", 10);
  disk.rename("/run/step-00000010", "/run/mine");
  EXPECT_EQ(loaded_small(Generation::open(disk, "/run/mine")), content_of_small(10, {}));
  disk.rename("/run/mine", "/run/step-00000011");
  EXPECT_THROW(Generation::open(disk, "/run/step-00000011"), base::IoError);
}

TEST(CkptSaveTest, a_rank_may_have_nothing_to_save) {
  MemoryDisk disk;
  const SmallGeneration small{.ranks = 1};
  const Draft draft = begin_generation(disk, "/run", 10);
  Manifest manifest = manifest_of_small(10, small);
  manifest.files = {write_small(disk, draft, 0, small),
                    write_data(disk, {draft.folder, 1, plan_file({}), {}}, {.reread = true})};
  const auto generation = Generation::open(disk, commit(disk, draft, manifest));
  EXPECT_EQ(loaded_small(generation, small), content_of_small(10, small));
  EXPECT_TRUE(generation.damage().empty());
}

TEST(CkptSaveTest, names_of_generations_are_exact) {
  EXPECT_EQ(generation_name(20), "step-00000020");
  EXPECT_EQ(generation_name(1'234'567'890), "step-1234567890");
  EXPECT_EQ(step_from_name("step-1234567890"), 1'234'567'890);
  for (const char* name : {"step-20", "step-0000020", "step-000000020", "step--0000020", "step-",
                           "step-00000020.tmp-0", "step-99999999999999999999"}) {
    EXPECT_FALSE(step_from_name(name)) << name;
  }
}

// Flips the last bit of every write.
class FlippingDisk final : public ForwardDisk {
 public:
  using ForwardDisk::ForwardDisk;
  std::unique_ptr<DiskFile> create(const Path& path, int64_t bytes) override {
    return std::make_unique<File>(disk_.create(path, bytes));
  }

 private:
  class File final : public ForwardFile {
   public:
    using ForwardFile::ForwardFile;
    void write_at(int64_t offset, std::span<const std::byte> bytes) override {
      std::vector<std::byte> changed(bytes.begin(), bytes.end());
      changed.back() ^= std::byte{1};
      ForwardFile::write_at(offset, changed);
    }
  };
};

TEST(CkptSaveTest, reading_again_finds_a_disk_that_changes_bytes) {
  MemoryDisk memory;
  FlippingDisk disk(memory);
  try {
    save_small(disk, "/run", 10, {}, {.queue_depth = 2, .reread = true});
    FAIL();
  } catch (const base::IoError& error) {
    EXPECT_NE(std::string(error.what()).find("are not what was written"), std::string::npos)
        << error.what();
  }
  EXPECT_TRUE(committed_steps(disk, "/run").empty());
}

TEST(CkptSaveTest, a_full_disk_is_told_apart) {
  const RealFolder real;
  const auto disk = posix_disk();
  const auto more_than_free =
      static_cast<int64_t>(std::filesystem::space(real.path()).available) + (int64_t{1} << 40);
  EXPECT_THROW(disk->create(real.path() / "large", more_than_free), NoSpace);
  EXPECT_THROW(disk->create(real.path() / "no" / "folder", 1), base::IoError);
}

}  // namespace
}  // namespace trireme::ckpt
