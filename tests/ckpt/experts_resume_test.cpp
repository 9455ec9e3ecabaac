// SPDX-License-Identifier: Apache-2.0
// Checkpoints of mixtures of experts: weights, moments and the router's bias load into any layout,
// however experts are spread, and at ep = etp = tp = 1 the run continues with the bits of one that
// was not interrupted.
#include <gtest/gtest.h>

#include <atomic>
#include <map>

#include "base/text/json.h"
#include "ckpt/disk/memory_disk.h"
#include "comm/threads.h"
#include "spec/parallel/data_parallel.h"
#include "tests/engine/rig.h"
#include "train/checkpointing/checkpointer.h"
#include "train/setup/rank.h"

namespace trireme::tests {
namespace {

const ckpt::Disk::Path experts_root = "/run";
constexpr int experts_seq_len = 8;

// The micro-batches of one rank, by their index in the global batch.
class ExpertsShare final : public engine::MicrobatchSource {
 public:
  ExpertsShare(const spec::Plan& plan, const spec::Coord& coord)
      : plan_(plan), coord_(coord), all_(5, tiny_shared_moe().vocab, 1, experts_seq_len) {}
  void fill(int index, const engine::HostMicrobatch& out) override {
    all_.fill(static_cast<int>(spec::global_microbatch(plan_, coord_, index)), out);
  }
  void next_step() { all_.next_step(); }

 private:
  const spec::Plan& plan_;
  spec::Coord coord_;
  RandomSource all_;
};

struct ExpertsTrainer {
  engine::Engine& engine;
  train::Checkpointer& checkpointer;
  ExpertsShare& source;

  void steps(int count) const {
    for (int i = 0; i < count; ++i) {
      engine.step(source, 1e-2);
      source.next_step();
    }
  }
};

template <typename Body>
void run_experts(spec::Layout layout, ckpt::Disk& disk, const Body& body) {
  const spec::ModelSpec model = spec::make_model(tiny_shared_moe());
  layout.logical_dp = 4;
  layout.row_budget = 8;
  layout.master_dtype = base::DType::u16;
  layout.sequence_parallel = layout.tp > 1;
  const spec::Plan plan =
      spec::solve_or_throw(model, {.seq_len = experts_seq_len}, layout, spec::cpu_backend());
  const auto ranks = static_cast<int>(layout.ranks());
  comm::ThreadWorld world(ranks, 60);
  comm::run_ranks(world, [&](int number) {
    device::CpuDevice device(kernels::cpu_kernels(), {});
    train::Rank rank(ranks == 1 ? nullptr : world.communicator(number, {.name = "world"}),
                     plan.mesh, device);
    engine::Engine engine(device, model, plan, spec::cpu_backend(), {}, rank.mesh());
    ExpertsShare source(plan, rank.coord());
    train::Checkpointer checkpointer(engine, model, rank, device, disk, {.folder = experts_root},
                                     {.log = [](const std::string&) {}, .saved = {}});
    body(ExpertsTrainer{engine, checkpointer, source});
  });
}

const std::vector<spec::Layout>& experts_layouts() {
  static const std::vector<spec::Layout> all = {
      {},
      {.dp_replicate = 4, .ep = 4},
      {.dp_replicate = 2, .ep = 1, .etp = 2},
      {.dp_shard = 4, .zero_stage = 1},
      {.dp_shard = 4, .ep = 2, .zero_stage = 3},
      {.dp_shard = 4, .ep = 4, .zero_stage = 2},
      {.dp_replicate = 2, .dp_shard = 2, .ep = 2, .etp = 2, .zero_stage = 1},
      {.tp = 2, .dp_shard = 2, .ep = 4, .zero_stage = 3},
      {.cp = 2, .dp_shard = 2, .ep = 2, .zero_stage = 1},
      {.pp = 2, .dp_shard = 2, .ep = 2, .zero_stage = 1}};
  return all;
}

bool has_bits_of_one_rank(const spec::Layout& l) { return l.ep * l.etp * l.tp * l.cp == 1; }

TEST(ExpertsResumeTest, any_layout_continues_any_other) {
  std::string expected;
  {
    ckpt::MemoryDisk disk;
    run_experts({}, disk, [&](const ExpertsTrainer& t) {
      t.steps(4);
      expected = t.engine.weights_sha256();
    });
  }
  for (const spec::Layout& from : experts_layouts()) {
    ckpt::MemoryDisk disk;
    std::vector<std::string> saved(static_cast<size_t>(from.ranks()));
    std::atomic<size_t> next = 0;
    run_experts(from, disk, [&](const ExpertsTrainer& t) {
      t.steps(2);
      saved[next++] = t.engine.weights_sha256();
      t.checkpointer.save(2, base::Json{{"step", 2}});
      t.checkpointer.finish();
    });
    for (const std::string& hash : saved) EXPECT_EQ(hash, saved.front()) << spec::words(from);
    for (const spec::Layout& to : experts_layouts()) {
      run_experts(to, disk, [&](const ExpertsTrainer& t) {
        ASSERT_TRUE(t.checkpointer.load({}));
        ASSERT_EQ(t.checkpointer.difference(2), "");
        EXPECT_EQ(t.engine.weights_sha256(), saved.front())
            << spec::words(from) << " to " << spec::words(to);
        for (int i = 0; i < 2; ++i) t.source.next_step();
        t.steps(2);
        const std::string end = t.engine.weights_sha256();
        if (!has_bits_of_one_rank(from) || !has_bits_of_one_rank(to)) return;
        EXPECT_EQ(end, expected) << spec::words(from) << " to " << spec::words(to);
      });
    }
  }
}

TEST(ExpertsResumeTest, saves_whole_experts_and_the_bias_of_routers) {
  ckpt::MemoryDisk disk;
  run_experts(experts_layouts()[6], disk, [&](const ExpertsTrainer& t) {
    t.steps(1);
    t.checkpointer.save(1, base::Json{{"step", 1}});
    t.checkpointer.finish();
  });
  const auto generation = ckpt::Generation::open(disk, experts_root / "step-00000001");
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const ckpt::TensorInfo& tensor : generation.manifest().tensors) {
    shapes[tensor.name] = tensor.shape;
  }
  EXPECT_EQ(shapes["weight/blocks.1.experts.gate_up.weight"], (std::vector<int64_t>{8, 24, 24}));
  EXPECT_EQ(shapes["v/blocks.1.experts.down.weight"], (std::vector<int64_t>{8, 24, 12}));
  EXPECT_EQ(shapes["router.bias/blocks.1"], std::vector<int64_t>{8});
  EXPECT_FALSE(shapes.contains("weight/blocks.0.experts.down.weight"));
}

}  // namespace
}  // namespace trireme::tests
