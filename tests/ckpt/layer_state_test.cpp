// SPDX-License-Identifier: Apache-2.0
// Own tensors of layers (spec/state/state.h): a test adds three to every block, two that all ranks
// along tp have and one that is cut along tp. They are predicted, reduced at the end of a step,
// saved, and loaded into any other layout.
#include <gtest/gtest.h>

#include "base/text/json.h"
#include "ckpt/disk/memory_disk.h"
#include "comm/threads.h"
#include "spec/parallel/data_parallel.h"
#include "tests/engine/rig.h"
#include "train/checkpointing/checkpointer.h"
#include "train/setup/rank.h"

namespace trireme::tests {
namespace {

constexpr int64_t shared_elements = 300, cut_elements = 8, total_elements = 5000;
const ckpt::Disk::Path state_root = "/run";

spec::ModelSpec model_with_state() {
  spec::ModelSpec model = spec::make_model(tiny_llama());
  model.block_state = {{.name = "largest",
                        .saved_as = "largest",
                        .covers = spec::StateCover::own,
                        .shard = {.name = "largest", .shape = {shared_elements}, .cuts = {}},
                        .reduction = spec::StateReduction::max},
                       {.name = "by_head",
                        .saved_as = "by_head",
                        .covers = spec::StateCover::own,
                        .shard = {.name = "by_head",
                                  .shape = {cut_elements, 3},
                                  .cuts = {{spec::Axis::tp, 0, {cut_elements}}}},
                        .reduction = spec::StateReduction::max},
                       {.name = "total",
                        .saved_as = "total",
                        .covers = spec::StateCover::own,
                        .shard = {.name = "total", .shape = {total_elements}, .cuts = {}},
                        .reduction = spec::StateReduction::sum}};
  return model;
}

struct Member {
  engine::Engine& engine;
  train::Rank& rank;
  train::Checkpointer& checkpointer;
  engine::MicrobatchSource& batches;
};

template <typename Body>
void run(const spec::Layout& layout, ckpt::Disk& disk, const Body& body) {
  const spec::ModelSpec model = model_with_state();
  spec::Layout whole = layout;
  whole.accumulation = 2;
  whole.precision = spec::Precision::fp32;
  const spec::Plan plan = spec::solve_or_throw(model, {.seq_len = 8}, whole, spec::cpu_backend());
  const auto ranks = static_cast<int>(layout.ranks());
  comm::ThreadWorld world(ranks, 60);
  comm::run_ranks(world, [&](int number) {
    device::CpuDevice device(kernels::cpu_kernels(), {});
    train::Rank rank(ranks == 1 ? nullptr : world.communicator(number, {.name = "world"}),
                     plan.mesh, device);
    engine::Engine engine(device, model, plan, spec::cpu_backend(), {}, rank.mesh());
    RandomSource batches(5, tiny_llama().vocab, 1, 8);
    train::Checkpointer checkpointer(engine, model, rank, device, disk, {.folder = state_root},
                                     {.log = [](const std::string&) {}, .saved = {}});
    body(Member{engine, rank, checkpointer, batches});
    engine.close(comm::End::finish);
  });
}

// The number of a rank among those with different tokens: equal along tp, unless they have
// different rows.
int token_rank(const spec::Plan& plan, spec::Coord coord) {
  if (!plan.layout.sequence_parallel) coord[spec::Axis::tp] = 0;
  return spec::rank_of(plan.mesh, coord);
}

// The value of every element of a layer's tensor that each rank holds before the step.
float value_of(int layer, int64_t element, int rank) {
  return static_cast<float>(1000 * layer + element) + 0.25F * static_cast<float>(rank);
}

// Calls each(range, element of the whole tensor, index) for every element of own tensors.
template <typename Each>
void for_each_element(const Member& member, const Each& each) {
  for (const engine::Engine::StateRange& part : member.engine.state()) {
    if (!part.tensor.is_own()) continue;
    const bool is_cut = part.tensor.name == "by_head";
    const int tp = is_cut ? member.rank.coord()[spec::Axis::tp] : 0;
    const int64_t count = part.range.end - part.range.begin;
    each(part, tp * count, count);
  }
}

// Sets all own tensors, so that the last rank of each group has the largest values, and trains a
// step.
void set_and_step(const Member& member) {
  for_each_element(member, [&](const auto& part, int64_t first, int64_t count) {
    std::vector<float> values;
    for (int64_t i = 0; i < count; ++i) {
      const int number = part.tensor.name == "total"
                             ? token_rank(member.engine.plan(), member.rank.coord())
                             : member.rank.number();
      values.push_back(value_of(part.layer, first + i, number));
    }
    member.engine.write_state(part, values);
  });
  const spec::TrafficTable before = member.engine.traffic();
  member.engine.step(member.batches, 1e-2);
  member.engine.compute().synchronize();
  const spec::TrafficTable predicted =
      spec::predict_traffic(model_with_state(), member.engine.plan(), member.rank.coord());
  EXPECT_EQ(member.engine.traffic().layer_state - before.layer_state, predicted.layer_state);
  EXPECT_EQ(member.engine.measured(), member.engine.predicted_memory());
}

// Returns the largest number of the ranks that have this rank's part of a tensor.
int largest_rank(const Member& member, bool is_cut) {
  const spec::Sizes& mesh = member.engine.plan().mesh;
  spec::Coord coord = member.rank.coord();
  coord[spec::Axis::dp] = mesh[spec::Axis::dp] - 1;
  coord[spec::Axis::zero] = mesh[spec::Axis::zero] - 1;
  coord[spec::Axis::cp] = mesh[spec::Axis::cp] - 1;
  if (!is_cut) coord[spec::Axis::tp] = mesh[spec::Axis::tp] - 1;
  int largest = 0;
  for (int rank = 0; rank < member.rank.ranks(); ++rank) {
    if (comm::coord_of(mesh, rank) == coord) largest = rank;
  }
  return largest;
}

// Returns the sum over the ranks with a copy of the layer and different tokens.
float total_of(const Member& member, int layer, int64_t element) {
  const spec::Plan& plan = member.engine.plan();
  float sum = 0;
  for (int rank = 0; rank < member.rank.ranks(); ++rank) {
    const spec::Coord coord = spec::coord_of(plan.mesh, rank);
    if (coord[spec::Axis::pp] != member.rank.coord()[spec::Axis::pp]) continue;
    if (token_rank(plan, coord) == rank) sum += value_of(layer, element, rank);
  }
  return sum;
}

const std::vector<spec::Layout>& layouts() {
  static const std::vector<spec::Layout> all = {
      {},
      {.tp = 2},
      {.tp = 2, .dp_replicate = 2, .sequence_parallel = true},
      {.cp = 2, .dp_shard = 2, .zero_stage = 1},
      {.dp_shard = 2, .zero_stage = 3},
      {.pp = 2, .dp_replicate = 2},
      {.tp = 2, .dp_replicate = 2, .dp_shard = 2, .zero_stage = 1}};
  return all;
}

TEST(LayerStateTest, is_predicted_and_reduced_to_the_maximum_or_the_sum) {
  for (const spec::Layout& layout : layouts()) {
    ckpt::MemoryDisk disk;
    run(layout, disk, [&](const Member& member) {
      set_and_step(member);
      for_each_element(member, [&](const auto& part, int64_t first, int64_t count) {
        const int rank = largest_rank(member, part.tensor.name == "by_head");
        const std::vector<float> values = member.engine.read_state(part);
        for (int64_t i = 0; i < count; ++i) {
          const float expected = part.tensor.name == "total"
                                     ? total_of(member, part.layer, first + i)
                                     : value_of(part.layer, first + i, rank);
          ASSERT_EQ(values[static_cast<size_t>(i)], expected)
              << part.tensor.name << " of layer " << part.layer;
        }
      });
    });
  }
}

TEST(LayerStateTest, takes_optimizer_memory_and_is_in_no_inference_plan) {
  const spec::ModelSpec plain = spec::make_model(tiny_llama()), model = model_with_state();
  const auto optim = [](const spec::ModelSpec& of, bool inference) {
    return spec::solve_or_throw(of, {.seq_len = 8, .inference = inference}, {}, spec::cpu_backend())
        .predicted.largest()
        .optim;
  };
  const int64_t by_block = base::bytes_of({{shared_elements}, base::DType::f32}) +
                           base::bytes_of({{cut_elements * 3}, base::DType::f32}) +
                           base::bytes_of({{total_elements}, base::DType::f32});
  EXPECT_EQ(optim(model, false) - optim(plain, false), model.blocks() * by_block);
  EXPECT_EQ(optim(model, true), optim(plain, true));
}

// A tensor that forward passes read also exists under an inference plan, where it is written by its
// name in checkpoints.
TEST(LayerStateTest, inputs_of_forward_passes_are_in_an_inference_plan) {
  spec::ModelSpec model = model_with_state();
  model.block_state[2].is_input = true;
  const spec::Workload work{.seq_len = 8, .inference = true};
  const spec::Plan with = spec::solve_or_throw(model, work, {}, spec::cpu_backend());
  const spec::Plan without =
      spec::solve_or_throw(model_with_state(), work, {}, spec::cpu_backend());
  EXPECT_EQ(with.predicted.largest().optim - without.predicted.largest().optim,
            model.blocks() * base::bytes_of({{total_elements}, base::DType::f32}));
  device::CpuDevice device(kernels::cpu_kernels(), {});
  engine::Engine engine(device, model, with, spec::cpu_backend(), {});
  const std::vector<float> values(static_cast<size_t>(total_elements), 1.5F);
  engine.write_weights("total/blocks.1", values);
  EXPECT_THROW(engine.write_weights("total/blocks.1", std::span(values).first(3)),
               base::ConfigError);
  EXPECT_THROW(engine.write_weights("largest/blocks.1", values), base::ConfigError);
  RandomSource batches(5, tiny_llama().vocab, 1, 8);
  engine.evaluate(batches);
  EXPECT_EQ(engine.measured(), engine.predicted_memory());
}

TEST(LayerStateTest, is_saved_and_loads_into_any_layout) {
  for (const spec::Layout& from : layouts()) {
    ckpt::MemoryDisk disk;
    std::map<std::string, std::vector<float>> saved;  // by tensor and layer: whole
    run(from, disk, [&](const Member& member) {
      set_and_step(member);
      member.checkpointer.save(1, base::Json{{"step", 1}});
      member.checkpointer.finish();
    });
    const ckpt::Generation generation = ckpt::Generation::open(disk, state_root / "step-00000001");
    for (const ckpt::TensorInfo& tensor : generation.manifest().tensors) {
      const std::string kind = tensor.name.substr(0, tensor.name.find('/'));
      if (kind != "largest" && kind != "by_head" && kind != "total") continue;
      std::vector<float>& values = saved[tensor.name];
      values.resize(static_cast<size_t>(ckpt::bytes_of(tensor)) / sizeof(float));
      const ckpt::ReadRequest request{
          tensor,
          {{std::vector<int64_t>(tensor.shape.size()), tensor.shape, 0}},
          std::as_writable_bytes(std::span(values))};
      generation.read({&request, 1});
    }
    EXPECT_EQ(saved.size(), static_cast<size_t>(3 * model_with_state().blocks()));
    for (const spec::Layout& to : layouts()) {
      run(to, disk, [&](const Member& member) {
        ASSERT_TRUE(member.checkpointer.load({}));
        EXPECT_EQ(member.checkpointer.difference(1), "");
        for_each_element(member, [&](const auto& part, int64_t first, int64_t count) {
          const std::vector<float>& whole = saved.at(
              spec::saved_name(part.tensor, spec::name_of_layer(model_with_state(), part.layer)));
          const std::vector<float> values = member.engine.read_state(part);
          EXPECT_TRUE(std::equal(values.begin(), values.end(), whole.begin() + first)) << count;
        });
      });
    }
  }
}

}  // namespace
}  // namespace trireme::tests
