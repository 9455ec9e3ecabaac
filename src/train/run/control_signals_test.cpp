// SPDX-License-Identifier: Apache-2.0
#include "train/run/control_signals.h"

#include <gtest/gtest.h>

#include "comm/threads.h"
#include "device/cpu/cpu_device.h"
#include "kernels/table.h"

namespace trireme::train {
namespace {

// Returns what each of three ranks learns if they have noticed this.
std::vector<Request> exchanged(const std::vector<Noticed>& noticed) {
  const auto ranks = static_cast<int>(noticed.size());
  comm::ThreadWorld world(ranks, 60);
  spec::Sizes sizes;
  sizes[spec::Axis::dp] = ranks;
  std::vector<Request> found(noticed.size());
  comm::run_ranks(world, [&](int number) {
    device::CpuDevice device(kernels::cpu_kernels(), {});
    Rank rank(world.communicator(number, {.name = "world"}), sizes, device);
    ControlSignals signals(nullptr, nullptr);
    const auto at = static_cast<size_t>(number);
    found[at] = signals.exchange(rank, 4, noticed[at]);
  });
  return found;
}

TEST(ControlSignalsTest, all_ranks_learn_which_rank_repeated_a_step_with_other_samples) {
  for (const Request& request : exchanged({{}, {.other_samples_step = 7}, {}})) {
    EXPECT_EQ(request.other_samples_step, 7);
    EXPECT_EQ(request.other_samples_rank, 1);
    EXPECT_FALSE(request.is_fenced);
  }
  for (const Request& request :
       exchanged({{}, {.other_samples_step = 7}, {.other_samples_step = 3}})) {
    EXPECT_EQ(request.other_samples_rank, 1) << "the first rank is named";
  }
  for (const Request& request : exchanged({{}, {}, {.is_fenced = true}})) {
    EXPECT_EQ(request.other_samples_step, 0);
    EXPECT_TRUE(request.is_fenced);
  }
}

}  // namespace
}  // namespace trireme::train
