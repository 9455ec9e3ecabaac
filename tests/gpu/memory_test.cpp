// SPDX-License-Identifier: Apache-2.0
// Memory on the GPU: the ledger equals the prediction to the byte, the driver reports little more,
// and a model that does not fit is rejected before anything is allocated.
#include "base/error.h"
#include "device/accelerator.h"
#include "tests/gpu/gpu_rig.h"

namespace trireme::tests {
namespace {

using MemoryTest = GpuTest;
using spec::Recompute;

// Returns a random number in [low, high].
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

// Every second case has sizes for which cuDNN computes attention; the others are odd.
Trial random_trial(Dice& dice, bool is_fused) {
  Trial s;
  const bool is_gpt2 = dice(0, 1) == 0;
  s.dims.family = is_gpt2 ? spec::Family::gpt2 : spec::Family::llama;
  s.dims.layers = static_cast<int>(dice(1, 4));
  s.dims.kv_heads = dice(1, 3);
  s.dims.heads = s.dims.kv_heads * dice(1, 3);
  s.dims.head_dim = is_fused ? 64 * dice(1, 2) : 2 * dice(1, 20);
  s.dims.hidden = is_fused ? 8 * dice(4, 40) : dice(3, 150);
  s.dims.ffn = is_fused ? 8 * dice(4, 60) : dice(1, 200);
  s.dims.vocab = dice(2, 700);
  s.seq_len = is_fused ? dice(64, 300) : dice(1, 80);
  s.dims.max_seq = s.seq_len + dice(0, 9);
  s.sequences = dice(1, 4);
  if (!is_gpt2) {
    s.dims.tied_head = dice(0, 1) == 0;
    s.dims.qkv_bias = dice(0, 1) == 0;
    s.dims.qk_norm = dice(0, 1) == 0;
  }
  if (!is_gpt2 && s.dims.layers % 2 == 0) {
    s.dims.moe = {.router = {.experts = 4 + s.dims.vocab % 9, .chosen = 1 + s.dims.hidden % 3},
                  .ffn = s.dims.ffn,
                  .shared_ffn = s.dims.ffn % 2 * 40,
                  .balance = {.aux = 0.01F}};
  }
  s.recipe = is_fused || dice(0, 1) == 0 ? "bf16" : "fp32";
  s.grad = dice(0, 3) == 0 ? base::DType::bf16 : base::DType::f32;
  s.recompute = static_cast<Recompute>(dice(0, 2));
  s.microbatches = static_cast<int>(dice(1, 3));
  s.head_chunk_rows = dice(0, 1) == 0 ? 0 : dice(1, 200);
  s.deterministic = dice(0, 3) != 0;
  s.document_mask = dice(0, 3) == 0;
  if (dice(0, 3) == 0) {
    s.schedule =
        schedule::add_tied(schedule::split_backward(schedule::one_f_one_b(1, s.microbatches)));
  }
  return s;
}

TEST_F(MemoryTest, fp16_takes_what_is_predicted) {
  for (const bool deterministic : {true, false}) {
    for (const bool document_mask : {true, false}) {
      const Trial trial{.dims = medium_llama(),
                        .recipe = "fp16",
                        .seq_len = 256,
                        .document_mask = document_mask,
                        .deterministic = deterministic};
      DeviceRig rig(Where::gpu, trial);
      rig.train(2, 1e-3);
      EXPECT_EQ(rig.engine->measured(), rig.engine->predicted_memory());
    }
  }
}

TEST_F(MemoryTest, the_ledger_equals_the_prediction) {
  constexpr uint64_t seed = 20250301;
  Dice dice(seed);
  for (int i = 0; i < 24; ++i) {
    const Trial trial = random_trial(dice, i % 2 == 0);
    DeviceRig rig(Where::gpu, trial);
    const spec::MemoryTable predicted = rig.engine->plan().predicted.memory.front();
    rig.train(1, 1e-3);
    const std::string what =
        fmt::format("seed {} case {}: {} {} recompute {} x{} layers {} head {} {}", seed, i,
                    spec::name_of(trial.dims.family), trial.recipe, spec::name_of(trial.recompute),
                    trial.microbatches, trial.dims.layers, trial.dims.head_dim,
                    trial.deterministic ? "deterministic" : "fast");
    EXPECT_EQ(rig.device->ledger().live(), predicted.total()) << what;
    EXPECT_EQ(rig.device->ledger().peak(), predicted.total()) << what;
    EXPECT_EQ(rig.engine->measured(), predicted) << what;
    // The second step is captured, the third replayed: neither allocates more.
    rig.train(2, 1e-3);
    EXPECT_EQ(rig.device->ledger().live(), predicted.total()) << what;
    EXPECT_EQ(rig.engine->measured(), predicted) << what;
    EXPECT_FALSE(rig.engine->report().was_skipped) << what;
  }
}

// The memory of CUDA, cuBLASLt and cuDNN after their kernels are loaded is constant: at most this
// much.
constexpr int64_t max_constant_bytes = int64_t{1} << 30;

TEST_F(MemoryTest, the_driver_reports_little_more_than_the_ledger) {
  spec::ModelDims dims = medium_llama();
  dims.layers = 8;
  dims.hidden = 1024;
  dims.heads = 16;
  dims.kv_heads = 4;
  dims.ffn = 2816;
  dims.vocab = 32000;
  const Trial trial{.dims = dims, .recipe = "bf16", .sequences = 8, .seq_len = 1024};
  int64_t before = 0;
  {
    DeviceRig small(Where::gpu, {.dims = tiny_llama()});
    before = device::driver_used_bytes(*small.device) - small.device->ledger().live();
  }
  DeviceRig rig(Where::gpu, trial);
  rig.train(3, 1e-3);
  rig.engine->report();
  const int64_t live = rig.device->ledger().live();
  const int64_t used = device::driver_used_bytes(*rig.device) - before;
  std::printf("ledger %.1f MiB, the driver reports %.1f MiB more\n",
              static_cast<double>(live) / 0x1p20, static_cast<double>(used - live) / 0x1p20);
  EXPECT_GE(used, live - (int64_t{64} << 20));
  EXPECT_LE(used, live + live / 50 + max_constant_bytes);
}

TEST_F(MemoryTest, a_model_that_does_not_fit_is_rejected_before_it_is_allocated) {
  spec::ModelDims dims = medium_llama();
  dims.layers = 400;
  dims.hidden = 8192;
  dims.heads = 64;
  dims.kv_heads = 8;
  dims.head_dim = 128;
  dims.ffn = 28672;
  const Trial trial{.dims = dims, .recipe = "bf16", .sequences = 1, .seq_len = 128};
  EXPECT_THROW(DeviceRig(Where::gpu, trial), base::OutOfMemory);
  // The device is still usable.
  DeviceRig rig(Where::gpu, {.dims = tiny_llama()});
  rig.train(1, 1e-3);
  EXPECT_GT(rig.engine->report().mean_loss, 0);
}

TEST_F(MemoryTest, memory_is_released) {
  const Trial trial{.dims = medium_llama(), .recipe = "bf16", .sequences = 8, .seq_len = 512};
  const auto used_with = [&] {
    DeviceRig rig(Where::gpu, trial);
    rig.train(3, 1e-3);
    rig.engine->report();
    return device::driver_used_bytes(*rig.device);
  };
  const int64_t first = used_with();
  for (int i = 0; i < 3; ++i) EXPECT_LE(used_with(), first + (int64_t{64} << 20)) << i;
}

}  // namespace
}  // namespace trireme::tests
