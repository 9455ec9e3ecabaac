// SPDX-License-Identifier: Apache-2.0
// Predicted bytes against high-water marks of what layers, buckets, optimizer and inputs took. The
// engine sizes arenas and pools from the prediction, and most takes use the same functions. So
// these tests prove that the prediction lists every take and no more, and that nothing else was
// allocated. tests/ranks/sizes_test.cpp checks the sizes themselves.
#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/engine/rig.h"

namespace trireme::tests {
namespace {

using spec::MemoryTable;
using spec::Recompute;

void expect_equal(const MemoryTable& predicted, const MemoryTable& measured,
                  const std::string& what) {
  EXPECT_EQ(predicted.params, measured.params) << what;
  EXPECT_EQ(predicted.grads, measured.grads) << what;
  EXPECT_EQ(predicted.optim, measured.optim) << what;
  EXPECT_EQ(predicted.stash_inputs, measured.stash_inputs) << what;
  EXPECT_EQ(predicted.stash_f_to_b, measured.stash_f_to_b) << what;
  EXPECT_EQ(predicted.stash_f_to_w, measured.stash_f_to_w) << what;
  EXPECT_EQ(predicted.stash_b_to_w, measured.stash_b_to_w) << what;
  EXPECT_EQ(predicted.stash_gradients, measured.stash_gradients) << what;
  EXPECT_EQ(predicted.stash_recompute, measured.stash_recompute) << what;
  EXPECT_EQ(predicted.stash_stream, measured.stash_stream) << what;
  // One stage leaves none; tests/ranks/pipeline_test.cpp measures those of uneven stages.
  EXPECT_EQ(predicted.stash_gaps, 0) << what;
  EXPECT_EQ(measured.stash_gaps, 0) << what;
  EXPECT_EQ(predicted.scratch, measured.scratch) << what;
  EXPECT_EQ(predicted.comm, measured.comm) << what;
  EXPECT_EQ(predicted.staging, measured.staging) << what;
  EXPECT_EQ(predicted, measured) << what << ": a field that is not listed above";
}

// Random integers in [low, high].
class Dice {
 public:
  explicit Dice(uint64_t seed) : key_(base::rng_key(seed, "dice")) {}
  int64_t operator()(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(
                     base::rng_below(key_, next_++, static_cast<uint64_t>(high - low + 1)));
  }

 private:
  base::RngKey key_;
  uint64_t next_ = 0;
};

RigOptions random_options(Dice& dice) {
  RigOptions o;
  const bool gpt2 = dice(0, 1) == 0;
  o.dims.family = gpt2 ? spec::Family::gpt2 : spec::Family::llama;
  o.dims.layers = static_cast<int>(dice(1, 4));
  o.dims.kv_heads = dice(1, 3);
  o.dims.heads = o.dims.kv_heads * dice(1, 3);
  o.dims.head_dim = 2 * dice(1, 9);
  o.dims.hidden = dice(3, 70);
  o.dims.ffn = dice(1, 130);
  o.dims.vocab = dice(2, 300);
  o.seq_len = dice(1, 40);
  o.dims.max_seq = o.seq_len + dice(0, 9);
  o.sequences = dice(1, 4);
  if (!gpt2) {
    o.dims.tied_head = dice(0, 1) == 0;
    o.dims.qkv_bias = dice(0, 1) == 0;
    o.dims.qk_norm = dice(0, 1) == 0;
    o.dims.qk_norm_whole = o.dims.qk_norm && dice(0, 1) == 0;
    if (o.dims.qk_norm == o.dims.qk_norm_whole && dice(0, 2) == 0) o.dims.clip_qkv = 0.5F;
  }
  o.recipe = dice(0, 1) == 0 ? "fp32" : "bf16";
  o.grad = dice(0, 3) == 0 ? base::DType::bf16 : base::DType::f32;
  o.recompute = static_cast<Recompute>(dice(0, 2));
  o.microbatches = static_cast<int>(dice(1, 3));
  o.head_chunk_rows = dice(1, 64);
  switch (dice(0, 3)) {
    case 0:
      o.schedule = schedule::add_tied(schedule::gpipe(1, o.microbatches));
      break;
    case 1:
      o.schedule =
          schedule::add_tied(schedule::split_backward(schedule::one_f_one_b(1, o.microbatches)));
      break;
    default:
      break;
  }
  if (o.recipe == "bf16" && dice(0, 1) == 0) o.master = base::DType::u16;
  if (dice(0, 1) == 0) o.recompute_blocks = static_cast<int>(dice(0, o.dims.layers));
  if (dice(0, 2) == 0) o.ffn_rows = dice(1, 64);
  return o;
}

TEST(MemoryTest, every_take_is_predicted_and_nothing_else_is_allocated_on_random_models) {
  constexpr uint64_t seed = 20240607;
  Dice dice(seed);
  for (int i = 0; i < 80; ++i) {
    const RigOptions o = random_options(dice);
    Rig rig(o);
    rig.train(2, 1e-3);
    const std::string what = fmt::format("seed {} case {}: {} {} recompute {} x{} layers {}", seed,
                                         i, spec::name_of(o.dims.family), o.recipe,
                                         spec::name_of(o.recompute), o.microbatches, o.dims.layers);
    expect_equal(rig.engine.plan().predicted.memory.front(), rig.engine.measured(), what);
    // The slabs have the sizes of the prediction, so this shows that there is no other allocation.
    EXPECT_EQ(rig.device.ledger().peak(), rig.engine.plan().predicted.memory.front().total())
        << what;
  }
}

TEST(MemoryTest, full_recompute_keeps_one_layer_and_one_input_per_layer) {
  for (const int layers : {2, 5}) {
    for (const spec::ModelDims& base : {tiny_gpt2(), tiny_llama(), tiny_qwen3()}) {
      RigOptions o{.dims = base, .recompute = Recompute::full};
      o.dims.layers = layers;
      Rig full(o);
      full.train(1, 1e-3);
      o.recompute = Recompute::none;
      Rig none(o);
      none.train(1, 1e-3);

      // The slots of one block, from its facts: those kept without recompute, and its input.
      const spec::Facts block = spec::facts(full.model, 1, spec::local_shape_of(full.engine.plan()),
                                            full.engine.plan().recipe, Recompute::none, {});
      int64_t whole = 0;
      for (const spec::Slot& slot : block.stash) {
        if (slot.life != spec::Life::b_to_w) whole += base::bytes_of(slot.spec);
      }
      const int64_t input = base::bytes_of(block.stash[spec::slot_x].spec);
      const MemoryTable with = full.engine.measured(), without = none.engine.measured();
      EXPECT_EQ(with.stash_recompute, whole - input);
      // The slots that F keeps shrink by (whole - input) per block.
      EXPECT_EQ(
          without.stash_f_to_b + without.stash_f_to_w - (with.stash_f_to_b + with.stash_f_to_w),
          layers * (whole - input));
      EXPECT_EQ(full.device.ledger().peak(device::Mem::stash), with.stash());
    }
  }
}

TEST(MemoryTest, a_budget_that_is_too_small_is_refused) {
  const spec::ModelSpec model = spec::make_model(tiny_llama());
  const spec::Plan plan = plan_of({.dims = tiny_llama()}, model);
  device::CpuDevice device(kernels::cpu_kernels(),
                           {.budget_bytes = plan.predicted.memory.front().total() - 1});
  EXPECT_THROW(engine::Engine(device, model, plan, {}, {}), base::OutOfMemory);
  EXPECT_EQ(device.ledger().live(), 0);
}

TEST(MemoryTest, evaluation_takes_no_more_than_training) {
  Rig rig({.dims = tiny_llama(), .recompute = Recompute::selective});
  rig.train(1, 1e-3);
  const MemoryTable before = rig.engine.measured();
  const engine::EvalReport report = rig.engine.evaluate(rig.source);
  EXPECT_GT(report.tokens, 0);
  expect_equal(before, rig.engine.measured(), "after evaluation");
}

TEST(MemoryTest, inference_keeps_no_training_state) {
  for (const spec::ModelDims& dims : {tiny_gpt2(), tiny_llama(), tiny_qwen3(), tiny_moe()}) {
    for (const char* recipe : {"fp32", "bf16"}) {
      RigOptions o{.dims = dims, .recipe = recipe, .recompute = Recompute::full};
      Rig trainer(o);
      o.inference = true;
      Rig reader(o);
      const engine::EvalReport report = reader.engine.evaluate(reader.source);
      const MemoryTable& predicted = reader.engine.plan().predicted.memory.front();
      expect_equal(predicted, reader.engine.measured(), dims.name);
      EXPECT_EQ(predicted.grads, 0);
      EXPECT_EQ(predicted.stash_b_to_w + predicted.stash_stream, 0);
      // Same weights, same loss.
      EXPECT_EQ(report.loss_sum, trainer.engine.evaluate(trainer.source).loss_sum);
    }
  }
}

}  // namespace
}  // namespace trireme::tests
