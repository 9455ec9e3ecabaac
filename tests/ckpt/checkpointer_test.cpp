// SPDX-License-Identifier: Apache-2.0
// Checkpointer in a run of one or several ranks: it takes the predicted host memory, reports the
// cost of a save, and a disk that is full or fails stops saves, not steps.
#include "train/checkpointing/checkpointer.h"

#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "base/text/json.h"
#include "ckpt/disk/forward_disk_test.h"
#include "ckpt/disk/memory_disk.h"
#include "ckpt/generation/folder.h"
#include "comm/threads.h"
#include "tests/crashlab/failing_disk.h"
#include "tests/engine/rig.h"
#include "train/setup/rank.h"

namespace trireme::tests {
namespace {

using crashlab::FailingDisk;
using train::Checkpointer;

constexpr int steps = 3;
const ckpt::Disk::Path root = "/run";

// Returns a plan in fp32, or in bf16 with masters of this type.
spec::Plan plan_of(const spec::ModelSpec& model, spec::Layout layout,
                   std::optional<base::DType> master = {}) {
  layout.accumulation = 4;
  layout.precision = master ? spec::Precision::bf16 : spec::Precision::fp32;
  layout.master_dtype = master.value_or(base::DType::f32);
  return spec::solve_or_throw(model, {.seq_len = 8}, layout, spec::cpu_backend());
}

// The results of a run of three steps with a save after each.
struct RunResult {
  std::string weights;  // their hash
  train::SaveFigures figures;
  std::vector<std::string> logged;  // by the first rank
  std::vector<train::SavedGeneration> saved;
  std::vector<int64_t> predicted, used, in_ledger;  // by rank
};

struct RunOptions {
  bool reread = false;
  int keep = 0;
  std::optional<base::DType> master = {};
};

RunResult run(ckpt::Disk& disk, const spec::Layout& split, const RunOptions& wanted = {}) {
  const spec::ModelSpec model = spec::make_model(tiny_llama());
  const spec::Plan plan = plan_of(model, split, wanted.master);
  const auto ranks = static_cast<int>(split.ranks());
  comm::ThreadWorld world(ranks, 60);
  const auto count = static_cast<size_t>(ranks);
  RunResult result{.predicted = std::vector<int64_t>(count),
                   .used = std::vector<int64_t>(count),
                   .in_ledger = std::vector<int64_t>(count)};
  comm::run_ranks(world, [&](int number) {
    device::CpuDevice device(kernels::cpu_kernels(), {});
    train::Rank rank(ranks == 1 ? nullptr : world.communicator(number, {.name = "world"}),
                     plan.mesh, device);
    engine::Engine engine(device, model, plan, spec::cpu_backend(), {}, rank.mesh());
    RandomSource batches(5, tiny_llama().vocab, 1, 8);
    {
      Checkpointer checkpointer(
          engine, model, rank, device, disk,
          {.folder = root, .retention = {.latest = wanted.keep}, .reread = wanted.reread},
          {.log =
               [&](const std::string& text) {
                 if (rank.is_first()) result.logged.push_back(text);
               },
           .saved = [&](const train::SavedGeneration& saved) { result.saved.push_back(saved); }});
      for (int64_t step = 1; step <= steps; ++step) {
        engine.step(batches, 1e-2);
        batches.next_step();
        checkpointer.save(step, base::Json{{"step", step}});
      }
      checkpointer.finish();
      const auto at = static_cast<size_t>(number);
      result.predicted[at] = Checkpointer::memory_bytes(model, plan, number, wanted.reread);
      result.used[at] = checkpointer.used_bytes();
      result.in_ledger[at] = device.host_ledger().peak(device::Mem::checkpoint);
      if (rank.is_first()) result.figures = checkpointer.figures();
    }
    EXPECT_EQ(device.host_ledger().live(device::Mem::checkpoint), 0);
    const std::string weights = engine.weights_sha256();
    if (rank.is_first()) result.weights = weights;
    engine.close(comm::End::finish);
  });
  return result;
}

const std::vector<spec::Layout>& splits() {
  static const std::vector<spec::Layout> all = {
      {},
      {.dp_replicate = 2},
      {.dp_shard = 2, .zero_stage = 3, .reduce = spec::ReduceWhen::each},
      {.dp_replicate = 2, .dp_shard = 2, .zero_stage = 1},
      {.tp = 2},
      {.pp = 2}};
  return all;
}

TEST(CheckpointerTest, takes_the_predicted_host_memory) {
  for (const spec::Layout& split : splits()) {
    for (const RunOptions& wanted : {RunOptions{}, RunOptions{.reread = true},
                                     RunOptions{.reread = true, .master = base::DType::u16}}) {
      const bool reread = wanted.reread;
      ckpt::MemoryDisk disk;
      const RunResult result = run(disk, split, wanted);
      EXPECT_EQ(result.used, result.predicted);
      EXPECT_EQ(result.in_ledger, result.predicted);
      // At least the file, and with reread one more buffer.
      for (size_t rank = 0; rank < result.used.size(); ++rank) {
        const auto file =
            disk.open(root / "step-00000003" / ckpt::data_name(static_cast<int>(rank)))->size();
        EXPECT_GT(result.predicted[rank], file + (reread ? ckpt::chunk_bytes : 0));
      }
    }
  }
}

// On one rank, with a model whose table has more split floats than are joined at one time.
TEST(CheckpointerTest, fp32_masters_and_split_masters_load_each_others_checkpoints) {
  spec::ModelDims dims = tiny_llama();
  dims.vocab = 100000;
  const spec::ModelSpec model = spec::make_model(dims);
  ASSERT_GT(dims.vocab * dims.hidden, 2 * train::StagedCopy::max_split_elements);
  ckpt::MemoryDisk disk;
  std::string last;
  int64_t step = 0;
  for (const base::DType master :
       {base::DType::u16, base::DType::u16, base::DType::f32, base::DType::u16}) {
    const spec::Plan plan = plan_of(model, {}, master);
    device::CpuDevice device(kernels::cpu_kernels(), {});
    train::Rank rank(nullptr, plan.mesh, device);
    engine::Engine engine(device, model, plan, spec::cpu_backend(), {}, nullptr);
    Checkpointer checkpointer(engine, model, rank, device, disk, {.folder = root}, {});
    if (step > 0) {
      ASSERT_TRUE(checkpointer.load({.step = step}));
      EXPECT_EQ(engine.weights_sha256(), last);
      EXPECT_EQ(checkpointer.difference(step), "");
    }
    RandomSource batches(static_cast<uint64_t>(step), dims.vocab, 1, 8);
    engine.step(batches, 1e-2);
    checkpointer.save(++step, base::Json{{"step", step}});
    checkpointer.finish();
    EXPECT_EQ(checkpointer.difference(step), "");
    EXPECT_NE(engine.weights_sha256(), last);
    last = engine.weights_sha256();
  }
}

// A run in fp16 that is stopped after any step, resumes with other options of the first scale and
// has the bits of one that was not stopped.
TEST(CheckpointerTest, a_loss_scale_is_resumed) {
  const spec::ModelSpec model = spec::make_model(tiny_llama());
  const spec::Plan plan =
      spec::solve_or_throw(model, {.seq_len = 8}, {.precision = spec::Precision::fp16}, {});
  engine::EngineOptions options;
  options.loss_scale = {.initial = 0x1p18F, .growth_interval = 2};
  std::string expected;
  for (const int64_t stop : {0, 1, 3, 6}) {
    ckpt::MemoryDisk disk;
    std::string found;
    for (int64_t first = 0; first < 8; first = first == 0 && stop > 0 ? stop : 8) {
      device::CpuDevice device(kernels::cpu_kernels(), {});
      train::Rank rank(nullptr, plan.mesh, device);
      options.loss_scale.initial = first == 0 ? 0x1p18F : 16;
      engine::Engine engine(device, model, plan, spec::cpu_backend(), options, nullptr);
      Checkpointer checkpointer(engine, model, rank, device, disk, {.folder = root}, {});
      if (first > 0) {
        ASSERT_TRUE(checkpointer.load({.step = first}));
      }
      RandomSource batches(5, tiny_llama().vocab, 1, 8);
      for (int64_t step = 0; step < (first == 0 && stop > 0 ? stop : 8); ++step) {
        if (step >= first) engine.step(batches, 1e-2);
        batches.next_step();
      }
      if (first == 0 && stop > 0) checkpointer.save(stop, base::Json{{"step", stop}});
      checkpointer.finish();
      found = engine.weights_sha256();
      if (first > 0 || stop == 0) {
        EXPECT_GT(engine.report().not_finite, 1);
        EXPECT_GT(engine.report().applied, 2);
      }
    }
    if (stop == 0) expected = found;
    EXPECT_EQ(found, expected) << "stopped after step " << stop;
  }
}

TEST(CheckpointerTest, reports_the_cost_of_every_save) {
  for (const spec::Layout& split : splits()) {
    ckpt::MemoryDisk disk;
    const RunResult result = run(disk, split);
    ASSERT_EQ(result.saved.size(), size_t{steps});
    double stall_seconds = 0;
    for (int64_t step = 1; step <= steps; ++step) {
      const train::SavedGeneration& saved = result.saved[static_cast<size_t>(step - 1)];
      EXPECT_EQ(saved.step, step);
      const auto folder = root / ckpt::generation_name(step);
      int64_t bytes = 0;
      for (const ckpt::DiskEntry& file : disk.list(folder)) {
        if (file.name != ckpt::manifest_name) bytes += disk.open(folder / file.name)->size();
      }
      EXPECT_EQ(saved.bytes, bytes);
      EXPECT_GT(saved.durable_seconds, 0);
      EXPECT_GT(saved.stall_seconds, 0);
      stall_seconds += saved.stall_seconds;
    }
    EXPECT_DOUBLE_EQ(result.figures.stall_seconds, stall_seconds);
    EXPECT_EQ(result.figures.durable_seconds, result.saved.back().durable_seconds);
    EXPECT_TRUE(result.logged.empty());
  }
}

// Records the threads on which it was made the current device.
class NotingDevice final : public device::CpuDevice {
 public:
  NotingDevice() : CpuDevice(kernels::cpu_kernels(), {}) {}
  void use_on_this_thread() override {
    const std::scoped_lock lock(mutex);
    threads.insert(std::this_thread::get_id());
  }

  std::mutex mutex;  // guards threads
  std::set<std::thread::id> threads;
};

// Records the threads on which files are written.
class NotingDisk final : public ckpt::ForwardDisk {
 public:
  explicit NotingDisk(ckpt::Disk& below) : ForwardDisk(below) {}
  std::unique_ptr<ckpt::DiskFile> create(const Path& path, int64_t bytes) override {
    const std::scoped_lock lock(mutex);
    threads.insert(std::this_thread::get_id());
    return ForwardDisk::create(path, bytes);
  }

  std::mutex mutex;  // guards threads
  std::set<std::thread::id> threads;
};

// In a process with several GPUs, a new thread starts with the first one as its current device.
TEST(CheckpointerTest, the_writers_thread_selects_its_device) {
  const spec::ModelSpec model = spec::make_model(tiny_llama());
  const spec::Plan plan = plan_of(model, {});
  ckpt::MemoryDisk below;
  NotingDisk disk(below);
  NotingDevice device;
  train::Rank rank(nullptr, plan.mesh, device);
  engine::Engine engine(device, model, plan, spec::cpu_backend(), {}, nullptr);
  Checkpointer checkpointer(engine, model, rank, device, disk, {.folder = root}, {});
  RandomSource batches(5, tiny_llama().vocab, 1, 8);
  engine.step(batches, 1e-2);
  checkpointer.save(1, base::Json{{"step", 1}});
  checkpointer.finish();
  ASSERT_FALSE(disk.threads.empty());
  EXPECT_FALSE(disk.threads.contains(std::this_thread::get_id()));
  EXPECT_EQ(device.threads, disk.threads);
}

// The disk fails at every operation in turn, including the first folder and file.
TEST(CheckpointerTest, a_disk_that_is_full_or_fails_stops_saves_and_not_steps) {
  for (const spec::Layout& split : {spec::Layout{}, {.dp_replicate = 2}}) {
    ckpt::MemoryDisk healthy;
    FailingDisk counting(healthy, {});
    const RunResult straight = run(counting, split);
    ASSERT_EQ(straight.figures.saves, steps);
    std::map<int64_t, int> runs_by_failures;
    for (int64_t at = 0; at < counting.operations(); ++at) {
      for (const bool is_full : {true, false}) {
        for (const bool for_good : {true, false}) {
          ckpt::MemoryDisk below;
          FailingDisk disk(below, {.operation = at, .for_good = for_good, .is_full = is_full});
          const RunResult result = run(disk, split);
          const std::string where = std::to_string(at) + (is_full ? " full" : " failed") +
                                    (for_good ? " for good" : " once");
          EXPECT_EQ(result.weights, straight.weights) << where;
          EXPECT_EQ(result.figures.saves + result.figures.failed, steps) << where;
          // Every failed save was logged, and only those.
          EXPECT_EQ(std::ssize(result.logged), result.figures.failed) << where;
          for (const std::string& line : result.logged) {
            EXPECT_NE(line.find("not saved: "), std::string::npos) << line;
          }
          EXPECT_EQ(std::ssize(result.saved), result.figures.saves) << where;
          EXPECT_GE(std::ssize(ckpt::committed_steps(below, root)), result.figures.saves) << where;
          ++runs_by_failures[result.figures.failed];
        }
      }
    }
    // A disk that is full from the first operation on loses all saves; one that fails late, the
    // last; one that fails once, at most one.
    EXPECT_GT(runs_by_failures[steps], 0);
    EXPECT_GT(runs_by_failures[1], runs_by_failures[steps]);
  }
}

class KeepingDisk final : public ckpt::ForwardDisk {
 public:
  using ForwardDisk::ForwardDisk;
  void remove_file(const Path&) override { throw base::IoError("removal is not permitted"); }
};

TEST(CheckpointerTest, a_generation_is_saved_even_if_older_ones_cannot_be_removed) {
  ckpt::MemoryDisk memory;
  KeepingDisk disk(memory);
  const RunResult result = run(disk, {}, {.keep = 1});
  EXPECT_EQ(result.figures.saves, steps);
  EXPECT_EQ(result.figures.failed, 0);
  EXPECT_EQ(ckpt::committed_steps(disk, root), (std::vector<int64_t>{steps}));
  ASSERT_EQ(std::ssize(result.logged), steps - 1);
  EXPECT_NE(result.logged[0].find("saved, but older ones not removed: removal is not permitted"),
            std::string::npos)
      << result.logged[0];
}

}  // namespace
}  // namespace trireme::tests
