// SPDX-License-Identifier: Apache-2.0
// Calls that are bugs.
#include "comm/communicator.h"
#include "comm/world/rank_test.h"

namespace trireme::comm {
namespace {

TEST(CommunicatorDeathTest, wrong_arguments_are_bugs) {
  ThreadWorld world(1);
  Rank rank(world, 0, StreamMode::inline_calls, 0);
  const Tensor x = rank.make(Values(8)), y = rank.make(Values(8), DType::bf16);
  const Tensor whole = rank.arena.take({{4}, DType::i32});
  device::Stream& stream = *rank.stream;
  Communicator& group = *rank.group;
  EXPECT_DEATH(group.all_gather(stream, x, y), "all_gather of 1 ranks in 'world': bf16");
  EXPECT_DEATH(group.all_gather(stream, x.slice_rows(0, 4), x.slice_rows(1, 4)), "overlaps out");
  EXPECT_DEATH(group.all_reduce(stream, whole, Reduce::sum), "out is i32");
  EXPECT_DEATH(group.all_reduce(stream, y, Reduce::max),
               "maxima need a contiguous f32 tensor, not bf16");
  EXPECT_DEATH(group.all_gather(stream, x.reshape({4, 2}).slice_cols(0, 1), x.slice_rows(0, 4)),
               "its row stride is 2 elements");
  EXPECT_DEATH(group.broadcast(stream, x, 1), "root 1");
  EXPECT_DEATH(group.send(stream, x, 0), "send from rank 0 to rank 0");
  const ConstTensor two[] = {x, x};
  EXPECT_DEATH(group.reduce_scatter(stream, x, two, SumOrder::hosted(1, 1)), "2 parts on rank 0");
}

TEST(CommunicatorDeathTest, a_sum_without_a_buffer_is_a_bug) {
  EXPECT_DEATH(
      {
        ThreadWorld world(2);
        run_ranks(world, [&](int r) {
          Rank rank(world, r, StreamMode::inline_calls, 0);
          rank.group->all_reduce(*rank.stream, rank.make(Values(8)), Reduce::sum);
        });
      },
      "sums 2 parts with a buffer of 0 bytes; it needs at least 512");
}

}  // namespace
}  // namespace trireme::comm
