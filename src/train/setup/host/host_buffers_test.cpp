// SPDX-License-Identifier: Apache-2.0
// The host memory of an engine's batches and signals is what its plan predicts, to the byte.
#include "train/setup/host/host_buffers.h"

#include <gtest/gtest.h>

#include "comm/mesh.h"
#include "comm/threads.h"
#include "device/cpu/cpu_device.h"
#include "engine/engine.h"
#include "kernels/table.h"
#include "train/setup/rank.h"

namespace trireme::train {
namespace {

class HostBuffersTest : public testing::Test {
 protected:
  const spec::ModelSpec model_ = spec::make_model({.name = "tiny",
                                                   .family = spec::Family::llama,
                                                   .layers = 4,
                                                   .hidden = 32,
                                                   .heads = 4,
                                                   .kv_heads = 4,
                                                   .head_dim = 8,
                                                   .ffn = 56,
                                                   .vocab = 61,
                                                   .max_seq = 16});
};

TEST_F(HostBuffersTest, are_predicted_to_the_byte_on_every_rank_of_every_layout) {
  for (const spec::Layout& layout : {spec::Layout{},
                                     {.micro_batch = 2, .accumulation = 4},
                                     {.dp_replicate = 2, .micro_batch = 4},
                                     {.dp_shard = 2, .zero_stage = 3},
                                     {.tp = 2},
                                     {.pp = 2, .accumulation = 4},
                                     {.cp = 2}}) {
    const spec::Plan plan =
        spec::solve_or_throw(model_, {.seq_len = 16}, layout, spec::cpu_backend());
    const auto ranks = static_cast<int>(layout.ranks());
    comm::ThreadWorld world(ranks, 60);
    comm::run_ranks(world, [&](int number) {
      device::CpuDevice device(kernels::cpu_kernels(), {});
      Rank rank(ranks == 1 ? nullptr : world.communicator(number, {.name = "world"}), plan.mesh,
                device);
      engine::Engine engine(device, model_, plan, spec::cpu_backend(), {}, rank.mesh());
      EXPECT_EQ(device.host_ledger().live(device::Mem::staging), host_buffer_bytes(plan))
          << "rank " << number << " of " << ranks;
      engine.close(comm::End::finish);
    });
  }
}

TEST_F(HostBuffersTest, an_engine_that_does_not_train_sends_no_signals_back) {
  const spec::Plan plan =
      spec::solve_or_throw(model_, {.seq_len = 16, .inference = true}, {}, spec::cpu_backend());
  device::CpuDevice device(kernels::cpu_kernels(), {});
  engine::Engine engine(device, model_, plan, spec::cpu_backend(), {}, nullptr);
  EXPECT_EQ(device.host_ledger().live(device::Mem::staging), host_buffer_bytes(plan));
}

}  // namespace
}  // namespace trireme::train
