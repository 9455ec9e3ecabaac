// SPDX-License-Identifier: Apache-2.0
#include "train/batches/batches.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "base/error.h"
#include "comm/mesh.h"
#include "comm/threads.h"
#include "device/cpu/cpu_device.h"
#include "kernels/table.h"
#include "train/batches/data_sets.h"
#include "train/setup/rank.h"

namespace trireme::train {
namespace {

const spec::ModelSpec tiny_model = spec::make_model({.family = spec::Family::llama,
                                                     .layers = 1,
                                                     .hidden = 16,
                                                     .heads = 2,
                                                     .ffn = 32,
                                                     .vocab = 256,
                                                     .max_seq = 8});

spec::Plan plan_of(spec::Layout layout) {
  layout.micro_batch = layout.accumulation = 2;
  layout.precision = spec::Precision::fp32;
  return spec::solve_or_throw(tiny_model, {.seq_len = 8}, layout, spec::cpu_backend());
}

// Fills every index with the micro-batch of index 0.
class Repeating final : public engine::MicrobatchSource {
 public:
  explicit Repeating(TrainBatches& source) : source_(source) {}
  void fill(int index, const engine::HostMicrobatch& out) override {
    if (index == 0) source_.fill(0, out);
    if (index == 0) first_.assign(out.tokens.begin(), out.tokens.end());
    std::copy(first_.begin(), first_.end(), out.tokens.begin());
    std::fill(out.labels.begin(), out.labels.end(), 1);
    engine::set_equal_sequences(out, 2, 8);
  }
  uint64_t sample_hash(int /*index*/) const override { return source_.sample_hash(0); }

 private:
  TrainBatches& source_;
  std::vector<int32_t> first_;
};

using Place = std::function<spec::Coord(spec::Coord)>;
enum class Source : uint8_t { healthy, repeating };

// Returns the message of check_samples() after three steps in which each rank takes the batches of
// place(its coordinates); empty: no error.
std::string problem_of(const spec::Layout& split, const Place& place,
                       Source kind = Source::healthy) {
  const spec::Plan plan = plan_of(split);
  std::vector<int32_t> tokens(2000);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i % 251);
  const auto data = data::tokens_in_memory(tokens, -1);
  const data::Sampler sampler(*data, {.seed = 3, .seq_len = 8});
  const auto ranks = static_cast<int>(split.ranks());
  comm::ThreadWorld world(ranks, 60);
  try {
    comm::run_ranks(world, [&](int number) {
      device::CpuDevice device(kernels::cpu_kernels(), {});
      Rank rank(ranks == 1 ? nullptr : world.communicator(number, {.name = "world"}), plan.mesh,
                device);
      engine::Engine engine(device, tiny_model, plan, spec::cpu_backend(), {}, rank.mesh());
      TrainBatches batches(sampler, plan, place(rank.coord()), 0);
      Repeating repeating(batches);
      for (int64_t step = 0; step < 3; ++step) {
        engine.step(kind == Source::healthy ? static_cast<engine::MicrobatchSource&>(batches)
                                            : static_cast<engine::MicrobatchSource&>(repeating),
                    1e-3);
        check_samples(engine.report(), plan, step);
      }
      engine.close(comm::End::finish);
    });
  } catch (const base::Error& error) {
    return error.what();
  }
  return "";
}

spec::Coord own(spec::Coord coord) { return coord; }

TEST(TrainBatches, every_layout_consumes_each_sample_once) {
  for (const spec::Layout& split :
       {spec::Layout{},
        {.logical_dp = 3},
        {.dp_replicate = 2},
        {.dp_replicate = 2, .logical_dp = 4},
        {.dp_shard = 2, .zero_stage = 3, .reduce = spec::ReduceWhen::each},
        {.tp = 2, .dp_replicate = 2},
        {.tp = 2, .sequence_parallel = true}}) {
    EXPECT_EQ(problem_of(split, own), "") << spec::words(split);
  }
}

// Returns the hash of what the ranks of a layout consume together in a step.
uint64_t step_hash_of(const spec::Layout& split, int64_t step, int64_t shift = 0) {
  const spec::Plan plan = plan_of(split);
  const std::vector<int32_t> tokens(2000, 7);
  const auto data = data::tokens_in_memory(tokens, -1);
  const data::Sampler sampler(*data, {.seed = 3, .seq_len = 8});
  std::vector<int32_t> memory(17 * 4);
  uint64_t sum = 0;
  for (int number = 0; number < static_cast<int>(split.ranks()); ++number) {
    TrainBatches batches(sampler, plan, comm::coord_of(plan.mesh, number), step, shift);
    for (int index = 0; index < static_cast<int>(batches.microbatches()); ++index) {
      batches.fill(index, {std::span(memory).subspan(0, 16), std::span(memory).subspan(16, 16),
                           std::span(memory).subspan(32, 16), std::span(memory).subspan(48, 17)});
    }
    sum += batches.step_hash();
  }
  return sum;
}

TEST(TrainBatches, the_hash_of_a_step_is_that_of_its_samples_on_any_ranks) {
  const spec::Layout whole{.logical_dp = 4}, on_two{.dp_replicate = 2, .logical_dp = 4},
      on_four{.dp_replicate = 4};
  const uint64_t hash = step_hash_of(whole, 5);
  EXPECT_EQ(step_hash_of(whole, 5), hash);
  EXPECT_EQ(step_hash_of(on_two, 5), hash);
  EXPECT_EQ(step_hash_of(on_four, 5), hash);
  EXPECT_NE(step_hash_of(whole, 6), hash);
  // The same samples but one, and the same samples in other places.
  EXPECT_NE(step_hash_of(whole, 5, 1), hash);
  EXPECT_NE(step_hash_of(whole, 4, 16), step_hash_of(whole, 5, 1));
  EXPECT_EQ(step_hash_of(whole, 4, 16), hash);
}

TEST(TrainBatches, the_same_samples_on_two_ranks_are_detected) {
  const auto same = [](spec::Coord coord) {
    coord[spec::Axis::dp] = 0;
    return coord;
  };
  const std::string problem = problem_of({.dp_replicate = 2}, same);
  EXPECT_NE(problem.find("step 1"), std::string::npos) << problem;
  EXPECT_NE(problem.find("samples 0..7 were not each consumed exactly once"), std::string::npos)
      << problem;
}

TEST(TrainBatches, a_source_that_repeats_samples_is_detected) {
  for (const spec::Layout& split : {spec::Layout{}, {.dp_replicate = 2}}) {
    EXPECT_NE(problem_of(split, own, Source::repeating).find("duplicated"), std::string::npos);
  }
}

TEST(TrainBatches, different_samples_along_tp_are_detected) {
  const auto swapped = [](spec::Coord coord) {
    if (coord[spec::Axis::tp] == 1) coord[spec::Axis::dp] = 1 - coord[spec::Axis::dp];
    return coord;
  };
  const std::string problem = problem_of({.tp = 2, .dp_replicate = 2}, swapped);
  EXPECT_NE(problem.find("ranks along tp"), std::string::npos) << problem;
}

TEST(DataSets, changes_of_training_and_held_out_files_are_named) {
  namespace fs = std::filesystem;
  const fs::path folder =
      fs::temp_directory_path() / ("trireme_data_sets_" + std::to_string(::getpid()));
  fs::create_directories(folder);
  const fs::path train = folder / "train.txt", held_out = folder / "held_out.txt";
  for (const fs::path& file : {train, held_out}) std::ofstream(file) << std::string(1000, 'x');
  config::Config c;
  c.training.dataset_path = train.string();
  c.training.seq_len = 8;
  c.training.global_batch_size = 8;
  c.validation.enable = true;
  c.validation.dataset_path = held_out.string();
  const DataSets data(c, 256);
  EXPECT_EQ(data.changed(), "");
  fs::resize_file(held_out, 999);
  const std::string cut = held_out.string() + ": has 999 bytes and had 1000 when it was opened";
  EXPECT_EQ(data.changed(), cut);
  fs::remove(train);
  EXPECT_EQ(data.changed(), train.string() + ": was removed since it was opened; " + cut);
  fs::remove_all(folder);
}

}  // namespace
}  // namespace trireme::train
