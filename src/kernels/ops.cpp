// SPDX-License-Identifier: Apache-2.0
#include "kernels/ops.h"

#include "base/check.h"
#include "kernels/cost.h"
#include "kernels/step_state.h"

namespace trireme::kernels::ops {
namespace {

using base::DType;
using base::Shape;

// ---- what every front does after its checks
template <typename Args>
void announce(Stream& stream, const Args& args) {
  if (stream.observer() != nullptr) stream.observer()->op(stream, cost_of(args));
}
template <typename Args>
void send(Stream& stream, void (*Kernels::*row)(Stream&, const Args&), const Args& args) {
  announce(stream, args);
  (stream.device().kernels().*row)(stream, args);
}
// Two rows, as one where the table has it and takes these. What that costs is then told of the
// first; the second follows it and takes no time.
template <typename Args>
void send_pair(Stream& stream, bool (*pair)(Stream&, const GemmArgs&, const Args&),
               const GemmArgs& gemm, void (*Kernels::*row)(Stream&, const Args&),
               const Args& args) {
  announce(stream, gemm);
  if (pair != nullptr && pair(stream, gemm, args)) {
    announce(stream, args);
    return;
  }
  stream.device().kernels().gemm(stream, gemm);
  send(stream, row, args);
}

// ---- checks, named for what they demand
void is_real(const char* row, const char* name, const ConstTensor& t) {
  TRIREME_CHECK(t.dtype == DType::f32 || t.dtype == DType::bf16, "{}: {} is {}, not f32 or bf16",
                row, name, base::name_of(t.dtype));
}

void has(const char* row, const char* name, const ConstTensor& t, const Shape& shape) {
  TRIREME_CHECK(t.shape == shape, "{}: {} is {}, expected {}", row, name, t.shape.to_string(),
                shape.to_string());
  TRIREME_CHECK(t.row_stride >= t.cols(), "{}: {} has rows of {} every {} elements", row, name,
                t.cols(), t.row_stride);
}

void has(const char* row, const char* name, const ConstTensor& t, const Shape& shape, DType dtype) {
  has(row, name, t, shape);
  TRIREME_CHECK(t.dtype == dtype, "{}: {} is {}, expected {}", row, name, base::name_of(t.dtype),
                base::name_of(dtype));
}

void may_have(const char* row, const char* name, const ConstTensor& t, const Shape& shape) {
  if (t) has(row, name, t, shape);
}

void may_have(const char* row, const char* name, const ConstTensor& t, const Shape& shape,
              DType dtype) {
  if (t) has(row, name, t, shape, dtype);
}

template <typename Struct>
void holds(const char* row, const char* name, const ConstTensor& t) {
  has(row, name, t, {static_cast<int64_t>(sizeof(Struct))}, DType::u8);
}

void check_sequences(const char* row, const ConstTensor& q, const ConstTensor& k,
                     const ConstTensor& v, const ConstTensor& seq_offsets, int64_t max_seq) {
  const int64_t tokens = q.shape[0], heads = q.shape[1], head_dim = q.shape[2];
  const int64_t kv_heads = k.shape[1];
  TRIREME_CHECK(kv_heads > 0 && heads % kv_heads == 0, "{}: {} query heads, {} key heads", row,
                heads, kv_heads);
  is_real(row, "q", q);
  has(row, "k", k, {tokens, kv_heads, head_dim}, q.dtype);
  has(row, "v", v, {tokens, kv_heads, head_dim}, q.dtype);
  TRIREME_CHECK(
      seq_offsets.dtype == DType::i32 && seq_offsets.shape.ndim() == 1 && seq_offsets.rows() >= 2,
      "{}: seq_offsets {}", row, seq_offsets.shape.to_string());
  TRIREME_CHECK(max_seq >= 1 && max_seq <= tokens, "{}: max_seq {} of {} tokens", row, max_seq,
                tokens);
}

// Checks the tensors of an epilogue, and that beta is one that it allows.
struct EpilogueCheck {
  const GemmArgs& a;
  const char* row = "gemm";
  int64_t m = a.d.rows(), n = a.d.cols();

  void operator()(const AddTerms& e) const {
    may_have(row, "bias", e.bias, {n});
    may_have(row, "residual", e.residual, {m, n});
    TRIREME_CHECK(!e.residual || a.beta == 0, "gemm: residual with beta {}", a.beta);
  }
  void operator()(const GeluForward& e) const {
    may_have(row, "bias", e.bias, {n});
    has(row, "GeluForward::input", e.input, {m, n}, a.d.dtype);
    has_no_beta();
  }
  void operator()(const GeluForwardSlope& e) const {
    may_have(row, "bias", e.bias, {n});
    has(row, "GeluForwardSlope::slope", e.slope, {m, n}, a.d.dtype);
    has_no_beta();
  }
  void operator()(const GeluGradient& e) const {
    has(row, "GeluGradient::input", e.input, {m, n});
    may_have(row, "GeluGradient::gelu", e.gelu, {m, n}, e.input.dtype);
    check_sum("GeluGradient::d_sum", e.d_sum, n);
    has_no_beta();
  }
  void operator()(const ScaleBy& e) const {
    has(row, "ScaleBy::factor", e.factor, {m, n});
    check_sum("ScaleBy::d_sum", e.d_sum, n);
    has_no_beta();
  }
  void operator()(const BiasGradient& e) const {
    TRIREME_CHECK(static_cast<bool>(e.sum), "gemm: a bias gradient without its sum");
    check_sum("BiasGradient::sum", e.sum, m);
  }

 private:
  void check_sum(const char* name, const Tensor& sum, int64_t elements) const {
    may_have(row, name, sum, {elements});
    if (sum) is_real(row, name, sum);
  }
  void has_no_beta() const {
    TRIREME_CHECK(a.beta == 0, "gemm: an activation or a factor with beta {}", a.beta);
  }
};

void check(const GemmArgs& a) {
  const char* row = "gemm";
  const int64_t m = a.trans_a ? a.a.cols() : a.a.rows(), k = a.trans_a ? a.a.rows() : a.a.cols();
  const int64_t n = a.trans_b ? a.b.rows() : a.b.cols();
  is_real(row, "a", a.a);
  is_real(row, "b", a.b);
  is_real(row, "d", a.d);
  TRIREME_CHECK(!a.scale_a && !a.scale_b, "gemm: scales come with fp8 operands, a is {}",
                base::name_of(a.a.dtype));
  TRIREME_CHECK(k == (a.trans_b ? a.b.cols() : a.b.rows()), "gemm: a {}{}, b {}{}",
                a.a.shape.to_string(), a.trans_a ? "^T" : "", a.b.shape.to_string(),
                a.trans_b ? "^T" : "");
  has(row, "d", a.d, {m, n});
  std::visit(EpilogueCheck{a}, a.epilogue);
}

void check(const SwigluForwardArgs& a) {
  is_real("swiglu_forward", "y", a.y);
  has("swiglu_forward", "gate_up", a.gate_up, {a.y.rows(), 2 * a.y.cols()}, a.y.dtype);
}

void check(const SwigluBackwardArgs& a) {
  is_real("swiglu_backward", "dy", a.dy);
  has("swiglu_backward", "gate_up", a.gate_up, {a.dy.rows(), 2 * a.dy.cols()}, a.dy.dtype);
  has("swiglu_backward", "dgate_up", a.dgate_up, a.gate_up.shape, a.dy.dtype);
  may_have("swiglu_backward", "y", a.y, a.dy.shape, a.dy.dtype);
}

void check_follows(const ConstTensor& d, const ConstTensor& input) {
  TRIREME_CHECK(d.data == input.data && d.shape == input.shape &&
                    d.row_stride == input.row_stride && d.dtype == input.dtype,
                "a pair of rows: the second does not take the first's result");
}

}  // namespace

void gemm(Stream& stream, const GemmArgs& a) {
  check(a);
  send(stream, &Kernels::gemm, a);
}

void gemm_swiglu_forward(Stream& stream, const GemmArgs& gemm, const SwigluForwardArgs& swiglu) {
  check(gemm);
  check(swiglu);
  check_follows(gemm.d, swiglu.gate_up);
  send_pair(stream, stream.device().kernels().gemm_swiglu_forward, gemm, &Kernels::swiglu_forward,
            swiglu);
}

void gemm_swiglu_backward(Stream& stream, const GemmArgs& gemm, const SwigluBackwardArgs& swiglu) {
  check(gemm);
  check(swiglu);
  check_follows(gemm.d, swiglu.dy);
  send_pair(stream, stream.device().kernels().gemm_swiglu_backward, gemm, &Kernels::swiglu_backward,
            swiglu);
}

void embedding_forward(Stream& stream, const EmbeddingForwardArgs& a) {
  const char* row = "embedding_forward";
  const int64_t tokens = a.y.rows(), width = a.y.cols();
  has(row, "tokens", a.tokens, {tokens}, DType::i32);
  has(row, "table", a.table, {a.table.rows(), width}, a.y.dtype);
  if (a.position_table) {
    has(row, "positions", a.positions, {tokens}, DType::i32);
    has(row, "position_table", a.position_table, {a.position_table.rows(), width}, a.y.dtype);
  }
  is_real(row, "y", a.y);
  send(stream, &Kernels::embedding_forward, a);
}

void embedding_backward(Stream& stream, const EmbeddingBackwardArgs& a) {
  const char* row = "embedding_backward";
  const int64_t tokens = a.dy.rows(), width = a.dy.cols();
  has(row, "tokens", a.tokens, {tokens}, DType::i32);
  has(row, "dtable", a.dtable, {a.dtable.rows(), width});
  is_real(row, "dtable", a.dtable);
  if (a.dposition_table) {
    has(row, "positions", a.positions, {tokens}, DType::i32);
    has(row, "dposition_table", a.dposition_table, {a.dposition_table.rows(), width});
    is_real(row, "dposition_table", a.dposition_table);
  }
  send(stream, &Kernels::embedding_backward, a);
}

void norm_forward(Stream& stream, const NormForwardArgs& a) {
  const char* row = "norm_forward";
  const Shape shape = {a.x.rows(), a.x.cols()};
  is_real(row, "x", a.x);
  may_have(row, "residual", a.residual, shape);
  TRIREME_CHECK(static_cast<bool>(a.residual) == static_cast<bool>(a.sum),
                "norm_forward: residual and sum come together");
  may_have(row, "sum", a.sum, shape);
  has(row, "weight", a.weight, {a.x.cols()});
  may_have(row, "bias", a.bias, {a.x.cols()});
  has(row, "y", a.y, shape, a.x.dtype);
  has(row, "stats", a.stats, {a.x.rows(), norm_stats(a.kind)}, DType::f32);
  send(stream, &Kernels::norm_forward, a);
}

void norm_backward(Stream& stream, const NormBackwardArgs& a) {
  const char* row = "norm_backward";
  const Shape shape = {a.x.rows(), a.x.cols()};
  is_real(row, "x", a.x);
  has(row, "dy", a.dy, shape, a.x.dtype);
  has(row, "stats", a.stats, {a.x.rows(), norm_stats(a.kind)}, DType::f32);
  has(row, "weight", a.weight, {a.x.cols()});
  may_have(row, "dresidual", a.dresidual, shape);
  has(row, "dx", a.dx, shape, a.x.dtype);
  has(row, "dweight", a.dweight, {a.x.cols()});
  may_have(row, "dbias", a.dbias, {a.x.cols()});
  may_have(row, "bias", a.bias, {a.x.cols()});
  may_have(row, "y", a.y, shape, a.x.dtype);
  if (a.dresidual_sum) {
    has(row, "dresidual_sum", a.dresidual_sum, {a.x.cols()});
    is_real(row, "dresidual_sum", a.dresidual_sum);
    TRIREME_CHECK(static_cast<bool>(a.dresidual), "{}: dresidual_sum without dresidual", row);
  }
  const base::TensorSpec partials =
      norm_backward_partials(a.kind, a.x.rows(), a.x.cols(), static_cast<bool>(a.dresidual_sum));
  has(row, "partials", a.partials, partials.shape, partials.dtype);
  send(stream, &Kernels::norm_backward, a);
}

void rope_forward(Stream& stream, const RopeForwardArgs& a) {
  const char* row = "rope_forward";
  const int64_t tokens = a.x.shape[0], heads = a.x.shape[1], head_dim = a.x.shape[2];
  is_real(row, "x", a.x);
  has(row, "y", a.y, a.x.shape, a.x.dtype);
  has(row, "positions", a.positions, {tokens}, DType::i32);
  has(row, "table", a.table, {a.table.rows(), head_dim}, DType::f32);
  TRIREME_CHECK(head_dim % 2 == 0 && a.q_heads > 0 && a.q_heads < heads,
                "rope_forward: {} of {} heads of size {}", a.q_heads, heads, head_dim);
  TRIREME_CHECK(static_cast<bool>(a.q_weight) == static_cast<bool>(a.k_weight) &&
                    static_cast<bool>(a.q_weight) == static_cast<bool>(a.rstd),
                "rope_forward: q_weight, k_weight and rstd come together");
  may_have(row, "q_weight", a.q_weight, {head_dim});
  may_have(row, "k_weight", a.k_weight, {head_dim});
  may_have(row, "rstd", a.rstd, {tokens, heads});
  send(stream, &Kernels::rope_forward, a);
}

void rope_backward(Stream& stream, const RopeBackwardArgs& a) {
  const char* row = "rope_backward";
  const int64_t tokens = a.dy.shape[0], heads = a.dy.shape[1], head_dim = a.dy.shape[2];
  is_real(row, "dy", a.dy);
  has(row, "dx", a.dx, a.dy.shape, a.dy.dtype);
  has(row, "positions", a.positions, {tokens}, DType::i32);
  has(row, "table", a.table, {a.table.rows(), head_dim}, DType::f32);
  if (a.q_weight) {
    has(row, "x", a.x, a.dy.shape, a.dy.dtype);
    has(row, "rstd", a.rstd, {tokens, heads}, DType::f32);
    has(row, "q_weight", a.q_weight, {head_dim});
    has(row, "k_weight", a.k_weight, {head_dim});
    has(row, "dq_weight", a.dq_weight, {head_dim});
    has(row, "dk_weight", a.dk_weight, {head_dim});
    has(row, "partials", a.partials, {norm_partials(tokens), 2 * head_dim}, DType::f32);
  }
  send(stream, &Kernels::rope_backward, a);
}

void attention_forward(Stream& stream, const AttentionForwardArgs& a) {
  const char* row = "attention_forward";
  check_sequences(row, a.q, a.k, a.v, a.seq_offsets, a.max_seq);
  has(row, "o", a.o, a.q.shape, a.q.dtype);
  has(row, "lse", a.lse, {a.q.shape[1], a.q.shape[0]}, DType::f32);
  TRIREME_CHECK(a.lse.is_contiguous(), "{}: lse has rows of {} every {} elements", row,
                a.lse.cols(), a.lse.row_stride);
  send(stream, &Kernels::attention_forward, a);
}

void attention_backward(Stream& stream, const AttentionBackwardArgs& a) {
  const char* row = "attention_backward";
  check_sequences(row, a.q, a.k, a.v, a.seq_offsets, a.max_seq);
  has(row, "o", a.o, a.q.shape, a.q.dtype);
  has(row, "dout", a.dout, a.q.shape, a.q.dtype);
  has(row, "lse", a.lse, {a.q.shape[1], a.q.shape[0]}, DType::f32);
  TRIREME_CHECK(a.lse.is_contiguous(), "{}: lse has rows of {} every {} elements", row,
                a.lse.cols(), a.lse.row_stride);
  has(row, "dq", a.dq, a.q.shape, a.q.dtype);
  has(row, "dk", a.dk, a.k.shape, a.q.dtype);
  has(row, "dv", a.dv, a.v.shape, a.q.dtype);
  send(stream, &Kernels::attention_backward, a);
}

void swiglu_forward(Stream& stream, const SwigluForwardArgs& a) {
  check(a);
  send(stream, &Kernels::swiglu_forward, a);
}

void swiglu_backward(Stream& stream, const SwigluBackwardArgs& a) {
  check(a);
  send(stream, &Kernels::swiglu_backward, a);
}

void gelu_forward(Stream& stream, const GeluForwardArgs& a) {
  is_real("gelu_forward", "x", a.x);
  has("gelu_forward", "y", a.y, a.x.shape, a.x.dtype);
  send(stream, &Kernels::gelu_forward, a);
}

void cross_entropy_stats(Stream& stream, const CrossEntropyStatsArgs& a) {
  const char* row = "cross_entropy_stats";
  is_real(row, "logits", a.logits);
  has(row, "labels", a.labels, {a.logits.rows()}, DType::i32);
  has(row, "stats", a.stats, {a.logits.rows(), 3}, DType::f32);
  send(stream, &Kernels::cross_entropy_stats, a);
}

void cross_entropy_grad(Stream& stream, const CrossEntropyGradArgs& a) {
  const char* row = "cross_entropy_grad";
  is_real(row, "logits", a.logits);
  has(row, "labels", a.labels, {a.logits.rows()}, DType::i32);
  has(row, "stats", a.stats, {a.logits.rows(), 3}, DType::f32);
  holds<StepSums>(row, "sums", a.sums);
  may_have(row, "token_losses", a.token_losses, {a.logits.rows()});
  send(stream, &Kernels::cross_entropy_grad, a);
}

void cross_entropy_merge(Stream& stream, const CrossEntropyMergeArgs& a) {
  const char* row = "cross_entropy_merge";
  const int64_t rows = a.stats.rows();
  has(row, "stats", a.stats, {rows, 3}, DType::f32);
  has(row, "parts", a.parts, {a.parts.rows(), 3}, DType::f32);
  TRIREME_CHECK(
      a.parts.is_contiguous() && rows > 0 && a.parts.rows() > 0 && a.parts.rows() % rows == 0,
      "{}: parts {} for {} rows", row, a.parts.shape.to_string(), rows);
  send(stream, &Kernels::cross_entropy_merge, a);
}

void cross_entropy(Stream& stream, const CrossEntropyArgs& a) {
  const char* row = "cross_entropy";
  is_real(row, "logits", a.logits);
  has(row, "labels", a.labels, {a.logits.rows()}, DType::i32);
  has(row, "stats", a.stats, {a.logits.rows(), 3}, DType::f32);
  holds<StepSums>(row, "sums", a.sums);
  may_have(row, "token_losses", a.token_losses, {a.logits.rows()});
  send(stream, &Kernels::cross_entropy, a);
}

void fill(Stream& stream, const FillArgs& a) {
  TRIREME_CHECK(a.d.dtype == DType::f32 || a.d.dtype == DType::bf16 || a.value == 0,
                "fill: {} with {}", base::name_of(a.d.dtype), a.value);
  send(stream, &Kernels::fill, a);
}

void copy(Stream& stream, const CopyArgs& a) {
  is_real("copy", "x", a.x);
  is_real("copy", "d", a.d);
  has("copy", "d", a.d, a.x.shape);
  if (a.low) {
    const Shape flat = {a.x.elements()};
    has("copy", "x", a.x, flat, DType::f32);
    has("copy", "d", a.d, flat, DType::bf16);
    has("copy", "low", a.low, flat, DType::u16);
  }
  send(stream, &Kernels::copy, a);
}

void accumulate(Stream& stream, const AccumulateArgs& a) {
  is_real("accumulate", "x", a.x);
  is_real("accumulate", "d", a.d);
  has("accumulate", "d", a.d, a.x.shape);
  send(stream, &Kernels::accumulate, a);
}

void init_normal(Stream& stream, const InitNormalArgs& a) {
  is_real("init_normal", "d", a.d);
  has("init_normal", "d", a.d, {a.d.rows(), a.d.cols()});
  send(stream, &Kernels::init_normal, a);
}

void sum_squares(Stream& stream, const SumSquaresArgs& a) {
  is_real("sum_squares", "x", a.x);
  has("sum_squares", "x", a.x, {a.x.elements()});
  holds<StepSums>("sum_squares", "sums", a.sums);
  send(stream, &Kernels::sum_squares, a);
}

void merge_sums(Stream& stream, const MergeSumsArgs& a) {
  has("merge_sums", "parts", a.parts, {a.parts.rows(), spec::step_sums_bytes}, DType::u8);
  TRIREME_CHECK(a.parts.is_contiguous(), "merge_sums: parts with gaps");
  TRIREME_CHECK(a.copies >= 1 && a.parts.rows() % a.copies == 0, "merge_sums: {} parts, {} copies",
                a.parts.rows(), a.copies);
  holds<StepSums>("merge_sums", "sums", a.sums);
  send(stream, &Kernels::merge_sums, a);
}

void step_control(Stream& stream, const StepControlArgs& a) {
  holds<StepSums>("step_control", "sums", a.sums);
  holds<StepState>("step_control", "state", a.state);
  send(stream, &Kernels::step_control, a);
}

void adamw(Stream& stream, const AdamwArgs& a) {
  const char* row = "adamw";
  const Shape flat = {a.param.elements()};
  is_real(row, "param", a.param);
  has(row, "param", a.param, flat);
  TRIREME_CHECK(static_cast<bool>(a.master) == (a.param.dtype != DType::f32),
                "adamw: a master goes with a bf16 parameter, here {}",
                base::name_of(a.param.dtype));
  if (a.master) {
    has(row, "master", a.master, flat);
    TRIREME_CHECK(a.master.dtype == DType::f32 || a.master.dtype == DType::u16,
                  "adamw: master is {}, not f32 or u16", base::name_of(a.master.dtype));
  }
  has(row, "m", a.m, flat, DType::f32);
  has(row, "v", a.v, flat, DType::f32);
  is_real(row, "grad", a.grad);
  has(row, "grad", a.grad, flat);
  holds<StepState>(row, "state", a.state);
  send(stream, &Kernels::adamw, a);
}

}  // namespace trireme::kernels::ops
