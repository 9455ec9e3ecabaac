// SPDX-License-Identifier: Apache-2.0
// The cost of one micro-batch on one layer of one rank, computed from the facts of the layer. It
// depends on few fields of a layout, so that thousands of layouts share it.
#pragma once

#include "plan/job.h"
#include "plan/memory/block_kinds.h"
#include "plan/stack.h"
#include "spec/machine.h"
#include "spec/memory/stash_layout.h"
#include "spec/parallel/bucket.h"

namespace trireme::plan {

// The fields of a layout on which a layer's cost depends.
struct LayerKey {
  int tp = 1, cp = 1, ep = 1;
  int64_t micro_batch = 1;
  spec::Recompute recompute = spec::Recompute::none;
  bool sequence_parallel = false;
  Precision precision = Precision::bf16;
  // As in Layout, for recipes of fp8; otherwise 0 and empty.
  int bf16_first = 0, bf16_last = 0;
  std::vector<int> bf16_blocks = {};
  base::DType grad_dtype = base::DType::f32;
  int recompute_blocks = -1;  // Layout::recompute_blocks
  // As in Layout.
  spec::ContextKind context_kind = spec::ContextKind::gather;
  spec::ContextSlices context_slices = spec::ContextSlices::zigzag;
  int ulysses = 1;
  int64_t ffn_rows = 0, head_chunk_rows = 0;
  int etp = 1;
  double row_budget = 1, expert_capacity = 0;
  // Stages whose ranks are between two ranks along ep (Placement::pp_inside); 1: none.
  int stages_between = 1;
  bool operator==(const LayerKey&) const = default;
};
// Returns the key; fields on which nothing depends keep their defaults.
LayerKey layer_key(const Job&, const Layout&);
struct LayerKeyHash {
  size_t operator()(const LayerKey&) const;
};

struct LayerCost {
  // Seconds of compute in forward, input gradient, weight gradient and recompute. A merged backward
  // takes b + w.
  double f = 0, b = 0, w = 0, r = 0;
  // Seconds of collectives along tp, cp and ep that no compute overlaps.
  double f_tp = 0, b_tp = 0, r_tp = 0;
  double f_cp = 0, b_cp = 0;
  double f_ep = 0, b_ep = 0, r_ep = 0;
  double f_kernels = 0, b_kernels = 0, r_kernels = 0;
  double flops = 0, r_flops = 0;  // of the rank
  double cut_flops = 0;           // of all ranks along tp; the engine balances stages by them

  // Parameter elements of a rank in the dense and in the expert view of the mesh.
  double params = 0, expert_params = 0;
  double code_params = 0, expert_code_params = 0;  // those of them that are codes of 8 bits
  // Bytes of a micro-batch: kept from F to B (with the layer's input), from F to W and, if backward
  // is split, from B to W.
  double kept_for_b = 0, kept_for_w = 0, kept_from_b = 0;
  double input = 0;  // bytes of the layer's input
  // Bytes that live only while the layer runs: dropped slots in F, and recomputed in backward; what
  // a merged backward passes from B to W, without the output gradient; scratch of operations.
  double dropped = 0, dropped_backward = 0, made_by_b = 0, output_gradient = 0, scratch = 0;

  // Sizes for EngineMemory: slots with merged and with split backward, for a layer whose input and
  // output gradient come from other stages; scratch; the layer's buckets for one data rank, without
  // entries; the elements of a tied copy.
  spec::LayerStash merged_stash, split_stash;
  int64_t scratch_bytes = 0, tied_elements = 0;
  std::vector<spec::BucketLayout> buckets;
  bool has_float8 = false;  // BlockKind::has_float8
  int64_t muon_bytes = 0;   // scratch of Muon, without the momentum of the bucket
  // FLOPs of one Newton-Schulz iteration of all matrices, and of the largest.
  double muon_flops = 0, largest_muon_flops = 0;

  double kept() const { return kept_for_b + kept_for_w; }
  double working() const { return dropped + made_by_b + output_gradient + scratch; }

  double backward() const { return b + w; }
};

// Return the cost of a block, the embedding and the head. They throw ConfigError if facts() does.
LayerCost block_cost(const Job&, const spec::Machine&, const Stack&, const LayerKey&,
                     const BlockKind&);
LayerCost embedding_cost(const Job&, const spec::Machine&, const Stack&, const LayerKey&);
LayerCost head_cost(const Job&, const spec::Machine&, const Stack&, const LayerKey&);

}  // namespace trireme::plan
