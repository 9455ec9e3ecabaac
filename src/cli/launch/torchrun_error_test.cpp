// SPDX-License-Identifier: Apache-2.0
#include "cli/launch/torchrun_error.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "base/text/json.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

// torchrun's folders of one attempt on a host with three ranks, of which the first is rank 3.
class TorchrunError : public testing::Test {
 protected:
  TorchrunError() {
    fs::remove_all(folder_);
    for (int local = 0; local < 3; ++local) fs::create_directories(file(local).parent_path());
  }
  ~TorchrunError() override { fs::remove_all(folder_); }

  fs::path file(int local) const {
    return folder_ / "attempt_0" / std::to_string(local) / "error.json";
  }
  void fail(int local, const std::string& message, std::optional<int> culprit = {}) const {
    comm::RankInfo info{
        .rank = 3 + local, .world = 9, .local_rank = local, .local_world = 3, .node = 1};
    info.error_file = file(local).string();
    write_torchrun_error(info, message, culprit);
  }
  base::Json read(int local) const {
    std::ifstream in(file(local));
    return base::Json::parse(in)["message"];
  }
  int64_t time_of(int local) const {
    return std::stoll(read(local)["extraInfo"]["timestamp"].get<std::string>());
  }

  const fs::path folder_ =
      fs::temp_directory_path() / ("trireme-torchrun-" + std::to_string(::getpid()));
};

TEST_F(TorchrunError, survivors_write_the_file_of_a_rank_that_was_killed) {
  fail(0, "rank 5 (process 7 on node1) was killed", 5);
  EXPECT_EQ(read(0)["message"], "rank 5 (process 7 on node1) was killed");
  EXPECT_EQ(read(2)["message"], "rank 5 (process 7 on node1) was killed");
  EXPECT_LT(time_of(2), time_of(0));
  EXPECT_FALSE(read(2)["extraInfo"].contains("py_callstack"));
  EXPECT_FALSE(fs::exists(file(1)));
  int files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder_))
    files += entry.is_regular_file();
  EXPECT_EQ(files, 2);
}

TEST_F(TorchrunError, the_rank_that_fails_comes_first_and_keeps_its_own_words) {
  fail(2, "no such file");
  fail(1, "rank 5 failed: no such file", 5);
  EXPECT_EQ(read(2)["message"], "no such file");
  EXPECT_LT(time_of(2), time_of(1));
}

TEST_F(TorchrunError, ranks_of_other_hosts_have_no_file_here) {
  fail(0, "rank 2 failed: x", 2);
  fail(1, "rank 8 failed: x", 8);
  EXPECT_TRUE(fs::exists(file(0)) && fs::exists(file(1)));
  EXPECT_FALSE(fs::exists(file(2)));
}

TEST_F(TorchrunError, without_a_place_nothing_is_written) {
  comm::RankInfo info{.rank = 1, .world = 2};
  write_torchrun_error(info, "x");
  info.error_file = (folder_ / "no" / "such" / "error.json").string();
  write_torchrun_error(info, "rank 0 failed: x", 0);
  EXPECT_FALSE(fs::exists(folder_ / "no"));
}

}  // namespace
}  // namespace trireme::cli
