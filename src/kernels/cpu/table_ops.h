// SPDX-License-Identifier: Apache-2.0
// The ops of the CPU back end. Each has the contract of its args (kernels/args.h), runs on a
// CpuStream, and shares its work over the pool in tasks cut by shape, so that results have the same
// bits for any number of threads.
#pragma once

#include "kernels/args.h"
#include "kernels/table.h"

namespace trireme::kernels::cpu {

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

}  // namespace trireme::kernels::cpu
