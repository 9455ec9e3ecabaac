// SPDX-License-Identifier: Apache-2.0
// The operations that layers call. Each function checks its arguments (a wrong shape is a bug and
// aborts), reports the cost to the stream's observer, and calls the op of the device's table.
#pragma once

#include "kernels/table.h"
#include "spec/facts/op_cost.h"

namespace trireme::kernels {

// Is notified of every operation sent to a stream, in order, before it is queued.
class OpObserver {
 public:
  virtual ~OpObserver() = default;
  virtual void op(const Stream&, const spec::OpCost&) = 0;
};

namespace ops {

void gemm(Stream&, const GemmArgs&);
void embedding_forward(Stream&, const EmbeddingForwardArgs&);
void embedding_backward(Stream&, const EmbeddingBackwardArgs&);
void norm_forward(Stream&, const NormForwardArgs&);
void norm_backward(Stream&, const NormBackwardArgs&);
void rope_forward(Stream&, const RopeForwardArgs&);
void rope_backward(Stream&, const RopeBackwardArgs&);
void attention_forward(Stream&, const AttentionForwardArgs&);
void attention_backward(Stream&, const AttentionBackwardArgs&);
void attention_ranges_forward(Stream&, const AttentionRangesForwardArgs&);
void attention_ranges_backward(Stream&, const AttentionRangesBackwardArgs&);
void attention_merge(Stream&, const AttentionMergeArgs&);
void gather_rows(Stream&, const GatherRowsArgs&);
void row_product(Stream&, const RowProductArgs&);
void scatter_rows(Stream&, const ScatterRowsArgs&);
void attention_cached(Stream&, const AttentionCachedArgs&);
void swiglu_forward(Stream&, const SwigluForwardArgs&);
void swiglu_backward(Stream&, const SwigluBackwardArgs&);
void gelu_forward(Stream&, const GeluForwardArgs&);
void clamp(Stream&, const ClampArgs&);
void cross_entropy_stats(Stream&, const CrossEntropyStatsArgs&);
void cross_entropy_grad(Stream&, const CrossEntropyGradArgs&);
void cross_entropy_merge(Stream&, const CrossEntropyMergeArgs&);
void cross_entropy(Stream&, const CrossEntropyArgs&);
void fill(Stream&, const FillArgs&);
void copy(Stream&, const CopyArgs&);
void accumulate(Stream&, const AccumulateArgs&);
void init_normal(Stream&, const InitNormalArgs&);
void sum_squares(Stream&, const SumSquaresArgs&);
void add_layers(Stream&, const AddLayersArgs&);
void merge_sums(Stream&, const MergeSumsArgs&);
void merge_records(Stream&, const MergeRecordsArgs&);
void step_control(Stream&, const StepControlArgs&);
void gate(Stream&, const GateArgs&);
void adamw(Stream&, const AdamwArgs&);
void momentum(Stream&, const MomentumArgs&);
void normalize(Stream&, const NormalizeArgs&);
void muon(Stream&, const MuonArgs&);
void router_forward(Stream&, const RouterForwardArgs&);
void router_backward(Stream&, const RouterBackwardArgs&);
void router_bias(Stream&, const RouterBiasArgs&);
void router_overflow(Stream&, const RouterOverflowArgs&);
void router_fill(Stream&, const RouterFillArgs&);
void route_rows(Stream&, const RouteRowsArgs&);
void arrange_rows(Stream&, const ArrangeRowsArgs&);
void gather_pairs(Stream&, const GatherPairsArgs&);
void sum_pairs(Stream&, const SumPairsArgs&);
void grouped_forward(Stream&, const GroupedForwardArgs&);
void grouped_swiglu_forward(Stream&, const GroupedSwigluForwardArgs&);
void grouped_swiglu(Stream&, const GroupedSwigluArgs&);
void grouped_backward_input(Stream&, const GroupedBackwardInputArgs&);
void grouped_swiglu_backward(Stream&, const GroupedSwigluBackwardArgs&);
void grouped_backward_weight(Stream&, const GroupedBackwardWeightArgs&);
void amax(Stream&, const AmaxArgs&);
void quantize(Stream&, const QuantizeArgs&);
void weight_amax(Stream&, const WeightAmaxArgs&);
void weight_quantize(Stream&, const WeightQuantizeArgs&);
void transpose(Stream&, const TransposeArgs&);
void collect_amax(Stream&, const CollectAmaxArgs&);
void rotate_amax(Stream&, const RotateAmaxArgs&);
void content_sum(Stream&, const ContentSumArgs&);

// Two ops in turn, where the input of the second is gemm.d, so that back ends can fuse them. The
// backward need not write gemm.d: the caller must not read it.
void gemm_swiglu_forward(Stream&, const GemmArgs&, const SwigluForwardArgs&);
void gemm_swiglu_backward(Stream&, const GemmArgs&, const SwigluBackwardArgs&);
// The same for an activation and the quantisation of its result (y, or dgate_up), which need not be
// written: the caller must not read it. Codes and scales have the bits of the two ops.
void swiglu_forward_quantize(Stream&, const SwigluForwardArgs&, const QuantizeArgs&);
void swiglu_backward_quantize(Stream&, const SwigluBackwardArgs&, const QuantizeArgs&);

}  // namespace ops
}  // namespace trireme::kernels
