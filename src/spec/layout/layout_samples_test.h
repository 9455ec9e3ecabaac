// SPDX-License-Identifier: Apache-2.0
// Random layouts for property tests.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "spec/layout/rules.h"

namespace trireme::spec {

class LayoutDice {
 public:
  explicit LayoutDice(uint64_t seed) : random_(seed) {}

  // From [0, count).
  size_t below(size_t count) { return static_cast<size_t>(random_() % count); }
  bool either() { return below(2) == 1; }
  template <typename T>
  T of(const std::vector<T>& all) {
    return all[below(all.size())];
  }

 private:
  std::mt19937_64 random_;
};

// A layout of any kind that this engine might run, whether or not a rule forbids it; every field
// varies.
inline Layout any_open_layout(LayoutDice& dice) {
  const std::vector<int> degrees = {1, 1, 2, 4};
  Layout l;
  l.tp = dice.of(degrees);
  l.cp = dice.of<int>({1, 1, 2, 3, 4});
  l.context_kind = static_cast<ContextKind>(dice.below(static_cast<size_t>(ContextKind::count)));
  l.context_slices =
      static_cast<ContextSlices>(dice.below(static_cast<size_t>(ContextSlices::count)));
  l.ulysses = dice.of<int>({0, 0, 1, 2});
  l.pp = dice.of(degrees);
  l.dp_replicate = dice.of(degrees);
  l.dp_shard = dice.of(degrees);
  l.row_budget = dice.of<double>({1.5, 1.5, 1.25, 2});
  l.overflow = dice.of<Overflow>({Overflow::strict, Overflow::drop});
  l.expert_capacity = dice.of<double>({0, 0, 1.1});
  l.zero_stage = dice.of<int>({-1, 0, 1, 2, 3});
  l.sequence_parallel = dice.either();
  l.schedule = static_cast<schedule::Kind>(dice.below(static_cast<size_t>(schedule::Kind::count)));
  l.chunks = dice.of<int>({0, 0, 1, 2, 3});
  l.send_buffers = dice.of<int>({1, 2, 3});
  l.micro_batch = dice.of<int64_t>({1, 2, 4});
  l.accumulation = dice.of<int>({1, 2, 4, 8, 12});
  l.logical_dp = dice.either() ? 0 : l.dp_replicate * l.dp_shard * dice.of<int>({1, 2});
  l.reduce = static_cast<ReduceWhen>(dice.below(3));
  l.recompute = static_cast<Recompute>(dice.below(3));
  l.recompute_blocks = dice.of<int>({-1, -1, 0, 1, 3});
  l.precision = dice.of<Precision>({Precision::fp32, Precision::bf16, Precision::bf16});
  l.grad_dtype = dice.of<base::DType>({base::DType::f32, base::DType::bf16});
  l.optimizer = dice.of<OptimizerKind>({OptimizerKind::adamw, OptimizerKind::muon});
  l.master_dtype = dice.of<base::DType>({base::DType::f32, base::DType::u16});
  l.reduce_dtype = dice.of<base::DType>({base::DType::f32, base::DType::bf16});
  l.reshard = static_cast<Reshard>(dice.below(3));
  l.prefetch = dice.of<int>({0, 1, 2});
  l.prefetch_after = dice.either();
  l.head_chunk_rows = dice.of<int64_t>({0, 0, 128});
  l.deterministic = dice.either();
  l.ffn_rows = dice.of<int64_t>({0, 0, 4, 128});
  return l;
}

// Returns a settled layout that breaks no rule. REQUIRES: the model allows some of them.
inline Layout any_layout(LayoutDice& dice, const ModelSizes& model, int64_t seq_len) {
  while (true) {
    Layout open = any_open_layout(dice);
    if (model.experts > 0) {
      open.ep = dice.of<int>({1, 2, 2, 4});
      open.etp = dice.of<int>({1, 1, 2});
    }
    const Settled settled = settle(model, {.seq_len = seq_len}, 0, open);
    if (settled.broken.empty()) return settled.layout;
  }
}

}  // namespace trireme::spec
