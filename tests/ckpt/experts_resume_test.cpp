// SPDX-License-Identifier: Apache-2.0
// Checkpoints of mixtures of experts: weights, moments and the router's bias load into any layout,
// however experts are spread. A run continues with the bits of one that was not interrupted if both
// layouts take sums alike, and otherwise close to it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
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
    engine.close(comm::End::finish);
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

// Layouts that differ in these take sums in another order: with experts on other ranks, those that
// exchange tokens multiply the tokens of their workers together.
bool sum_alike(const spec::Layout& a, const spec::Layout& b) {
  const bool is_spread = a.ep * a.etp > 1;
  return a.ep == b.ep && a.etp == b.etp && a.tp == b.tp && a.cp == b.cp &&
         (!is_spread || a.data_ranks() == b.data_ranks());
}

struct ExpertsEnd {
  std::string hash;
  std::vector<float> values;
};
ExpertsEnd end_of(engine::Engine& engine) {
  ExpertsEnd end{.hash = engine.weights_sha256(), .values = {}};
  for (const auto& param : engine.parameters()) {
    const std::vector<float> values = engine.read_weights(param.name);
    end.values.insert(end.values.end(), values.begin(), values.end());
  }
  return end;
}

double distance_of(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::pow(double{a[i]} - double{b[i]}, 2);
  return std::sqrt(sum);
}

// Loads the checkpoint of two steps and trains two more. Returns the weights at the end, and sets
// those that were loaded.
ExpertsEnd continued(const spec::Layout& layout, ckpt::Disk& disk, ExpertsEnd& loaded,
                     bool loses_moments = false) {
  ExpertsEnd end;
  std::mutex mutex;  // guards `loaded` and `end`
  run_experts(layout, disk, [&](const ExpertsTrainer& t) {
    ASSERT_TRUE(t.checkpointer.load({}));
    ASSERT_EQ(t.checkpointer.difference(2), "");
    const ExpertsEnd before = end_of(t.engine);
    for (const auto& range : t.engine.state()) {
      if (!loses_moments || range.tensor.name == spec::weight_state) continue;
      const std::vector<float> values = t.engine.read_state(range);
      t.engine.write_state(range, std::vector<float>(values.size()));
    }
    for (int i = 0; i < 2; ++i) t.source.next_step();
    t.steps(2);
    const ExpertsEnd after = end_of(t.engine);
    const std::scoped_lock lock(mutex);
    loaded = before;
    end = after;
  });
  return end;
}

TEST(ExpertsResumeTest, any_layout_continues_any_other) {
  double farthest = 0, nearest_loss = 1e9;
  for (const spec::Layout& from : experts_layouts()) {
    ckpt::MemoryDisk disk;
    std::string expected;  // of a run on `from` that is not interrupted
    std::vector<std::string> saved(static_cast<size_t>(from.ranks()));
    std::atomic<size_t> next = 0;
    std::mutex mutex;  // guards `expected`
    run_experts(from, disk, [&](const ExpertsTrainer& t) {
      t.steps(2);
      saved[next++] = t.engine.weights_sha256();
      t.checkpointer.save(2, base::Json{{"step", 2}});
      t.checkpointer.finish();
      t.steps(2);
      const std::string hash = t.engine.weights_sha256();
      const std::scoped_lock lock(mutex);
      expected = hash;
    });
    for (const std::string& hash : saved) EXPECT_EQ(hash, saved.front()) << spec::words(from);
    // One rank loads whole tensors: other layouts must come close to where it goes from here, much
    // closer than a run that has lost its moments.
    ExpertsEnd loaded;
    const ExpertsEnd one = continued({}, disk, loaded);
    const double moved = distance_of(one.values, loaded.values);
    const double lost = distance_of(continued({}, disk, loaded, true).values, one.values) / moved;
    nearest_loss = std::min(nearest_loss, lost);
    for (const spec::Layout& to : experts_layouts()) {
      const std::string pair = spec::words(from) + " to " + spec::words(to);
      const ExpertsEnd end = continued(to, disk, loaded);
      EXPECT_EQ(loaded.hash, saved.front()) << pair;
      const double distance = distance_of(end.values, one.values) / moved;
      farthest = std::max(farthest, distance);
      EXPECT_LT(distance, lost / 2) << pair;
      if (sum_alike(from, to)) {
        EXPECT_EQ(end.hash, expected) << pair;
      }
      if (sum_alike(spec::Layout{}, to)) {
        EXPECT_EQ(end.hash, one.hash) << pair;
      }
    }
  }
  std::cout << fmt::format("at most {:.2g} of the way apart, without moments {:.2g}\n", farthest,
                           nearest_loss);
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
