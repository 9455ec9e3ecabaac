// SPDX-License-Identifier: Apache-2.0
#include "agent/store/run_register.h"

#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "base/error.h"

namespace trireme::agent {
namespace {

namespace fs = std::filesystem;

class RunRegisterTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "trireme-register-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    root_ = name;
  }
  void TearDown() override { fs::remove_all(root_); }
  fs::path folder() const { return root_ / "runs" / "x"; }
  void begin_run() const { std::ofstream(folder() / "owner.json") << "{}"; }
  static comm::RunRecord record(RunRegister& kept) {
    return comm::run_record_from(kept.get().read().value);
  }

  fs::path root_;
  const Placement placement_ = first_placement(1, 2);
  const std::array<int, 2> spares_ = {1, 0};
};

TEST_F(RunRegisterTest, has_the_members_and_spares_of_every_epoch) {
  RunRegister kept(folder());
  EXPECT_EQ(kept.begin({placement_, spares_, {}, "start"}), 0);
  const comm::RunRecord first = record(kept);
  ASSERT_EQ(first.members.size(), 2U);
  EXPECT_EQ(first.members[1].node, "node1");
  ASSERT_EQ(first.spares.size(), 1U);
  EXPECT_EQ(first.spares[0].node, "node0");

  const Move move = move_ranks(placement_, std::array{1}, spares_);
  ASSERT_TRUE(move.placement) << move.problem;
  EXPECT_EQ(kept.next({*move.placement, std::array{0, 0}, {1}, "rank 1 died"}), 1);
  const comm::RunRecord second = record(kept);
  EXPECT_EQ(second.members[0], first.members[0]) << "the same process";
  EXPECT_NE(second.members[1].incarnation, first.members[1].incarnation);
  EXPECT_EQ(second.members[1].node, "node0");
  EXPECT_EQ(second.reason, "rank 1 died");
  EXPECT_EQ(second.run, first.run);
}

TEST_F(RunRegisterTest, epochs_grow_over_all_jobs_in_a_folder) {
  std::string run;
  {
    RunRegister kept(folder());
    EXPECT_EQ(kept.begin({placement_, spares_, {}, "start"}), 0);
    EXPECT_EQ(kept.next({placement_, spares_, {0}, "x"}), 1);
    run = record(kept).run;
    begin_run();
  }
  RunRegister kept(folder());
  EXPECT_EQ(kept.begin({placement_, spares_, {}, "start"}), 2);
  EXPECT_NE(record(kept).run, run);
}

TEST_F(RunRegisterTest, a_commit_between_two_epochs_stays) {
  RunRegister kept(folder());
  const int64_t epoch = kept.begin({placement_, spares_, {}, "start"});
  const comm::RegisterState state = kept.get().read();
  const auto committed = comm::commit(comm::run_record_from(state.value), 40, epoch);
  ASSERT_TRUE(committed) << committed.reason();
  ASSERT_TRUE(kept.get().swap(state.revision, to_text(committed.value()), "a commit").is_done);
  kept.next({placement_, spares_, {0}, "x"});
  EXPECT_EQ(record(kept).last_commit, (comm::CommitPoint{40, epoch}));
}

TEST_F(RunRegisterTest, a_run_that_never_began_leaves_nothing) {
  { RunRegister kept(folder()); }
  EXPECT_FALSE(fs::exists(folder()));
  std::optional<RunRegister> kept(folder());
  kept->begin({placement_, spares_, {}, "start"});
  begin_run();
  kept.reset();
  EXPECT_TRUE(fs::exists(folder() / "register.journal"));
}

}  // namespace
}  // namespace trireme::agent
