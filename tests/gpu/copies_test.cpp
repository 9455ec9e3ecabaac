// SPDX-License-Identifier: Apache-2.0
// Copies of a GPU's state in host memory: downloaded into page-locked memory of a memfd, with a
// hash that the GPU computes, and back through page-locked pieces.
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <optional>
#include <random>

#include "base/system/descriptor.h"
#include "device/host_registration.h"
#include "engine/state/upload_ring.h"
#include "tests/gpu/gpu_rig.h"
#include "train/checkpointing/memory/memory_copies.h"
#include "train/run/state/copied_state.h"
#include "train/run/state/engine_state.h"

namespace trireme::tests {
namespace {

using CopiesTest = GpuTest;
using Values = std::vector<std::vector<float>>;

Values values_of(const train::EngineState& state) {
  Values values;
  for (const auto& part : state.parts) values.push_back(part.values);
  return values;
}

// A rig with copies of its state, after every step.
struct CopyingRig {
  explicit CopyingRig(const Trial& trial)
      : rig(Where::gpu, trial),
        rank(nullptr, rig.engine->plan().mesh, *rig.device),
        layout(train::copy_layout(rig.model, rig.engine->plan(), 0)),
        memory(descriptor.value(), train::shape_of(layout, 0, 2)) {
    copies.emplace(train::MemoryCopies::Parts{.engine = *rig.engine,
                                              .model = rig.model,
                                              .rank = rank,
                                              .device = *rig.device,
                                              .memory = memory,
                                              .pace = pace,
                                              .figures = figures});
    copies->begin("run", 1, 0);
  }
  void step() {
    rig.train(1, 1e-3);
    ++steps;
    copies->copy(
        {.at = {.step = steps}, .bf16_blocks = {}, .step_state = rig.engine->step_state()});
  }
  Values state() { return values_of(train::take_state(*rig.engine, rig.model, rank.coord())); }
  // Returns the state in the copy of a step, which must be intact.
  std::optional<train::KeptState> copied(int64_t step) {
    for (const ckpt::FoundCopy& copy : memory.copies()) {
      if (copy.label.step != step || !memory.verify(copy.buffer)) continue;
      return train::kept_from(copy.label, memory.content(copy.buffer), layout,
                              {.model = rig.model, .plan = rig.engine->plan(), .rank = 0});
    }
    return std::nullopt;
  }

  DeviceRig rig;
  train::Rank rank;
  const base::Descriptor descriptor{::memfd_create("copies", MFD_CLOEXEC)};
  const train::CopyLayout layout;
  ckpt::CopyMemory memory;
  train::CopyPace pace{1, 0.01};
  train::CopyFigures figures;
  std::optional<train::MemoryCopies> copies;
  int64_t steps = 0;
};

std::vector<Trial> copied_trials() {
  Trial fp32{.dims = medium_llama(), .seq_len = 64};
  Trial bf16{.dims = medium_llama(), .recipe = "bf16", .seq_len = 64};
  bf16.engine.capture = true;
  Trial experts{.dims = medium_moe(), .recipe = "bf16", .seq_len = 64};
  return {fp32, bf16, experts};
}

TEST_F(CopiesTest, a_copy_has_the_state_of_the_gpu_and_restores_it) {
  for (const Trial& trial : copied_trials()) {
    CopyingRig copying(trial);
    copying.step();
    copying.copies->prepare();
    EXPECT_FALSE(copying.copies->is_off()) << copying.copies->problem();
    for (int i = 0; i < 3; ++i) {
      copying.step();
      copying.copies->finish();
      const auto kept = copying.copied(copying.steps);
      ASSERT_TRUE(kept) << trial.recipe << ", step " << copying.steps;
      EXPECT_EQ(values_of(kept->state), copying.state()) << trial.recipe;
    }
    EXPECT_EQ(copying.copies->problem(), "");
    // The copy of a step that was made while the next ones ran has the state of that step.
    const auto before = copying.state();
    copying.rig.train(2, 1e-3);
    EXPECT_NE(copying.state(), before);
    auto kept = copying.copied(copying.steps);
    ASSERT_TRUE(kept);
    train::put_state(*copying.rig.engine, copying.rig.model, copying.rank.coord(), kept->state);
    EXPECT_EQ(copying.state(), before) << trial.recipe;
  }
}

TEST_F(CopiesTest, a_copy_that_is_made_beside_steps_has_the_state_before_them) {
  CopyingRig copying({.dims = medium_llama(), .recipe = "bf16", .seq_len = 256});
  copying.step();
  copying.copies->prepare();
  for (int i = 0; i < 10; ++i) {
    const Values before = copying.state();
    const int64_t made = copying.figures.copies;
    copying.rig.train(1, 1e-3);
    ++copying.steps;
    const Values after = copying.state();
    EXPECT_NE(before, after);
    copying.copies->copy({.at = {.step = copying.steps},
                          .bf16_blocks = {},
                          .step_state = copying.rig.engine->step_state()});
    ASSERT_EQ(copying.figures.copies, made + 1);
    copying.rig.train(1, 1e-3);  // nothing waits in between
    ++copying.steps;
    copying.copies->finish();
    const auto kept = copying.copied(copying.steps - 1);
    ASSERT_TRUE(kept) << i;
    EXPECT_EQ(values_of(kept->state), after) << i;
  }
}

TEST_F(CopiesTest, a_flipped_bit_is_found) {
  CopyingRig copying({.dims = medium_llama(), .recipe = "bf16", .seq_len = 64});
  copying.step();
  copying.copies->prepare();
  copying.step();
  copying.copies->finish();
  ASSERT_EQ(copying.memory.copies().size(), 1U);
  const int buffer = copying.memory.copies().front().buffer;
  const std::span<std::byte> content = copying.memory.room(buffer);
  std::mt19937_64 random(1);
  for (int i = 0; i < 20; ++i) {
    const size_t at = random() % content.size();
    const auto bit = static_cast<std::byte>(1U << random() % 8);
    content[at] ^= bit;
    EXPECT_FALSE(copying.memory.verify(buffer)) << at;
    content[at] ^= bit;
  }
  EXPECT_TRUE(copying.memory.verify(buffer));
}

// Copies of more than one registered piece, which no transfer may cross.
TEST_F(CopiesTest, downloads_reach_every_registered_piece) {
  constexpr int64_t piece = device::HostRegistration::piece_bytes;
  constexpr int64_t elements = (2 * piece + 4096) / 4, before = 1024;
  DeviceRig rig(Where::gpu, {.dims = medium_llama()});
  rig.device->ledger().unfreeze();
  const device::Buffer source(*rig.device, device::Mem::params, 4 * elements, "source");
  const device::Tensor floats = device::view_of(source.data(), {{elements}, base::DType::f32});
  std::vector<float> values(elements);
  std::mt19937 random(2);
  for (float& value : values) value = static_cast<float>(random());
  const auto stream = rig.device->make_side_stream("copies");
  const int64_t bytes = before + 4 * elements;
  const base::Descriptor descriptor(::memfd_create("copies", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(descriptor.value(), bytes), 0);
  void* const mapped = ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                              MAP_SHARED, descriptor.value(), 0);
  ASSERT_NE(mapped, MAP_FAILED);
  auto* const memory = static_cast<std::byte*>(mapped);
  {
    engine::UploadRing ring(*stream, 4 * elements);
    ring.upload({floats}, values);
    ring.finish();
    device::HostRegistration registration(*rig.device);
    const std::atomic<bool> stop = false;
    ASSERT_TRUE(registration.add({memory, static_cast<size_t>(bytes)}, stop));
    const train::StagedCopy copy{.from = {floats}, .to = before};
    copy.start(*stream, memory);
    stream->synchronize();
    EXPECT_EQ(std::memcmp(memory + before, values.data(), 4 * elements), 0);
  }
  ::munmap(mapped, static_cast<size_t>(bytes));
}

}  // namespace
}  // namespace trireme::tests
