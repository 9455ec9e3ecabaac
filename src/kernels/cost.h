// SPDX-License-Identifier: Apache-2.0
// The cost of an operation, computed from its tensors (conventions: spec/facts/op_cost.h).
#pragma once

#include "kernels/args.h"
#include "spec/facts/op_cost.h"

namespace trireme::kernels {

spec::OpCost cost_of(const GemmArgs&);
spec::OpCost cost_of(const EmbeddingForwardArgs&);
spec::OpCost cost_of(const EmbeddingBackwardArgs&);
spec::OpCost cost_of(const NormForwardArgs&);
spec::OpCost cost_of(const NormBackwardArgs&);
spec::OpCost cost_of(const RopeForwardArgs&);
spec::OpCost cost_of(const RopeBackwardArgs&);
spec::OpCost cost_of(const AttentionForwardArgs&);
spec::OpCost cost_of(const AttentionBackwardArgs&);
spec::OpCost cost_of(const AttentionRangesForwardArgs&);
spec::OpCost cost_of(const AttentionRangesBackwardArgs&);
spec::OpCost cost_of(const AttentionMergeArgs&);
spec::OpCost cost_of(const GatherRowsArgs&);
spec::OpCost cost_of(const RowProductArgs&);
spec::OpCost cost_of(const ScatterRowsArgs&);
spec::OpCost cost_of(const AttentionCachedArgs&);
spec::OpCost cost_of(const SwigluForwardArgs&);
spec::OpCost cost_of(const SwigluBackwardArgs&);
spec::OpCost cost_of(const GeluForwardArgs&);
spec::OpCost cost_of(const ClampArgs&);
spec::OpCost cost_of(const CrossEntropyStatsArgs&);
spec::OpCost cost_of(const CrossEntropyGradArgs&);
spec::OpCost cost_of(const CrossEntropyMergeArgs&);
spec::OpCost cost_of(const CrossEntropyArgs&);
spec::OpCost cost_of(const FillArgs&);
spec::OpCost cost_of(const CopyArgs&);
spec::OpCost cost_of(const AccumulateArgs&);
spec::OpCost cost_of(const InitNormalArgs&);
spec::OpCost cost_of(const SumSquaresArgs&);
spec::OpCost cost_of(const AddLayersArgs&);
spec::OpCost cost_of(const MergeSumsArgs&);
spec::OpCost cost_of(const MergeRecordsArgs&);
spec::OpCost cost_of(const StepControlArgs&);
spec::OpCost cost_of(const GateArgs&);
spec::OpCost cost_of(const AdamwArgs&);
spec::OpCost cost_of(const MomentumArgs&);
spec::OpCost cost_of(const NormalizeArgs&);
spec::OpCost cost_of(const MuonArgs&);
spec::OpCost cost_of(const RouterForwardArgs&);
spec::OpCost cost_of(const RouterBackwardArgs&);
spec::OpCost cost_of(const RouterBiasArgs&);
spec::OpCost cost_of(const RouterOverflowArgs&);
spec::OpCost cost_of(const RouterFillArgs&);
spec::OpCost cost_of(const RouteRowsArgs&);
spec::OpCost cost_of(const ArrangeRowsArgs&);
spec::OpCost cost_of(const GatherPairsArgs&);
spec::OpCost cost_of(const SumPairsArgs&);
spec::OpCost cost_of(const GroupedForwardArgs&);
spec::OpCost cost_of(const GroupedSwigluForwardArgs&);
spec::OpCost cost_of(const GroupedSwigluArgs&);
spec::OpCost cost_of(const GroupedBackwardInputArgs&);
spec::OpCost cost_of(const GroupedSwigluBackwardArgs&);
spec::OpCost cost_of(const GroupedBackwardWeightArgs&);
spec::OpCost cost_of(const AmaxArgs&);
spec::OpCost cost_of(const QuantizeArgs&);
spec::OpCost cost_of(const WeightAmaxArgs&);
spec::OpCost cost_of(const WeightQuantizeArgs&);
spec::OpCost cost_of(const TransposeArgs&);
spec::OpCost cost_of(const CollectAmaxArgs&);
spec::OpCost cost_of(const RotateAmaxArgs&);
spec::OpCost cost_of(const ContentSumArgs&);

}  // namespace trireme::kernels
