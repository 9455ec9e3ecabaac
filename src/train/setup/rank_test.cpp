// SPDX-License-Identifier: Apache-2.0
#include "train/setup/rank.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "base/error.h"
#include "comm/threads.h"
#include "device/cpu/cpu_device.h"
#include "kernels/table.h"

namespace trireme::train {
namespace {

// Calls body(rank) on two ranks whose communication has a deadline of 0.6 s.
void on_two_ranks(const std::function<void(Rank&)>& body) {
  comm::ThreadWorld world(2, 0.6);
  spec::Sizes sizes;
  sizes[spec::Axis::dp] = 2;
  comm::run_ranks(world, [&](int number) {
    device::CpuDevice device(kernels::cpu_kernels(), {});
    Rank rank(world.communicator(number, {.name = "world", .deadline_s = 0.6}), sizes, device);
    body(rank);
  });
}

TEST(RankTest, the_first_rank_may_work_longer_than_a_deadline) {
  std::atomic<int> calls = 0;
  on_two_ranks([&](Rank& rank) {
    rank.on_first([&] {
      ++calls;
      std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    });
    EXPECT_EQ(rank.gather(rank.number()), (std::vector<int>{0, 1}));
  });
  EXPECT_EQ(calls, 1);
}

TEST(RankTest, an_exception_of_the_first_rank_ends_all) {
  EXPECT_THROW(on_two_ranks([](Rank& rank) {
                 rank.on_first([] { throw base::IoError("no"); });
                 ADD_FAILURE() << "rank " << rank.number() << " continued";
               }),
               base::IoError);
}

}  // namespace
}  // namespace trireme::train
