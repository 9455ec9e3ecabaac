// SPDX-License-Identifier: Apache-2.0
// The functions of ops.h for mixture-of-experts layers (kernels/expert_args.h).
#include "kernels/op_checks.h"
#include "kernels/step_state.h"

namespace trireme::kernels::ops {
namespace {

void has_no_gaps(const char* op, const char* name, const ConstTensor& t) {
  TRIREME_CHECK(t.is_contiguous(), "{}: {} has rows of {} elements and a row stride of {}", op,
                name, t.cols(), t.row_stride);
}

// Contiguous tensors of indices, counts and statistics.
void has_flat(const char* op, const char* name, const ConstTensor& t, const Shape& shape,
              DType dtype) {
  has(op, name, t, shape, dtype);
  has_no_gaps(op, name, t);
}

void is_rule(const char* op, const spec::RouterSpec& r) {
  TRIREME_CHECK(r.experts > 0 && r.chosen > 0 && r.chosen <= r.experts, "{}: {} of {} experts", op,
                r.chosen, r.experts);
  TRIREME_CHECK(r.groups > 0 && r.experts % r.groups == 0 && r.chosen_groups > 0 &&
                    r.chosen_groups <= r.groups &&
                    r.chosen <= r.experts / r.groups * r.chosen_groups,
                "{}: {} of {} experts in {} of {} groups", op, r.chosen, r.experts, r.chosen_groups,
                r.groups);
}

// `load` with the sequences of `tokens` local rows.
void may_have_load(const char* op, const ConstTensor& load, int64_t experts, int64_t tokens,
                   int64_t first_row, int64_t sequence_rows) {
  if (!load) return;
  has_flat(op, "load", load, {load.rows(), experts}, DType::f32);
  TRIREME_CHECK(
      sequence_rows > 0 && first_row >= 0 && first_row + tokens <= load.rows() * sequence_rows,
      "{}: rows {}+{} in {} sequences of {} rows", op, first_row, tokens, load.rows(),
      sequence_rows);
}

void has_stats(const char* op, const ConstTensor& stats, int64_t experts) {
  has_flat(op, "stats", stats, {spec::RouterStats{experts}.size()}, DType::f32);
}

void are_expected(const char* op, int64_t rows, const ConstTensor& x) {
  TRIREME_CHECK(rows >= 0 && rows <= x.rows(), "{}: {} expected rows of {}", op, rows, x.rows());
}

// The groups of one matrix [out, in] each.
void are_groups(const char* op, const ConstTensor& weight, const ConstTensor& starts, int64_t out,
                int64_t in) {
  TRIREME_CHECK(weight.shape.ndim() == 3, "{}: weights are {}, expected [groups, {}, {}]", op,
                weight.shape.to_string(), out, in);
  has(op, "weight", weight, {weight.shape[0], out, in});
  has_flat(op, "starts", starts, {weight.shape[0] + 1}, DType::i32);
}

// The operands of a product, in 8 bits with scales or both of one type without. `b_matrices` is the
// number of matrices in b, each with its own scales; 0: b is one matrix.
void are_operands(const char* op, const ConstTensor& a, const ConstTensor& b,
                  const GroupedScales& scales, int64_t b_matrices) {
  using spec::ScaleShape;
  if (!base::is_float8(a.dtype)) {
    is_real(op, "the first operand", a);
    has(op, "the second operand", b, b.shape, a.dtype);
    TRIREME_CHECK(!scales.a && !scales.b, "{}: scales come with 8-bit operands, not with {}", op,
                  base::name_of(a.dtype));
    return;
  }
  TRIREME_CHECK(base::is_float8(b.dtype) && (a.dtype != DType::f8e5m2 || b.dtype != DType::f8e5m2),
                "{}: operands are {} and {}", op, base::name_of(a.dtype), base::name_of(b.dtype));
  const bool is_tensor =
      scales.shape_a == ScaleShape::tensor && scales.shape_b == ScaleShape::tensor;
  const bool is_block =
      scales.shape_a == ScaleShape::row_128 &&
      scales.shape_b == (b_matrices > 0 ? ScaleShape::block_128 : ScaleShape::row_128);
  TRIREME_CHECK(is_tensor || is_block, "{}: shapes of scales {} and {}", op,
                static_cast<int>(scales.shape_a), static_cast<int>(scales.shape_b));
  has(op, "the first scales", scales.a, spec::scale_spec(scales.shape_a, a.rows(), a.cols()).shape,
      DType::f32);
  if (b_matrices == 0) {
    has(op, "the second scales", scales.b,
        spec::scale_spec(scales.shape_b, b.rows(), b.cols()).shape, DType::f32);
    return;
  }
  const Shape one = spec::scale_spec(scales.shape_b, b.shape[1], b.shape[2]).shape;
  has_flat(op, "the scales of weights", scales.b, {b_matrices * one.elements()}, DType::f32);
}

// Results are of the operands' type, or bf16 or f32.
void is_result(const char* op, const char* name, const ConstTensor& t, const Shape& shape,
               const ConstTensor& operand) {
  if (!base::is_float8(operand.dtype)) return has(op, name, t, shape, operand.dtype);
  has(op, name, t, shape);
  is_real(op, name, t);
}

void may_have_amax(const char* op, const Tensor& amax) {
  may_have(op, "amax", amax, {1}, DType::f32);
}

}  // namespace

void router_forward(Stream& stream, const RouterForwardArgs& a) {
  const char* op = "router_forward";
  const int64_t tokens = a.logits.rows(), experts = a.rule.experts;
  is_rule(op, a.rule);
  has(op, "logits", a.logits, {tokens, experts}, DType::f32);
  TRIREME_CHECK(static_cast<bool>(a.bias) == a.rule.has_bias,
                "router_forward: the rule {} a bias, the tensor is {}",
                a.rule.has_bias ? "has" : "does not have", a.bias ? "present" : "absent");
  may_have(op, "bias", a.bias, {experts}, DType::f32);
  has_flat(op, "choice", a.choice, {tokens, a.rule.chosen}, DType::i32);
  has_flat(op, "weights", a.weights, {tokens, a.rule.chosen}, DType::f32);
  if (a.stats) has_stats(op, a.stats, experts);
  may_have_load(op, a.load, experts, tokens, a.first_row, a.sequence_rows);
  send(stream, &Kernels::router_forward, a);
}

void router_backward(Stream& stream, const RouterBackwardArgs& a) {
  const char* op = "router_backward";
  const int64_t tokens = a.logits.rows(), experts = a.rule.experts;
  is_rule(op, a.rule);
  has(op, "logits", a.logits, {tokens, experts}, DType::f32);
  has_flat(op, "choice", a.choice, {tokens, a.rule.chosen}, DType::i32);
  has_flat(op, "place", a.place, {tokens, a.rule.chosen}, DType::i32);
  has(op, "row_grads", a.row_grads, {a.row_grads.rows()}, DType::f32);
  TRIREME_CHECK(static_cast<bool>(a.load) == (a.aux_scale != 0),
                "router_backward: load is {} with an aux_scale of {}",
                a.load ? "present" : "absent", a.aux_scale);
  may_have_load(op, a.load, experts, tokens, a.first_row, a.sequence_rows);
  TRIREME_CHECK(static_cast<bool>(a.labels) == (a.aux_scale != 0 || a.z_scale != 0),
                "router_backward: labels are {} with scales of {} and {}",
                a.labels ? "present" : "absent", a.aux_scale, a.z_scale);
  may_have(op, "labels", a.labels, {tokens}, DType::i32);
  has(op, "dlogits", a.dlogits, {tokens, experts});
  is_real(op, "dlogits", a.dlogits);
  may_have(op, "scale", a.scale, {1}, DType::f32);
  send(stream, &Kernels::router_backward, a);
}

void router_bias(Stream& stream, const RouterBiasArgs& a) {
  const char* op = "router_bias";
  has_flat(op, "bias", a.bias, {a.bias.rows()}, DType::f32);
  has_stats(op, a.stats, a.bias.rows());
  holds<StepState>(op, "state", a.state);
  send(stream, &Kernels::router_bias, a);
}

void router_overflow(Stream& stream, const RouterOverflowArgs& a) {
  has_stats("router_overflow", a.stats, a.experts);
  holds<StepSums>("router_overflow", "sums", a.sums);
  send(stream, &Kernels::router_overflow, a);
}

void router_fill(Stream& stream, const RouterFillArgs& a) {
  const char* op = "router_fill";
  TRIREME_CHECK(a.blocks > 0 && a.counts.rows() % a.blocks == 0,
                "router_fill: {} experts in {} blocks", a.counts.rows(), a.blocks);
  has_flat(op, "counts", a.counts, {a.counts.rows()}, DType::i32);
  has(op, "fill", a.fill, {1}, DType::f32);
  send(stream, &Kernels::router_fill, a);
}

void route_rows(Stream& stream, const RouteRowsArgs& a) {
  const char* op = "route_rows";
  const int64_t tokens = a.choice.rows(), chosen = a.choice.cols(), rows = a.pair.rows();
  TRIREME_CHECK(a.experts > 0 && a.blocks > 0 && a.experts % a.blocks == 0,
                "route_rows: {} experts in {} blocks", a.experts, a.blocks);
  TRIREME_CHECK(a.tile > 0 && rows % (a.blocks * a.tile) == 0,
                "route_rows: {} rows are not {} blocks of whole tiles of {} rows", rows, a.blocks,
                a.tile);
  TRIREME_CHECK(a.capacity >= 0, "route_rows: a capacity of {} rows", a.capacity);
  has_flat(op, "choice", a.choice, {tokens, chosen}, DType::i32);
  has_flat(op, "place", a.place, {tokens, chosen}, DType::i32);
  has_flat(op, "pair", a.pair, {rows}, DType::i32);
  has_flat(op, "counts", a.counts, {a.experts}, DType::i32);
  has_flat(op, "starts", a.starts, {a.experts + 1}, DType::i32);
  if (a.stats) has_stats(op, a.stats, a.experts);
  send(stream, &Kernels::route_rows, a);
}

void arrange_rows(Stream& stream, const ArrangeRowsArgs& a) {
  const char* op = "arrange_rows";
  const int64_t blocks = a.counts.rows(), groups = a.counts.cols();
  has_flat(op, "counts", a.counts, {blocks, groups}, DType::i32);
  has_flat(op, "place", a.place, {a.place.rows()}, DType::i32);
  has_flat(op, "source", a.source, {a.source.rows()}, DType::i32);
  has_flat(op, "starts", a.starts, {groups + 1}, DType::i32);
  TRIREME_CHECK(blocks > 0 && a.place.rows() % blocks == 0, "arrange_rows: {} rows in {} blocks",
                a.place.rows(), blocks);
  TRIREME_CHECK(a.tile > 0 && a.source.rows() >= a.place.rows() + groups * (a.tile - 1),
                "arrange_rows: {} grouped rows, expected at least {} of {} groups in tiles of {}",
                a.source.rows(), a.place.rows() + groups * (a.tile - 1), groups, a.tile);
  send(stream, &Kernels::arrange_rows, a);
}

void gather_pairs(Stream& stream, const GatherPairsArgs& a) {
  const char* op = "gather_pairs";
  is_real(op, "x", a.x);
  has_flat(op, "source", a.source, {a.d.rows()}, DType::i32);
  has(op, "d", a.d, a.d.shape, a.x.dtype);
  TRIREME_CHECK(a.d.cols() == a.x.cols() && a.x.row_stride >= a.x.cols(),
                "gather_pairs: x is {}, d is {}", a.x.shape.to_string(), a.d.shape.to_string());
  TRIREME_CHECK(a.divisor > 0, "gather_pairs: divisor {}", a.divisor);
  may_have(op, "end", a.end, {1}, DType::i32);
  if (a.place) has_flat(op, "place", a.place, {a.x.rows(), a.divisor}, DType::i32);
  send(stream, &Kernels::gather_pairs, a);
}

void sum_pairs(Stream& stream, const SumPairsArgs& a) {
  const char* op = "sum_pairs";
  const int64_t tokens = a.place.rows(), width = a.rows.cols();
  is_real(op, "rows", a.rows);
  has(op, "rows", a.rows, {a.rows.rows(), width});
  has_flat(op, "place", a.place, {tokens, a.place.cols()}, DType::i32);
  has(op, "y", a.y, {tokens, width}, a.rows.dtype);
  may_have(op, "residual", a.residual, a.y.shape, a.rows.dtype);
  may_have(op, "other", a.other, a.y.shape, a.rows.dtype);
  send(stream, &Kernels::sum_pairs, a);
}

void grouped_forward(Stream& stream, const GroupedForwardArgs& a) {
  const char* op = "grouped_forward";
  has(op, "x", a.x, {a.x.rows(), a.x.cols()});
  is_result(op, "y", a.y, {a.x.rows(), a.y.cols()}, a.x);
  are_groups(op, a.weight, a.starts, a.y.cols(), a.x.cols());
  are_operands(op, a.x, a.weight, a.scales, a.weight.shape[0]);
  are_expected(op, a.rows, a.x);
  send(stream, &Kernels::grouped_forward, a);
}

void grouped_swiglu_forward(Stream& stream, const GroupedSwigluForwardArgs& a) {
  const char* op = "grouped_swiglu_forward";
  const int64_t rows = a.x.rows(), F = a.act.cols();
  has(op, "x", a.x, {rows, a.x.cols()});
  is_result(op, "gate_up", a.gate_up, {rows, 2 * F}, a.x);
  has(op, "act", a.act, {rows, F}, a.gate_up.dtype);
  has(op, "row_weight", a.row_weight, {rows}, DType::f32);
  are_groups(op, a.weight, a.starts, 2 * F, a.x.cols());
  are_operands(op, a.x, a.weight, a.scales, a.weight.shape[0]);
  may_have_amax(op, a.amax);
  are_expected(op, a.rows, a.x);
  send(stream, &Kernels::grouped_swiglu_forward, a);
}

void grouped_swiglu(Stream& stream, const GroupedSwigluArgs& a) {
  const char* op = "grouped_swiglu";
  const int64_t rows = a.act.rows(), F = a.act.cols();
  is_real(op, "act", a.act);
  has(op, "act", a.act, {rows, F});
  has(op, "gate_up", a.gate_up, {rows, 2 * F}, a.act.dtype);
  has(op, "row_weight", a.row_weight, {rows}, DType::f32);
  has(op, "end", a.end, {1}, DType::i32);
  may_have_amax(op, a.amax);
  are_expected(op, a.rows, a.act);
  send(stream, &Kernels::grouped_swiglu, a);
}

void grouped_backward_input(Stream& stream, const GroupedBackwardInputArgs& a) {
  const char* op = "grouped_backward_input";
  const bool is_8_bit = base::is_float8(a.dy.dtype);
  const int64_t N = a.dy.cols(), D = a.dx.cols();
  has(op, "dy", a.dy, {a.dy.rows(), N});
  is_result(op, "dx", a.dx, {a.dy.rows(), D}, a.dy);
  are_groups(op, a.weight, a.starts, is_8_bit ? D : N, is_8_bit ? N : D);
  are_operands(op, a.dy, a.weight, a.scales, a.weight.shape[0]);
  are_expected(op, a.rows, a.dy);
  send(stream, &Kernels::grouped_backward_input, a);
}

void grouped_swiglu_backward(Stream& stream, const GroupedSwigluBackwardArgs& a) {
  const char* op = "grouped_swiglu_backward";
  const bool is_8_bit = base::is_float8(a.dy.dtype);
  const int64_t rows = a.dy.rows(), D = a.dy.cols(), F = a.gate_up.cols() / 2;
  has(op, "dy", a.dy, {rows, D});
  is_result(op, "gate_up", a.gate_up, {rows, 2 * F}, a.dy);
  has(op, "dgate_up", a.dgate_up, {rows, 2 * F}, a.gate_up.dtype);
  has(op, "row_weight", a.row_weight, {rows}, DType::f32);
  has(op, "dweight", a.dweight, {rows}, DType::f32);
  may_have(op, "act", a.act, {rows, F}, a.gate_up.dtype);
  are_groups(op, a.weight, a.starts, is_8_bit ? F : D, is_8_bit ? D : F);
  TRIREME_CHECK(static_cast<bool>(a.dact) == is_8_bit, "{}: dact comes with 8-bit operands", op);
  may_have(op, "dact", a.dact, {rows, F}, a.gate_up.dtype);
  are_operands(op, a.dy, a.weight, a.scales, a.weight.shape[0]);
  may_have_amax(op, a.amax);
  are_expected(op, a.rows, a.dy);
  send(stream, &Kernels::grouped_swiglu_backward, a);
}

void grouped_backward_weight(Stream& stream, const GroupedBackwardWeightArgs& a) {
  const char* op = "grouped_backward_weight";
  const bool is_8_bit = base::is_float8(a.dy.dtype);
  const int64_t R = is_8_bit ? a.dy.cols() : a.dy.rows();
  const int64_t N = is_8_bit ? a.dy.rows() : a.dy.cols();
  const int64_t D = is_8_bit ? a.x.rows() : a.x.cols();
  has(op, "dy", a.dy, {a.dy.rows(), a.dy.cols()});
  has(op, "x", a.x, is_8_bit ? Shape{D, R} : Shape{R, D});
  is_real(op, "dweight", a.dweight);
  are_groups(op, a.dweight, a.starts, N, D);
  are_operands(op, a.dy, a.x, a.scales, 0);
  TRIREME_CHECK(a.rows >= 0 && a.rows <= R, "{}: {} expected rows of {}", op, a.rows, R);
  send(stream, &Kernels::grouped_backward_weight, a);
}

}  // namespace trireme::kernels::ops
