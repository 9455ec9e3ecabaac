// SPDX-License-Identifier: Apache-2.0
#include "train/checkpointing/memory/memory_copies.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>

#include "base/system/descriptor.h"
#include "data/samples/sampler.h"
#include "device/cpu/cpu_device.h"
#include "kernels/table.h"
#include "train/batches/batches.h"

namespace trireme::train {
namespace {

// Returns the content of the copies of a rank after each of two steps, by buffer.
std::vector<std::vector<std::byte>> copies_after_two_steps(bool is_staged) {
  const spec::ModelSpec model = spec::make_model({.family = spec::Family::llama,
                                                  .layers = 1,
                                                  .hidden = 16,
                                                  .heads = 2,
                                                  .ffn = 32,
                                                  .vocab = 256,
                                                  .max_seq = 8});
  const spec::Plan plan = spec::solve_or_throw(model, {.seq_len = 8}, {}, spec::cpu_backend());
  const base::Descriptor descriptor(::memfd_create("copies", MFD_CLOEXEC));
  const CopyLayout layout = copy_layout(model, plan, 0);
  ckpt::CopyMemory memory(descriptor.value(), shape_of(layout, 0, 2));
  device::CpuDevice device(kernels::cpu_kernels(), {});
  Rank rank(nullptr, plan.mesh, device);
  engine::Engine engine(device, model, plan, spec::cpu_backend(), {}, nullptr);
  const auto data = data::tokens_in_memory(std::vector<int32_t>(2000, 7), -1);
  const data::Sampler sampler(*data, {.seed = 3, .seq_len = 8});
  TrainBatches batches(sampler, plan, rank.coord(), 0);
  CopyPace pace(1, 0.01);
  CopyFigures figures;
  MemoryCopies copies({.engine = engine,
                       .model = model,
                       .rank = rank,
                       .device = device,
                       .memory = memory,
                       .pace = pace,
                       .figures = figures,
                       .is_staged = is_staged});
  EXPECT_EQ(memory.reserved_bytes() + copies.staging_bytes(),
            copies_bytes(layout, 0, 2, is_staged));
  copies.begin("run1", 1, 0);
  for (int64_t step = 1; step <= 2; ++step) {
    engine.step(batches, 1e-2);
    EXPECT_TRUE(copies.is_due(step));
    copies.copy({.at = {.step = step}, .bf16_blocks = {}, .step_state = engine.step_state()});
    copies.finish();
  }
  EXPECT_EQ(copies.problem(), "");
  EXPECT_EQ(figures.copies, 2);
  std::vector<std::vector<std::byte>> contents(2);
  for (const ckpt::FoundCopy& copy : memory.copies()) {
    EXPECT_TRUE(memory.verify(copy.buffer));
    const auto content = memory.content(copy.buffer);
    contents.at(static_cast<size_t>(copy.label.step - 1)).assign(content.begin(), content.end());
  }
  return contents;
}

// On a GPU the state reaches its copy through page-locked memory.
TEST(MemoryCopiesTest, a_copy_has_the_same_bytes_through_memory_of_the_device) {
  const auto direct = copies_after_two_steps(false), staged = copies_after_two_steps(true);
  for (const size_t step : {size_t{0}, size_t{1}}) {
    EXPECT_FALSE(direct[step].empty());
    EXPECT_TRUE(direct[step] == staged[step]) << "after step " << step + 1;
    EXPECT_TRUE(std::ranges::any_of(direct[step], [](std::byte b) { return b != std::byte{0}; }));
  }
  EXPECT_FALSE(direct[0] == direct[1]);
}

}  // namespace
}  // namespace trireme::train
