// SPDX-License-Identifier: Apache-2.0
#include "kernels/cost.h"

#include <initializer_list>

namespace trireme::kernels {
namespace {

using spec::OpCost;
using spec::OpKind;

// Bytes of all tensors that are present: each is read or written once. Tensors that are added to
// are listed twice.
int64_t traffic(std::initializer_list<ConstTensor> tensors) {
  int64_t bytes = 0;
  for (const ConstTensor& tensor : tensors) bytes += tensor ? tensor.bytes() : 0;
  return bytes;
}

int64_t traffic_of(const AddTerms& e) { return traffic({e.bias, e.residual}); }
int64_t traffic_of(const GeluForward& e) { return traffic({e.bias, e.input}); }
int64_t traffic_of(const GeluForwardSlope& e) { return traffic({e.bias, e.slope}); }
int64_t traffic_of(const GeluGradient& e) { return traffic({e.input, e.d_sum, e.d_sum, e.gelu}); }
int64_t traffic_of(const ScaleBy& e) { return traffic({e.factor, e.d_sum, e.d_sum}); }
int64_t traffic_of(const BiasGradient& e) { return traffic({e.sum, e.sum}); }

// The cost of an op that is limited by memory traffic: m rows of n elements.
OpCost streaming(OpKind kind, const ConstTensor& main, int64_t bytes) {
  return {.kind = kind, .m = main.rows(), .n = main.cols(), .dtype = main.dtype, .bytes = bytes};
}

}  // namespace

OpCost cost_of(const GemmArgs& a) {
  const int64_t m = a.d.rows(), n = a.d.cols(), k = a.trans_a ? a.a.rows() : a.a.cols();
  const spec::GemmLayout layout = a.trans_a
                                      ? (a.trans_b ? spec::GemmLayout::tt : spec::GemmLayout::tn)
                                      : (a.trans_b ? spec::GemmLayout::nt : spec::GemmLayout::nn);
  int64_t bytes = traffic({a.a, a.b, a.d}) +
                  std::visit([](const auto& e) { return traffic_of(e); }, a.epilogue);
  if (a.beta != 0) bytes += a.d.bytes();
  const double flops =
      2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  return {OpKind::gemm, m, n, k, layout, a.a.dtype, flops, bytes};
}

OpCost cost_of(const EmbeddingForwardArgs& a) {
  // A row of each table is read per token.
  const int64_t tables = a.position_table ? 2 : 1;
  return streaming(OpKind::embedding_forward, a.y,
                   traffic({a.tokens, a.positions, a.y}) + tables * a.y.bytes());
}

OpCost cost_of(const EmbeddingBackwardArgs& a) {
  const int64_t tables = a.dposition_table ? 2 : 1;
  const int64_t row_bytes = a.dy.elements() * base::size_of(a.dtable.dtype);
  return streaming(OpKind::embedding_backward, a.dy,
                   traffic({a.tokens, a.positions, a.dy}) + 2 * tables * row_bytes);
}

OpCost cost_of(const NormForwardArgs& a) {
  return streaming(OpKind::norm_forward, a.x,
                   traffic({a.x, a.residual, a.sum, a.weight, a.bias, a.y, a.stats}));
}

OpCost cost_of(const NormBackwardArgs& a) {
  return streaming(
      OpKind::norm_backward, a.x,
      traffic({a.dy, a.x, a.stats, a.weight, a.dresidual, a.dx, a.dweight, a.dweight, a.dbias,
               a.dbias, a.dresidual_sum, a.dresidual_sum, a.y ? a.bias : ConstTensor{}, a.y}));
}

OpCost cost_of(const RopeForwardArgs& a) {
  return streaming(OpKind::rope_forward, a.x,
                   traffic({a.x, a.y, a.positions, a.q_weight, a.k_weight, a.rstd}));
}

OpCost cost_of(const RopeBackwardArgs& a) {
  return streaming(OpKind::rope_backward, a.dy,
                   traffic({a.dy, a.dx, a.positions, a.x, a.rstd, a.q_weight, a.k_weight,
                            a.dq_weight, a.dq_weight, a.dk_weight, a.dk_weight}));
}

OpCost cost_of(const AttentionForwardArgs& a) {
  const int64_t heads = a.q.shape[1], head_dim = a.q.shape[2];
  const double pairs = a.causal ? spec::causal_pairs(a.sequences, a.max_seq)
                                : static_cast<double>(a.sequences * a.max_seq * a.max_seq);
  // Two products: scores and values.
  const double flops = 2 * 2.0 * pairs * static_cast<double>(heads * head_dim);
  return {.kind = OpKind::attention_forward,
          .m = a.q.rows(),
          .n = a.max_seq,
          .k = head_dim,
          .dtype = a.q.dtype,
          .flops = flops,
          .bytes = traffic({a.q, a.k, a.v, a.o, a.lse})};
}

OpCost cost_of(const AttentionBackwardArgs& a) {
  const int64_t heads = a.q.shape[1], head_dim = a.q.shape[2];
  const double pairs = a.causal ? spec::causal_pairs(a.sequences, a.max_seq)
                                : static_cast<double>(a.sequences * a.max_seq * a.max_seq);
  // Five products: scores recomputed, dv, dp, dq, dk.
  const double flops = 5 * 2.0 * pairs * static_cast<double>(heads * head_dim);
  return {.kind = OpKind::attention_backward,
          .m = a.q.rows(),
          .n = a.max_seq,
          .k = head_dim,
          .dtype = a.q.dtype,
          .flops = flops,
          .bytes = traffic({a.q, a.k, a.v, a.o, a.dout, a.lse, a.dq, a.dk, a.dv})};
}

OpCost cost_of(const AttentionRangesForwardArgs& a) {
  return {.kind = OpKind::attention_ranges_forward,
          .m = a.q.rows(),
          .n = a.k.rows(),
          .k = a.q.shape[2],
          .dtype = a.q.dtype,
          .flops = 2 * 2.0 * a.pairs * static_cast<double>(a.q.cols()),
          .bytes = traffic({a.q, a.k, a.v, a.o, a.lse})};
}

OpCost cost_of(const AttentionRangesBackwardArgs& a) {
  int64_t bytes = traffic({a.q, a.k, a.v, a.o, a.dout, a.lse, a.dq, a.dk, a.dv});
  if (a.accumulates) bytes += traffic({a.dq, a.dk, a.dv});
  return {.kind = OpKind::attention_ranges_backward,
          .m = a.q.rows(),
          .n = a.k.rows(),
          .k = a.q.shape[2],
          .dtype = a.q.dtype,
          .flops = 5 * 2.0 * a.pairs * static_cast<double>(a.q.cols()),
          .bytes = bytes};
}

OpCost cost_of(const AttentionMergeArgs& a) {
  return streaming(OpKind::attention_merge, a.o,
                   traffic({a.part, a.part_lse, a.o, a.o, a.lse, a.lse}));
}

OpCost cost_of(const GatherRowsArgs& a) {
  return streaming(OpKind::gather_rows, a.d, traffic({a.d, a.rows, a.d}));
}

OpCost cost_of(const RowProductArgs& a) {
  const int64_t m = a.y.rows(), n = a.y.cols(), k = a.x.cols();
  return {.kind = OpKind::row_product,
          .m = m,
          .n = n,
          .k = k,
          .layout = spec::GemmLayout::nt,
          .dtype = a.x.dtype,
          .flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k),
          .bytes = traffic({a.x, a.weight, a.bias, a.residual, a.y})};
}

OpCost cost_of(const ScatterRowsArgs& a) {
  return streaming(OpKind::scatter_rows, a.x, traffic({a.x, a.rows, a.x}));
}

// Lengths are on the device, so each counts as max_length.
OpCost cost_of(const AttentionCachedArgs& a) {
  const int64_t heads = a.q.shape[1], head_dim = a.q.shape[2];
  const int64_t cached = a.q.rows() * a.max_length;
  return {.kind = OpKind::attention_cached,
          .m = a.q.rows(),
          .n = a.max_length,
          .k = head_dim,
          .dtype = a.q.dtype,
          .flops = 4.0 * static_cast<double>(cached) * static_cast<double>(heads * head_dim),
          .bytes = traffic({a.q, a.first_rows, a.lengths, a.o}) +
                   cached * a.cache.cols() * base::size_of(a.cache.dtype)};
}

OpCost cost_of(const SwigluForwardArgs& a) {
  return streaming(OpKind::swiglu_forward, a.y, traffic({a.gate_up, a.y}));
}

OpCost cost_of(const SwigluBackwardArgs& a) {
  return streaming(OpKind::swiglu_backward, a.dy, traffic({a.gate_up, a.dy, a.dgate_up, a.y}));
}

OpCost cost_of(const GeluForwardArgs& a) {
  return streaming(OpKind::gelu_forward, a.x, traffic({a.x, a.y}));
}

OpCost cost_of(const ClampArgs& a) {
  return streaming(OpKind::clamp, a.x, traffic({a.x, a.dy, a.y}));
}

OpCost cost_of(const CrossEntropyStatsArgs& a) {
  return streaming(OpKind::cross_entropy_stats, a.logits, traffic({a.logits, a.labels, a.stats}));
}

OpCost cost_of(const CrossEntropyGradArgs& a) {
  int64_t bytes = traffic({a.stats, a.labels, a.token_losses});
  if (!a.loss_only) bytes += 2 * a.logits.bytes();
  return streaming(OpKind::cross_entropy_grad, a.logits, bytes);
}

OpCost cost_of(const CrossEntropyMergeArgs& a) {
  return streaming(OpKind::cross_entropy_merge, a.stats, traffic({a.parts, a.stats}));
}

OpCost cost_of(const CrossEntropyArgs& a) {
  int64_t bytes = traffic({a.logits, a.labels, a.stats, a.token_losses});
  if (!a.loss_only) bytes += a.logits.bytes();
  return streaming(OpKind::cross_entropy, a.logits, bytes);
}

OpCost cost_of(const FillArgs& a) { return streaming(OpKind::fill, a.d, traffic({a.d})); }

OpCost cost_of(const CopyArgs& a) {
  return streaming(OpKind::copy, a.d, traffic({a.x, a.d}) + (a.low ? a.low.bytes() : 0));
}

OpCost cost_of(const AccumulateArgs& a) {
  return streaming(OpKind::accumulate, a.d, traffic({a.x, a.d, a.d}));
}

OpCost cost_of(const InitNormalArgs& a) {
  return streaming(OpKind::init_normal, a.d, traffic({a.d}));
}

OpCost cost_of(const SumSquaresArgs& a) {
  return streaming(OpKind::sum_squares, a.x, traffic({a.x}));
}

OpCost cost_of(const AddLayersArgs& a) {
  return streaming(OpKind::add_layers, a.squares, traffic({a.squares, a.squares, a.record}));
}

OpCost cost_of(const MergeSumsArgs& a) {
  return streaming(OpKind::merge_sums, a.parts,
                   a.parts.rows() * a.sums.bytes() + traffic({a.sums}));
}

OpCost cost_of(const MergeRecordsArgs& a) {
  return streaming(OpKind::merge_records, a.parts, traffic({a.parts, a.totals}));
}

OpCost cost_of(const StepControlArgs& a) {
  return streaming(OpKind::step_control, a.state, traffic({a.sums, a.sums, a.state, a.state}));
}

OpCost cost_of(const GateArgs& a) {
  return streaming(OpKind::gate, a.cell, traffic({a.flag, a.cell}));
}

namespace {

// Returns the bytes of an update of weights. The parameter is read if it is the weight, or its high
// part.
int64_t weight_traffic(const Tensor& param, const Tensor& master) {
  const bool reads_param = !master || master.dtype == base::DType::u16;
  return (master ? 2 * master.bytes() : 0) + (reads_param ? 2 : 1) * param.bytes();
}

}  // namespace

OpCost cost_of(const AdamwArgs& a) {
  return streaming(OpKind::adamw, a.param,
                   weight_traffic(a.param, a.master) + traffic({a.m, a.m, a.v, a.v, a.grad}));
}

OpCost cost_of(const MomentumArgs& a) {
  return streaming(OpKind::momentum, a.m, traffic({a.m, a.m, a.u, a.grad}));
}

OpCost cost_of(const NormalizeArgs& a) {
  return streaming(OpKind::normalize, a.d, traffic({a.d, a.d}));
}

OpCost cost_of(const MuonArgs& a) {
  return streaming(OpKind::muon, a.param,
                   weight_traffic(a.param, a.master) + traffic({a.direction}));
}

OpCost cost_of(const ContentSumArgs& a) {
  int64_t bytes = 0;
  for (const ContentRange& range : a.ranges) bytes += range.bytes.bytes();
  return {.kind = OpKind::content_sum,
          .m = std::ssize(a.ranges),
          .n = bytes,
          .dtype = base::DType::u8,
          .bytes = bytes + 2 * a.sum.bytes()};
}

}  // namespace trireme::kernels
