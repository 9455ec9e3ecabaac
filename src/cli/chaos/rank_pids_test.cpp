// SPDX-License-Identifier: Apache-2.0
#include "cli/chaos/rank_pids.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "obs/scratch_folder_test.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

class RankPidsTest : public testing::Test {
 protected:
  void write(const fs::path& name, std::string_view text) const {
    fs::create_directories((folder_.path() / name).parent_path());
    std::ofstream(folder_.path() / name, std::ios::binary) << text;
  }
  void add_process(int id, std::string_view stat, std::string_view environment) const {
    const fs::path process = fs::path("proc") / std::to_string(id);
    write(process / "stat", stat);
    write(process / "environ", environment);
  }
  RankPids find(pid_t launcher) const {
    return find_ranks(folder_.path() / "run", {launcher}, folder_.path() / "proc");
  }

  obs::ScratchFolder folder_;
};

TEST_F(RankPidsTest, children_of_the_launcher_with_a_rank_are_ranks) {
  const std::string rank1("A=b\0TRIREME_RANK=1\0Z=\0", 22);
  add_process(100, "100 (trireme) S 1 100", "");
  add_process(101, "101 (a) name) S 100 101", std::string("TRIREME_RANK=0\0", 15));
  add_process(102, "102 (trireme) R 100 102", rank1);
  add_process(103, "103 (curl) S 100 103", "NOT_TRIREME_RANK=7");  // a notice command
  add_process(104, "104 (trireme) Z 100 104", "TRIREME_RANK=2");   // has ended
  add_process(105, "105 (trireme) S 99 105", "TRIREME_RANK=3");    // of another launcher
  add_process(106, "damaged", "TRIREME_RANK=4");
  write("proc/version", "");
  const RankPids found = find(100);
  EXPECT_FALSE(found.is_recorded);
  EXPECT_EQ(found.ranks, (std::map<int, pid_t>{{0, 101}, {1, 102}}));
  EXPECT_TRUE(find(7).ranks.empty());
}

TEST_F(RankPidsTest, the_record_of_this_launcher_has_priority) {
  add_process(101, "101 (trireme) S 100 101", "TRIREME_RANK=0");
  write(
      "run/processes.json",
      R"({"supervisor": 100, "epoch": 2, "ranks": [{"rank": 0, "pid": 201}, {"rank": 1, "pid": 202}],
            "spares": [203, 0]})");
  const RankPids found = find(100);
  EXPECT_TRUE(found.is_recorded);
  EXPECT_EQ(found.spares, (std::vector<pid_t>{203}));
  EXPECT_EQ(found.ranks, (std::map<int, pid_t>{{0, 201}, {1, 202}}));
}

TEST_F(RankPidsTest, a_record_of_another_launcher_or_a_damaged_one_is_ignored) {
  add_process(101, "101 (trireme) S 100 101", "TRIREME_RANK=0");
  for (const char* text :
       {R"({"supervisor": 99, "ranks": [{"rank": 0, "pid": 201}]})",
        R"({"supervisor": 100, "ranks": [{"rank": 0}]})", R"({"supervisor": 100, "ranks": 3})",
        R"({"supervisor": 100})", "[]", R"({"supervisor": 100, "ra)"}) {
    write("run/processes.json", text);
    const RankPids found = find(100);
    EXPECT_FALSE(found.is_recorded) << text;
    EXPECT_EQ(found.ranks, (std::map<int, pid_t>{{0, 101}})) << text;
  }
}

TEST_F(RankPidsTest, counts_what_a_process_holds) {
  const auto own = use_of(::getpid());
  ASSERT_TRUE(own);
  EXPECT_GE(own->descriptors, 3);
  EXPECT_GE(own->threads, 1);
  EXPECT_GT(own->memory_bytes, 1 << 20);
  write("proc/9/status", "Name:\tx\nThreads:\t5\nVmRSS:\t  12 kB\n");
  write("proc/9/fd/0", "");
  write("proc/9/fd/1", "");
  auto made = use_of(9, folder_.path() / "proc");
  ASSERT_TRUE(made);
  EXPECT_EQ(made->descriptors, 2);
  EXPECT_EQ(made->threads, 5);
  EXPECT_EQ(made->memory_bytes, 12 * 1024);
  *made += *made;
  EXPECT_EQ(made->threads, 10);
  EXPECT_FALSE(use_of(8, folder_.path() / "proc"));
}

}  // namespace
}  // namespace trireme::cli
