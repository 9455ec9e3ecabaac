// SPDX-License-Identifier: Apache-2.0
// Checkpoints of runs in 8 bits with delayed scaling: histories of magnitudes load into any layout,
// and the run continues with the bits of one that was not interrupted. A run in bf16 continues in
// 8 bits without histories.
#include <gtest/gtest.h>

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

const ckpt::Disk::Path coded_root = "/run";
constexpr int coded_seq_len = 16;

spec::ModelDims coded_dims() {
  spec::ModelDims dims = tiny_llama();
  dims.layers = 4;
  dims.hidden = 64;
  dims.heads = dims.kv_heads = 4;
  dims.head_dim = 16;
  dims.ffn = 96;
  return dims;
}

// The micro-batches of one rank, by their index in the global batch.
class CodedShare final : public engine::MicrobatchSource {
 public:
  CodedShare(const spec::Plan& plan, const spec::Coord& coord)
      : plan_(plan), coord_(coord), all_(5, coded_dims().vocab, 1, coded_seq_len) {}
  void fill(int index, const engine::HostMicrobatch& out) override {
    all_.fill(static_cast<int>(spec::global_microbatch(plan_, coord_, index)), out);
  }
  void next_step() { all_.next_step(); }

 private:
  const spec::Plan& plan_;
  spec::Coord coord_;
  RandomSource all_;
};

struct CodedTrainer {
  engine::Engine& engine;
  train::Checkpointer& checkpointer;
  CodedShare& source;

  void steps(int count) const {
    for (int i = 0; i < count; ++i) {
      engine.step(source, 1e-2);
      source.next_step();
    }
  }
  void save(int step) const {
    checkpointer.save(step, base::Json{{"step", step}});
    checkpointer.finish();
  }
};

template <typename Body>
void run_coded(spec::Layout layout, ckpt::Disk& disk, const Body& body) {
  const spec::ModelSpec model = spec::make_model(coded_dims());
  layout.logical_dp = 4;
  const spec::Plan plan =
      spec::solve_or_throw(model, {.seq_len = coded_seq_len}, layout, spec::cpu_backend());
  const auto ranks = static_cast<int>(layout.ranks());
  comm::ThreadWorld world(ranks, 60);
  comm::run_ranks(world, [&](int number) {
    device::CpuDevice device(kernels::cpu_kernels(), {});
    train::Rank rank(ranks == 1 ? nullptr : world.communicator(number, {.name = "world"}),
                     plan.mesh, device);
    engine::Engine engine(device, model, plan, spec::cpu_backend(), {}, rank.mesh());
    CodedShare source(plan, rank.coord());
    train::Checkpointer checkpointer(engine, model, rank, device, disk, {.folder = coded_root},
                                     {.log = [](const std::string&) {}, .saved = {}});
    body(CodedTrainer{engine, checkpointer, source});
    engine.close(comm::End::finish);
  });
}

TEST(Float8ResumeTest, any_layout_continues_any_other) {
  constexpr auto delayed = spec::Precision::fp8_delayed;
  const std::vector<spec::Layout> layouts = {
      {.precision = delayed},
      {.dp_replicate = 4, .precision = delayed},
      {.dp_shard = 2, .zero_stage = 1, .precision = delayed},
      {.dp_shard = 4, .zero_stage = 3, .precision = delayed},
      {.pp = 2, .dp_shard = 2, .zero_stage = 1, .precision = delayed}};
  std::string expected;
  {
    ckpt::MemoryDisk disk;
    run_coded(layouts[0], disk, [&](const CodedTrainer& t) {
      t.steps(4);
      expected = t.engine.weights_sha256();
    });
  }
  for (const spec::Layout& from : layouts) {
    // Also after the first step, whose micro-batches ran twice.
    const int saved = from.ranks() == 1 ? 1 : 2;
    ckpt::MemoryDisk disk;
    run_coded(from, disk, [&](const CodedTrainer& t) {
      t.steps(saved);
      t.save(saved);
    });
    for (const spec::Layout& to : layouts) {
      run_coded(to, disk, [&](const CodedTrainer& t) {
        ASSERT_TRUE(t.checkpointer.load({}));
        ASSERT_EQ(t.checkpointer.difference(saved), "");
        for (int i = 0; i < saved; ++i) t.source.next_step();
        t.steps(4 - saved);
        EXPECT_EQ(t.engine.weights_sha256(), expected)
            << spec::words(from) << " to " << spec::words(to);
      });
    }
  }
}

TEST(Float8ResumeTest, other_recipes_continue_with_delayed_scaling_and_back) {
  using spec::Precision;
  for (const auto& [from, to] : {std::pair{Precision::bf16, Precision::fp8_delayed},
                                 {Precision::fp8, Precision::fp8_delayed},
                                 {Precision::fp8_delayed, Precision::bf16}}) {
    ckpt::MemoryDisk disk;
    double before = 0;
    run_coded({.precision = from}, disk, [&](const CodedTrainer& t) {
      t.steps(2);
      t.save(2);
      t.steps(1);
      before = t.engine.report().mean_loss;
    });
    run_coded({.precision = to}, disk, [&](const CodedTrainer& t) {
      ASSERT_TRUE(t.checkpointer.load({}));
      for (int i = 0; i < 2; ++i) t.source.next_step();
      t.steps(1);
      EXPECT_NEAR(t.engine.report().mean_loss, before, 0.02 * before)
          << spec::name_of(from) << " to " << spec::name_of(to);
    });
  }
}

}  // namespace
}  // namespace trireme::tests
