// SPDX-License-Identifier: Apache-2.0
// Checkpoints of runs with Muon: its momentum and the moments of the other parameters load into any
// layout, the run continues with the bits of one that was not interrupted at equal tp and close to
// it otherwise, and the state of another optimizer is refused.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <iostream>
#include <map>
#include <mutex>

#include "base/text/json.h"
#include "ckpt/disk/memory_disk.h"
#include "comm/threads.h"
#include "spec/parallel/data_parallel.h"
#include "tests/engine/rig.h"
#include "train/checkpointing/checkpointer.h"
#include "train/setup/rank.h"

namespace trireme::tests {
namespace {

const ckpt::Disk::Path muon_root = "/run";
constexpr int muon_seq_len = 8;

// The micro-batches of one rank, by their index in the global batch.
class OwnShare final : public engine::MicrobatchSource {
 public:
  OwnShare(const spec::Plan& plan, const spec::Coord& coord)
      : plan_(plan), coord_(coord), all_(5, tiny_qwen3().vocab, 1, muon_seq_len) {}
  void fill(int index, const engine::HostMicrobatch& out) override {
    all_.fill(static_cast<int>(spec::global_microbatch(plan_, coord_, index)), out);
  }
  void next_step() { all_.next_step(); }

 private:
  const spec::Plan& plan_;
  spec::Coord coord_;
  RandomSource all_;
};

struct Trainer {
  engine::Engine& engine;
  train::Checkpointer& checkpointer;
  OwnShare& source;

  void steps(int count) const {
    for (int i = 0; i < count; ++i) {
      engine.step(source, 1e-2);
      source.next_step();
    }
  }
};

template <typename Body>
void run_muon(spec::Layout layout, ckpt::Disk& disk, const Body& body) {
  const spec::ModelSpec model = spec::make_model(tiny_qwen3());
  layout.logical_dp = 4;
  layout.accumulation = 2;
  layout.reduce = spec::ReduceWhen::each;  // ZeRO-2 and -3 need it
  layout.master_dtype = base::DType::u16;
  const spec::Plan plan =
      spec::solve_or_throw(model, {.seq_len = muon_seq_len}, layout, spec::cpu_backend());
  const auto ranks = static_cast<int>(layout.ranks());
  comm::ThreadWorld world(ranks, 60);
  comm::run_ranks(world, [&](int number) {
    device::CpuDevice device(kernels::cpu_kernels(), {});
    train::Rank rank(ranks == 1 ? nullptr : world.communicator(number, {.name = "world"}),
                     plan.mesh, device);
    engine::Engine engine(device, model, plan, spec::cpu_backend(), {}, rank.mesh());
    OwnShare source(plan, rank.coord());
    train::Checkpointer checkpointer(engine, model, rank, device, disk, {.folder = muon_root},
                                     {.log = [](const std::string&) {}, .saved = {}});
    body(Trainer{engine, checkpointer, source});
    engine.close(comm::End::finish);
  });
}

std::vector<spec::Layout> muon_layouts() {
  std::vector<spec::Layout> all = {
      {},
      {.dp_replicate = 2},
      {.dp_shard = 4, .zero_stage = 1},
      {.dp_shard = 2, .zero_stage = 2},
      {.dp_shard = 4, .zero_stage = 3},
      {.dp_replicate = 2, .dp_shard = 2, .zero_stage = 3},
      {.pp = 2, .dp_shard = 2, .zero_stage = 1},
      {.tp = 2},
      {.tp = 2, .dp_shard = 2, .zero_stage = 3},
  };
  for (spec::Layout& layout : all) layout.optimizer = spec::OptimizerKind::muon;
  return all;
}

std::vector<float> all_weights(engine::Engine& engine) {
  std::vector<float> all;
  for (const auto& param : engine.parameters()) {
    const std::vector<float> values = engine.read_weights(param.name);
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::pow(double{a[i]} - double{b[i]}, 2);
  return std::sqrt(sum);
}

TEST(MuonResumeTest, any_layout_continues_any_other) {
  // The weights of uninterrupted runs, by tp, which decides the order of sums.
  std::map<int, std::string> expected;
  std::vector<float> one;
  double moved = 0, farthest = 0, lost = 0;
  std::mutex mutex;  // guards the variables above
  for (const size_t layout : {0, 7}) {
    ckpt::MemoryDisk disk;
    run_muon(muon_layouts()[layout], disk, [&](const Trainer& t) {
      t.steps(3);
      const std::vector<float> middle = all_weights(t.engine);
      t.steps(2);
      const std::vector<float> end = all_weights(t.engine);
      const std::string hash = t.engine.weights_sha256();
      const std::scoped_lock lock(mutex);
      expected[muon_layouts()[layout].tp] = hash;
      if (layout != 0) return;
      one = end;
      moved = distance(end, middle);
    });
  }
  ASSERT_EQ(expected.size(), 2U);
  {
    ckpt::MemoryDisk disk;  // a run that loses its momentum and moments at the same step
    run_muon(muon_layouts().front(), disk, [&](const Trainer& t) {
      t.steps(3);
      for (const auto& range : t.engine.state()) {
        if (range.tensor.name == spec::weight_state) continue;
        const std::vector<float> values = t.engine.read_state(range);
        t.engine.write_state(range, std::vector<float>(values.size()));
      }
      t.steps(2);
      lost = distance(all_weights(t.engine), one) / moved;
    });
  }
  for (const spec::Layout& from : muon_layouts()) {
    ckpt::MemoryDisk disk;
    run_muon(from, disk, [&](const Trainer& t) {
      t.steps(3);
      t.checkpointer.save(3, base::Json{{"step", 3}});
      t.checkpointer.finish();
    });
    for (const spec::Layout& to : muon_layouts()) {
      run_muon(to, disk, [&](const Trainer& t) {
        ASSERT_TRUE(t.checkpointer.load({}));
        ASSERT_EQ(t.checkpointer.difference(3), "");
        for (int i = 0; i < 3; ++i) t.source.next_step();
        t.steps(2);
        const std::vector<float> end = all_weights(t.engine);
        const std::string hash = t.engine.weights_sha256();
        const std::scoped_lock lock(mutex);
        farthest = std::max(farthest, distance(end, one) / moved);
        EXPECT_LT(distance(end, one) / moved, lost / 2)
            << spec::words(from) << " to " << spec::words(to);
        if (from.tp != to.tp) return;  // other sums in forward and backward
        EXPECT_EQ(hash, expected[to.tp]) << spec::words(from) << " to " << spec::words(to);
      });
    }
  }
  std::cout << fmt::format("at most {:.2g} of the way apart, without moments {:.2g}\n", farthest,
                           lost);
}

TEST(MuonResumeTest, saves_momentum_of_matrices_and_moments_of_the_others) {
  ckpt::MemoryDisk disk;
  run_muon(muon_layouts()[4], disk, [&](const Trainer& t) {
    t.steps(1);
    t.checkpointer.save(1, base::Json{{"step", 1}});
    t.checkpointer.finish();
  });
  const ckpt::Generation generation = ckpt::Generation::open(disk, muon_root / "step-00000001");
  std::set<std::string> names;
  for (const ckpt::TensorInfo& tensor : generation.manifest().tensors) names.insert(tensor.name);
  for (const char* name :
       {"weight/blocks.0.qkv.weight", "momentum/blocks.0.qkv.weight",
        "weight/blocks.1.norm1.weight", "m/blocks.1.norm1.weight", "v/embedding.tokens"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
  for (const char* name : {"m/blocks.0.qkv.weight", "v/blocks.1.down.weight",
                           "momentum/embedding.tokens", "momentum/blocks.0.norm1.weight"}) {
    EXPECT_FALSE(names.contains(name)) << name;
  }
}

TEST(MuonResumeTest, the_state_of_another_optimizer_is_refused) {
  for (const auto saved : {spec::OptimizerKind::adamw, spec::OptimizerKind::muon}) {
    ckpt::MemoryDisk disk;
    spec::Layout layout{.dp_shard = 2, .zero_stage = 1};
    layout.optimizer = saved;
    run_muon(layout, disk, [&](const Trainer& t) {
      t.steps(1);
      t.checkpointer.save(1, base::Json{{"step", 1}});
      t.checkpointer.finish();
    });
    const bool was_muon = saved == spec::OptimizerKind::muon;
    layout.optimizer = was_muon ? spec::OptimizerKind::adamw : spec::OptimizerKind::muon;
    run_muon(layout, disk, [&](const Trainer& t) {
      try {
        (void)t.checkpointer.load({});
        ADD_FAILURE() << "loaded";
      } catch (const train::OtherOptimizer& error) {
        EXPECT_EQ(
            std::string(error.what()),
            fmt::format("/run/step-00000001: contains the state of the optimizer {}, and this "
                        "run has {}, which keeps other tensors; set optimizer.name = \"{}\", "
                        "or start a new run from its weights (--init-from)",
                        was_muon ? "muon" : "adamw", was_muon ? "adamw" : "muon",
                        was_muon ? "muon" : "adamw"));
      }
    });
  }
}

}  // namespace
}  // namespace trireme::tests
