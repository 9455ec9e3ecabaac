// SPDX-License-Identifier: Apache-2.0
// Shared by the tests of the whole engine: tiny models, random batches by seed, and an engine on a
// CPU or null device.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/rng.h"
#include "device/cpu/cpu_device.h"
#include "device/null/null_device.h"
#include "engine/engine.h"
#include "kernels/table.h"
#include "spec/plan.h"

namespace trireme::tests {

// Models that together use every option of both families.
inline spec::ModelDims tiny_gpt2() {
  return {.name = "tiny-gpt2",
          .family = spec::Family::gpt2,
          .layers = 2,
          .hidden = 24,
          .heads = 3,
          .ffn = 40,
          .vocab = 61,
          .max_seq = 16};
}
inline spec::ModelDims tiny_llama() {
  return {.name = "tiny-llama",
          .family = spec::Family::llama,
          .layers = 2,
          .hidden = 24,
          .heads = 4,
          .kv_heads = 2,
          .head_dim = 8,
          .ffn = 56,
          .vocab = 61,
          .max_seq = 16,
          .tied_head = false};
}
inline spec::ModelDims tiny_qwen3() {
  spec::ModelDims dims = tiny_llama();
  dims.name = "tiny-qwen3";
  dims.tied_head = true;
  dims.qkv_bias = true;
  dims.qk_norm = true;
  return dims;
}

// One norm of all q heads and one of all k heads, with limits that some values exceed; and limits
// alone.
inline spec::ModelDims tiny_whole_norm() {
  spec::ModelDims dims = tiny_llama();
  dims.name = "tiny-whole-norm";
  dims.qk_norm = dims.qk_norm_whole = true;
  dims.clip_qkv = 0.75F;
  return dims;
}
inline spec::ModelDims tiny_clipped() {
  spec::ModelDims dims = tiny_llama();
  dims.name = "tiny-clipped";
  dims.init_std = 0.2F;
  dims.clip_qkv = 0.5F;
  return dims;
}

// Mixtures of experts: a softmax router; and one with groups, a bias and shared experts after a
// dense block.
inline spec::ModelDims tiny_moe() {
  spec::ModelDims dims = tiny_llama();
  dims.name = "tiny-moe";
  dims.ffn = 0;
  dims.moe = {
      .router = {.experts = 6, .chosen = 2}, .ffn = 16, .balance = {.aux = 0.05F, .z = 0.01F}};
  return dims;
}
inline spec::ModelDims tiny_shared_moe() {
  spec::ModelDims dims = tiny_llama();
  dims.name = "tiny-shared-moe";
  dims.dense_layers = 1;
  dims.moe = {.router = {.experts = 8,
                         .chosen = 3,
                         .score = spec::RouterScore::sigmoid,
                         .renormalizes = true,
                         .groups = 4,
                         .chosen_groups = 2,
                         .scale = 2.5F,
                         .has_bias = true},
              .ffn = 12,
              .shared_ffn = 20,
              .balance = {.aux = 0.01F, .scope = spec::AuxScope::sequence, .bias_rate = 0.01F}};
  return dims;
}

// Uniform random tokens; label = next token; some labels masked. A pure function of (seed, step,
// micro-batch).
class RandomSource final : public engine::MicrobatchSource {
 public:
  RandomSource(uint64_t seed, int64_t vocab, int64_t sequences, int64_t seq_len)
      : key_(base::rng_key(seed, "batches")),
        vocab_(vocab),
        sequences_(sequences),
        seq_len_(seq_len) {}

  void next_step() { ++step_; }
  // Cuts the sequences into documents of random lengths; positions count from their begins.
  void cut_documents(bool cuts) { cuts_ = cuts; }

  void fill(int index, const engine::HostMicrobatch& out) override {
    engine::set_equal_sequences(out, sequences_, seq_len_);
    const size_t n = out.tokens.size();
    const uint64_t first = (step_ * 64 + static_cast<uint64_t>(index)) * (n + 1) * 2;
    if (cuts_) cut(first, out);
    for (size_t t = 0; t < n; ++t) {
      out.tokens[t] = static_cast<int32_t>(base::rng_below(key_, first + t, bound()));
      const bool masked = base::rng_below(key_, first + n + 1 + t, 8) == 0;
      out.labels[t] =
          masked ? -1 : static_cast<int32_t>(base::rng_below(key_, first + t + 1, bound()));
    }
  }

 private:
  uint64_t bound() const { return static_cast<uint64_t>(vocab_); }
  void cut(uint64_t first, const engine::HostMicrobatch& out) {
    const auto n = static_cast<int32_t>(out.tokens.size());
    const base::RngKey key = base::rng_key(key_, "documents");
    size_t documents = 0;
    int32_t begin = 0;
    for (int32_t t = 0; t < n; ++t) {
      const bool is_border =
          t % seq_len_ == 0 || base::rng_below(key, first + static_cast<uint64_t>(t), 5) == 0;
      if (is_border) out.seq_offsets[documents++] = begin = t;
      out.positions[static_cast<size_t>(t)] = t - begin;
    }
    for (; documents < out.seq_offsets.size(); ++documents) out.seq_offsets[documents] = n;
  }

  base::RngKey key_;
  int64_t vocab_, sequences_, seq_len_;
  bool cuts_ = false;
  uint64_t step_ = 0;
};

struct RigOptions {
  spec::ModelDims dims;
  std::string recipe = "fp32";
  spec::Recompute recompute = spec::Recompute::none;
  int recompute_blocks = -1;
  int64_t ffn_rows = 0;
  int64_t sequences = 2, seq_len = 13;
  int microbatches = 1;
  int threads = 1;
  device::StreamMode streams = device::StreamMode::inline_calls;
  base::DType grad = base::DType::f32, master = base::DType::f32;
  int64_t head_chunk_rows = 10;
  const kernels::Kernels* kernels = nullptr;  // default: cpu
  bool inference = false;
  bool document_mask = false;
  engine::EngineOptions engine;
  std::optional<schedule::Schedule> schedule;  // default: 1F1B
};

inline spec::Plan plan_of(const RigOptions& o, const spec::ModelSpec& model) {
  spec::Plan plan = spec::solve_or_throw(
      model, {.seq_len = o.seq_len, .document_mask = o.document_mask, .inference = o.inference},
      {.micro_batch = o.sequences,
       .accumulation = o.microbatches,
       .recompute = o.recompute,
       .recompute_blocks = o.recompute_blocks,
       .ffn_rows = o.ffn_rows,
       .precision = *spec::precision_from_name(o.recipe),
       .grad_dtype = o.grad,
       .master_dtype = o.master,
       .head_chunk_rows = o.head_chunk_rows},
      {});
  if (o.schedule) plan.schedule = *o.schedule;
  return plan;
}

// An engine with its model, device and batches.
struct Rig {
  explicit Rig(const RigOptions& o)
      : model(spec::make_model(o.dims)),
        device(o.kernels != nullptr ? *o.kernels : kernels::cpu_kernels(),
               {.threads = o.threads, .streams = o.streams}),
        engine(device, model, plan_of(o, model), {}, o.engine),
        source(7, o.dims.vocab, o.sequences, o.seq_len) {}

  void train(int steps, double learning_rate) {
    for (int i = 0; i < steps; ++i) {
      engine.step(source, learning_rate);
      source.next_step();
    }
  }

  spec::ModelSpec model;
  device::CpuDevice device;
  engine::Engine engine;
  RandomSource source;
};

}  // namespace trireme::tests
