// SPDX-License-Identifier: Apache-2.0
#include "train/checkpointing/memory/memory_copies.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <functional>

#include "base/error.h"
#include "base/system/descriptor.h"
#include "comm/threads.h"
#include "data/samples/sampler.h"
#include "device/cpu/cpu_device.h"
#include "kernels/table.h"
#include "train/batches/batches.h"
#include "train/run/state/engine_state.h"

namespace trireme::train {
namespace {

// A device that registers host memory, as a GPU does.
class RegisteringDevice final : public device::CpuDevice {
 public:
  RegisteringDevice() : CpuDevice(kernels::cpu_kernels(), {}) {}
  bool registers_host_memory() const override { return true; }

  std::atomic<bool> may_register = true, refuses = false;
  std::vector<std::span<std::byte>> registered;  // in this order; of the thread that registers

 private:
  void register_host(std::span<std::byte> memory) override {
    while (!may_register) std::this_thread::yield();
    if (refuses && registered.size() == 1) throw base::OutOfMemory("no more of it");
    registered.push_back(memory);
  }
  void unregister_host(std::byte* memory) noexcept override {
    std::erase_if(registered, [memory](const auto& one) { return one.data() == memory; });
  }
};

spec::ModelSpec small_model() {
  return spec::make_model({.family = spec::Family::llama,
                           .layers = 1,
                           .hidden = 16,
                           .heads = 2,
                           .ffn = 32,
                           .vocab = 256,
                           .max_seq = 8});
}

spec::Plan small_plan(const spec::Layout& layout = {}) {
  return spec::solve_or_throw(small_model(), {.seq_len = 8}, layout, spec::cpu_backend());
}

// A rank that trains and keeps copies.
class CopyingRank {
 public:
  explicit CopyingRank(device::Device& device, const spec::Plan& plan = small_plan(),
                       std::unique_ptr<comm::Communicator> world = nullptr)
      : plan_(plan),
        rank_(std::move(world), plan_.mesh, device),
        layout_(copy_layout(model_, plan_, rank_.number())),
        memory_(descriptor_.value(), shape_of(layout_, rank_.number(), 2)),
        engine_(device, model_, plan_, spec::cpu_backend(), {}, rank_.mesh()),
        batches_(sampler_, plan_, rank_.coord(), 0) {
    copies_.emplace(MemoryCopies::Parts{.engine = engine_,
                                        .model = model_,
                                        .rank = rank_,
                                        .device = device,
                                        .memory = memory_,
                                        .pace = pace_,
                                        .figures = figures_});
    copies_->begin("run1", 1, 0);
  }

  // Makes a step, and a copy after it if one is due.
  void step() {
    engine_.step(batches_, 1e-2);
    ++step_;
    if (!copies_->is_due(step_)) return;
    copies_->copy({.at = {.step = step_}, .bf16_blocks = {}, .step_state = engine_.step_state()});
    copies_->finish();
  }
  // Returns the content of the copy after a step, which must be intact; empty: there is none.
  std::vector<std::byte> content(int64_t step) const {
    for (const ckpt::FoundCopy& copy : memory_.copies()) {
      if (copy.label.step != step) continue;
      EXPECT_TRUE(memory_.verify(copy.buffer));
      const auto content = memory_.content(copy.buffer);
      return {content.begin(), content.end()};
    }
    return {};
  }
  // Returns the values of the state in such a content, and of the engine.
  std::vector<std::vector<float>> values_in(std::span<const std::byte> content) const {
    const KeptState kept =
        kept_from({}, content, layout_, {.model = model_, .plan = plan_, .rank = rank_.number()});
    return values_of(kept.state);
  }
  std::vector<std::vector<float>> values_of_engine() {
    return values_of(take_state(engine_, model_, rank_.coord()));
  }
  void end() {
    copies_.reset();
    rank_.close(comm::End::finish);
  }

  MemoryCopies& copies() { return *copies_; }
  ckpt::CopyMemory& memory() { return memory_; }
  const CopyFigures& figures() const { return figures_; }
  Rank& rank() { return rank_; }

 private:
  static std::vector<std::vector<float>> values_of(const EngineState& state) {
    std::vector<std::vector<float>> values;
    for (const EngineState::Part& part : state.parts) values.push_back(part.values);
    return values;
  }

  const spec::ModelSpec model_ = small_model();
  const spec::Plan plan_;
  const base::Descriptor descriptor_{::memfd_create("copies", MFD_CLOEXEC)};
  const std::unique_ptr<data::TokenData> data_ =
      data::tokens_in_memory(std::vector<int32_t>(2000, 7), -1);
  const data::Sampler sampler_{*data_, {.seed = 3, .seq_len = 8}};
  Rank rank_;
  const CopyLayout layout_;
  ckpt::CopyMemory memory_;
  engine::Engine engine_;
  TrainBatches batches_;
  CopyPace pace_{1, 0.01};
  CopyFigures figures_;
  std::optional<MemoryCopies> copies_;
  int64_t step_ = 0;
};

TEST(MemoryCopiesTest, copies_have_the_state_and_the_hash_of_the_source) {
  // Split master weights, too.
  const spec::Layout bf16{.precision = spec::Precision::bf16, .master_dtype = base::DType::u16};
  for (const spec::Layout& layout : {spec::Layout{}, bf16}) {
    device::CpuDevice device(kernels::cpu_kernels(), {});
    CopyingRank rank(device, small_plan(layout));
    // What lay there before must not count: padding is part of the content.
    for (const int buffer : {0, 1}) {
      std::ranges::fill(rank.memory().room(buffer), std::byte{0xa5});
    }
    rank.step();
    const std::vector<std::byte> first = rank.content(1);
    EXPECT_EQ(rank.values_in(first), rank.values_of_engine());
    rank.step();
    EXPECT_EQ(rank.content(1), first);
    const std::vector<std::byte> second = rank.content(2);
    EXPECT_EQ(rank.values_in(second), rank.values_of_engine());
    EXPECT_NE(first, second);
    EXPECT_EQ(rank.figures().copies, 2);
    EXPECT_EQ(rank.copies().problem(), "");
    EXPECT_EQ(device.host_ledger().live(device::Mem::checkpoint), 128);  // the sums
  }
}

TEST(MemoryCopiesTest, a_byte_that_changed_on_its_way_is_found) {
  device::CpuDevice device(kernels::cpu_kernels(), {});
  CopyingRank rank(device);
  rank.step();
  const int buffer = rank.memory().copies().front().buffer;
  EXPECT_TRUE(rank.memory().verify(buffer));
  const std::span<std::byte> bytes = rank.memory().room(buffer);
  for (size_t at = 0; at < bytes.size(); at += 97) {
    bytes[at] ^= std::byte{1};
    EXPECT_FALSE(rank.memory().verify(buffer)) << at;
    bytes[at] ^= std::byte{1};
  }
}

TEST(MemoryCopiesTest, no_copy_is_made_until_the_memory_is_registered) {
  RegisteringDevice device;
  device.may_register = false;
  {
    CopyingRank rank(device);
    for (int i = 0; i < 3; ++i) rank.step();
    EXPECT_TRUE(rank.memory().copies().empty());
    EXPECT_EQ(rank.figures().copies, 0);
    device.may_register = true;
    rank.copies().prepare();
    ASSERT_EQ(device.registered.size(), 2U);
    for (const int buffer : {0, 1}) {
      const auto room = rank.memory().room(buffer);
      const auto found = device.registered[static_cast<size_t>(buffer)];
      EXPECT_TRUE(found.data() == room.data() && found.size() == room.size());
    }
    rank.step();
    EXPECT_EQ(rank.values_in(rank.content(4)), rank.values_of_engine());
    EXPECT_EQ(rank.figures().skipped, 0);
    EXPECT_EQ(rank.copies().problem(), "");
  }
  EXPECT_TRUE(device.registered.empty());
}

TEST(MemoryCopiesTest, registering_ends_with_the_copies) {
  RegisteringDevice device;
  {
    CopyingRank rank(device);
    device.may_register = false;
    rank.step();
    device.may_register = true;  // the thread may be anywhere in it
  }
  EXPECT_TRUE(device.registered.empty());
}

TEST(MemoryCopiesTest, a_rank_whose_memory_cannot_be_registered_ends_the_copies_of_all) {
  comm::ThreadWorld world(2, 60);
  comm::run_ranks(world, [&](int number) {
    RegisteringDevice device;
    device.refuses = number == 1;
    CopyingRank rank(device, small_plan({.dp_shard = 2, .zero_stage = 1}),
                     world.communicator(number, {.name = "world"}));
    rank.copies().prepare();
    for (int i = 0; i < 3; ++i) rank.step();
    EXPECT_TRUE(rank.copies().is_off());
    EXPECT_EQ(rank.figures().copies, 0);
    EXPECT_TRUE(rank.memory().copies().empty());
    const std::string problem = rank.copies().problem();
    EXPECT_EQ(problem.find("cannot be page-locked: no more of it") != std::string::npos,
              number == 1)
        << problem;
    EXPECT_EQ(rank.copies().problem(), "");
    EXPECT_EQ(device.registered.size(), number == 1 ? 0U : 2U);
    rank.rank().barrier();
    rank.end();
  });
}

}  // namespace
}  // namespace trireme::train
