// SPDX-License-Identifier: Apache-2.0
#include "kernels/ops.h"

#include "base/check.h"
#include "base/hash/content_sum.h"
#include "kernels/op_checks.h"
#include "kernels/step_records.h"
#include "kernels/step_state.h"

namespace trireme::kernels::ops {
namespace {

// Queues two ops, as one fused op if the table has it and it supports these arguments. The observer
// then attributes the time to the first; the second follows it and takes no time.
template <typename First, typename Second>
void send_pair(Stream& stream, bool (*pair)(Stream&, const First&, const Second&),
               void (*Kernels::*first_op)(Stream&, const First&), const First& first,
               void (*Kernels::*second_op)(Stream&, const Second&), const Second& second) {
  announce(stream, first);
  if (pair != nullptr && pair(stream, first, second)) {
    announce(stream, second);
    return;
  }
  (stream.device().kernels().*first_op)(stream, first);
  send(stream, second_op, second);
}

void check_sequences(const char* op, const ConstTensor& q, const ConstTensor& k,
                     const ConstTensor& v, const ConstTensor& seq_offsets, int64_t max_seq) {
  const int64_t tokens = q.shape[0], heads = q.shape[1], head_dim = q.shape[2];
  const int64_t kv_heads = k.shape[1];
  TRIREME_CHECK(kv_heads > 0 && heads % kv_heads == 0, "{}: {} query heads, {} key heads", op,
                heads, kv_heads);
  is_real(op, "q", q);
  has(op, "k", k, {tokens, kv_heads, head_dim}, q.dtype);
  has(op, "v", v, {tokens, kv_heads, head_dim}, q.dtype);
  TRIREME_CHECK(
      seq_offsets.dtype == DType::i32 && seq_offsets.shape.ndim() == 1 && seq_offsets.rows() >= 2,
      "{}: seq_offsets {}", op, seq_offsets.shape.to_string());
  TRIREME_CHECK(max_seq >= 1 && max_seq <= tokens, "{}: max_seq {} of {} tokens", op, max_seq,
                tokens);
}

void is_f32_or(const char* op, const char* name, const ConstTensor& t, DType dtype) {
  TRIREME_CHECK(t.dtype == DType::f32 || t.dtype == dtype, "{}: {} is {}, not f32 or {}", op, name,
                base::name_of(t.dtype), base::name_of(dtype));
}

void has_lse(const char* op, const char* name, const ConstTensor& lse, const Shape& queries) {
  has(op, name, lse, {queries[1], queries[0]}, DType::f32);
  TRIREME_CHECK(lse.is_contiguous(), "{}: {} has rows of {} elements and a row stride of {}", op,
                name, lse.cols(), lse.row_stride);
}

// Chunks cover `rows` rows in ascending order.
void check_chunks(const char* op, std::span<const QueryChunk> chunks, int64_t rows, int64_t keys) {
  int64_t next = 0;
  for (const QueryChunk& c : chunks) {
    TRIREME_CHECK(c.first_row == next && c.rows > 0 && c.first_key >= 0 && c.end_key <= keys,
                  "{}: a chunk of rows {}+{} with keys [{}, {}), expected row {} and {} keys", op,
                  c.first_row, c.rows, c.first_key, c.end_key, next, keys);
    next += c.rows;
  }
  TRIREME_CHECK(chunks.empty() || next == rows, "{}: chunks end at row {} of {}", op, next, rows);
}

// The operands that the forward and backward of attention of ranges have in common.
template <typename Args>
void check_ranges(const char* op, const Args& a) {
  const int64_t rows = a.q.shape[0], heads = a.q.shape[1], head_dim = a.q.shape[2];
  const int64_t keys = a.k.shape[0], kv_heads = a.k.shape[1];
  TRIREME_CHECK(kv_heads > 0 && heads % kv_heads == 0, "{}: {} query heads, {} key heads", op,
                heads, kv_heads);
  is_real(op, "q", a.q);
  has(op, "q", a.q, {rows, heads, head_dim});
  has(op, "k", a.k, {keys, kv_heads, head_dim}, a.q.dtype);
  has(op, "v", a.v, {keys, kv_heads, head_dim}, a.q.dtype);
  has(op, "key_begin", a.key_begin, {rows}, DType::i32);
  has(op, "key_end", a.key_end, {rows}, DType::i32);
  has(op, "o", a.o, a.q.shape);
  is_f32_or(op, "o", a.o, a.q.dtype);
  has_lse(op, "lse", a.lse, a.q.shape);
  check_chunks(op, a.chunks, rows, keys);
  const double all_pairs = static_cast<double>(rows) * static_cast<double>(keys);
  TRIREME_CHECK(a.pairs >= 0 && a.pairs <= all_pairs, "{}: {} pairs of {} rows and {} keys", op,
                a.pairs, rows, keys);
}

// Checks the tensors of an epilogue, and that beta is one that it allows.
struct EpilogueCheck {
  const GemmArgs& a;
  const char* op = "gemm";
  int64_t m = a.d.rows(), n = a.d.cols();

  void operator()(const AddTerms& e) const {
    may_have(op, "bias", e.bias, {n});
    may_have(op, "residual", e.residual, {m, n});
    TRIREME_CHECK(!e.residual || a.beta == 0, "gemm: residual with beta {}", a.beta);
  }
  void operator()(const GeluForward& e) const {
    may_have(op, "bias", e.bias, {n});
    has(op, "GeluForward::input", e.input, {m, n}, a.d.dtype);
    has_no_beta();
  }
  void operator()(const GeluForwardSlope& e) const {
    may_have(op, "bias", e.bias, {n});
    has(op, "GeluForwardSlope::slope", e.slope, {m, n}, a.d.dtype);
    has_no_beta();
  }
  void operator()(const GeluGradient& e) const {
    has(op, "GeluGradient::input", e.input, {m, n});
    may_have(op, "GeluGradient::gelu", e.gelu, {m, n}, e.input.dtype);
    check_sum("GeluGradient::d_sum", e.d_sum, n);
    has_no_beta();
  }
  void operator()(const ScaleBy& e) const {
    has(op, "ScaleBy::factor", e.factor, {m, n});
    check_sum("ScaleBy::d_sum", e.d_sum, n);
    has_no_beta();
  }
  void operator()(const BiasGradient& e) const {
    TRIREME_CHECK(static_cast<bool>(e.sum), "gemm: a bias gradient without its sum");
    check_sum("BiasGradient::sum", e.sum, m);
  }

 private:
  void check_sum(const char* name, const Tensor& sum, int64_t elements) const {
    may_have(op, name, sum, {elements});
    if (sum) is_real(op, name, sum);
  }
  void has_no_beta() const {
    TRIREME_CHECK(a.beta == 0, "gemm: an activation or a factor with beta {}", a.beta);
  }
};

// The operands of a product in 8 bits.
void check_codes(const GemmArgs& a) {
  const char* op = "gemm";
  TRIREME_CHECK(base::is_float8(a.b.dtype), "gemm: a is {}, b is {}", base::name_of(a.a.dtype),
                base::name_of(a.b.dtype));
  TRIREME_CHECK(a.a.dtype != DType::f8e5m2 || a.b.dtype != DType::f8e5m2,
                "gemm: both operands are f8e5m2");
  TRIREME_CHECK(!a.trans_a && a.trans_b, "gemm: 8-bit operands must run along k");
  const bool is_tensor = a.shape_a == ScaleShape::tensor && a.shape_b == ScaleShape::tensor;
  const bool is_block = a.shape_a == ScaleShape::row_128 && a.shape_b != ScaleShape::tensor;
  TRIREME_CHECK(is_tensor || is_block, "gemm: shapes of scales {} and {}",
                static_cast<int>(a.shape_a), static_cast<int>(a.shape_b));
  has(op, "scale_a", a.scale_a, spec::scale_spec(a.shape_a, a.a.rows(), a.a.cols()).shape,
      DType::f32);
  has(op, "scale_b", a.scale_b, spec::scale_spec(a.shape_b, a.b.rows(), a.b.cols()).shape,
      DType::f32);
}

void check(const GemmArgs& a) {
  const char* op = "gemm";
  const int64_t m = a.trans_a ? a.a.cols() : a.a.rows(), k = a.trans_a ? a.a.rows() : a.a.cols();
  const int64_t n = a.trans_b ? a.b.rows() : a.b.cols();
  if (base::is_float8(a.a.dtype)) {
    check_codes(a);
  } else {
    is_real(op, "a", a.a);
    is_real(op, "b", a.b);
    TRIREME_CHECK(!a.scale_a && !a.scale_b, "gemm: scales come with 8-bit operands, a is {}",
                  base::name_of(a.a.dtype));
  }
  is_real(op, "d", a.d);
  TRIREME_CHECK(k == (a.trans_b ? a.b.cols() : a.b.rows()), "gemm: a {}{}, b {}{}",
                a.a.shape.to_string(), a.trans_a ? "^T" : "", a.b.shape.to_string(),
                a.trans_b ? "^T" : "");
  has(op, "d", a.d, {m, n});
  std::visit(EpilogueCheck{a}, a.epilogue);
}

void check(const SwigluForwardArgs& a) {
  is_real("swiglu_forward", "y", a.y);
  has("swiglu_forward", "gate_up", a.gate_up, {a.y.rows(), 2 * a.y.cols()}, a.y.dtype);
  may_have("swiglu_forward", "amax", a.amax, {1}, DType::f32);
}

void check(const SwigluBackwardArgs& a) {
  is_real("swiglu_backward", "dy", a.dy);
  has("swiglu_backward", "gate_up", a.gate_up, {a.dy.rows(), 2 * a.dy.cols()}, a.dy.dtype);
  has("swiglu_backward", "dgate_up", a.dgate_up, a.gate_up.shape, a.dy.dtype);
  may_have("swiglu_backward", "y", a.y, a.dy.shape, a.dy.dtype);
  may_have("swiglu_backward", "amax", a.amax, {1}, DType::f32);
}

void check_follows(const ConstTensor& d, const ConstTensor& input) {
  TRIREME_CHECK(d.data == input.data && d.shape == input.shape &&
                    d.row_stride == input.row_stride && d.dtype == input.dtype,
                "a pair of ops: the input of the second is not the result of the first");
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
  send_pair(stream, stream.device().kernels().gemm_swiglu_forward, &Kernels::gemm, gemm,
            &Kernels::swiglu_forward, swiglu);
}

void gemm_swiglu_backward(Stream& stream, const GemmArgs& gemm, const SwigluBackwardArgs& swiglu) {
  check(gemm);
  check(swiglu);
  check_follows(gemm.d, swiglu.dy);
  send_pair(stream, stream.device().kernels().gemm_swiglu_backward, &Kernels::gemm, gemm,
            &Kernels::swiglu_backward, swiglu);
}

void swiglu_forward_quantize(Stream& stream, const SwigluForwardArgs& swiglu,
                             const QuantizeArgs& quantize) {
  check(swiglu);
  check(quantize);
  check_follows(swiglu.y, quantize.x);
  send_pair(stream, stream.device().kernels().swiglu_forward_quantize, &Kernels::swiglu_forward,
            swiglu, &Kernels::quantize, quantize);
}

void swiglu_backward_quantize(Stream& stream, const SwigluBackwardArgs& swiglu,
                              const QuantizeArgs& quantize) {
  check(swiglu);
  check(quantize);
  check_follows(swiglu.dgate_up, quantize.x);
  send_pair(stream, stream.device().kernels().swiglu_backward_quantize, &Kernels::swiglu_backward,
            swiglu, &Kernels::quantize, quantize);
}

void embedding_forward(Stream& stream, const EmbeddingForwardArgs& a) {
  const char* op = "embedding_forward";
  const int64_t tokens = a.y.rows(), width = a.y.cols();
  has(op, "tokens", a.tokens, {tokens}, DType::i32);
  has(op, "table", a.table, {a.table.rows(), width}, a.y.dtype);
  if (a.position_table) {
    has(op, "positions", a.positions, {tokens}, DType::i32);
    has(op, "position_table", a.position_table, {a.position_table.rows(), width}, a.y.dtype);
  }
  is_real(op, "y", a.y);
  send(stream, &Kernels::embedding_forward, a);
}

void embedding_backward(Stream& stream, const EmbeddingBackwardArgs& a) {
  const char* op = "embedding_backward";
  const int64_t tokens = a.dy.rows(), width = a.dy.cols();
  has(op, "tokens", a.tokens, {tokens}, DType::i32);
  has(op, "dtable", a.dtable, {a.dtable.rows(), width});
  is_real(op, "dtable", a.dtable);
  if (a.dposition_table) {
    has(op, "positions", a.positions, {tokens}, DType::i32);
    has(op, "dposition_table", a.dposition_table, {a.dposition_table.rows(), width});
    is_real(op, "dposition_table", a.dposition_table);
  }
  send(stream, &Kernels::embedding_backward, a);
}

void norm_forward(Stream& stream, const NormForwardArgs& a) {
  const char* op = "norm_forward";
  const Shape shape = {a.x.rows(), a.x.cols()};
  is_real(op, "x", a.x);
  may_have(op, "residual", a.residual, shape);
  TRIREME_CHECK(static_cast<bool>(a.residual) == static_cast<bool>(a.sum),
                "norm_forward: residual and sum come together");
  may_have(op, "sum", a.sum, shape);
  has(op, "weight", a.weight, {a.x.cols()});
  may_have(op, "bias", a.bias, {a.x.cols()});
  has(op, "y", a.y, shape, a.x.dtype);
  has(op, "stats", a.stats, {a.x.rows(), norm_stats(a.kind)}, DType::f32);
  may_have(op, "amax", a.amax, {1}, DType::f32);
  send(stream, &Kernels::norm_forward, a);
}

void norm_backward(Stream& stream, const NormBackwardArgs& a) {
  const char* op = "norm_backward";
  const Shape shape = {a.x.rows(), a.x.cols()};
  is_real(op, "x", a.x);
  has(op, "dy", a.dy, shape, a.x.dtype);
  has(op, "stats", a.stats, {a.x.rows(), norm_stats(a.kind)}, DType::f32);
  has(op, "weight", a.weight, {a.x.cols()});
  may_have(op, "dresidual", a.dresidual, shape);
  has(op, "dx", a.dx, shape, a.x.dtype);
  has(op, "dweight", a.dweight, {a.x.cols()});
  may_have(op, "dbias", a.dbias, {a.x.cols()});
  may_have(op, "bias", a.bias, {a.x.cols()});
  may_have(op, "y", a.y, shape, a.x.dtype);
  if (a.dresidual_sum) {
    has(op, "dresidual_sum", a.dresidual_sum, {a.x.cols()});
    is_real(op, "dresidual_sum", a.dresidual_sum);
    TRIREME_CHECK(static_cast<bool>(a.dresidual), "{}: dresidual_sum without dresidual", op);
  }
  const base::TensorSpec partials =
      norm_backward_partials(a.kind, a.x.rows(), a.x.cols(), static_cast<bool>(a.dresidual_sum));
  has(op, "partials", a.partials, partials.shape, partials.dtype);
  may_have(op, "amax", a.amax, {1}, DType::f32);
  send(stream, &Kernels::norm_backward, a);
}

void rope_forward(Stream& stream, const RopeForwardArgs& a) {
  const char* op = "rope_forward";
  const int64_t tokens = a.x.shape[0], heads = a.x.shape[1], head_dim = a.x.shape[2];
  is_real(op, "x", a.x);
  has(op, "y", a.y, a.x.shape, a.x.dtype);
  has(op, "positions", a.positions, {tokens}, DType::i32);
  has(op, "table", a.table, {a.table.rows(), head_dim}, DType::f32);
  TRIREME_CHECK(head_dim % 2 == 0 && a.q_heads > 0 && a.q_heads < heads,
                "rope_forward: {} of {} heads of size {}", a.q_heads, heads, head_dim);
  TRIREME_CHECK(static_cast<bool>(a.q_weight) == static_cast<bool>(a.k_weight) &&
                    static_cast<bool>(a.q_weight) == static_cast<bool>(a.rstd),
                "rope_forward: q_weight, k_weight and rstd come together");
  may_have(op, "q_weight", a.q_weight, {head_dim});
  may_have(op, "k_weight", a.k_weight, {head_dim});
  may_have(op, "rstd", a.rstd, {tokens, heads});
  send(stream, &Kernels::rope_forward, a);
}

void rope_backward(Stream& stream, const RopeBackwardArgs& a) {
  const char* op = "rope_backward";
  const int64_t tokens = a.dy.shape[0], heads = a.dy.shape[1], head_dim = a.dy.shape[2];
  is_real(op, "dy", a.dy);
  has(op, "dx", a.dx, a.dy.shape, a.dy.dtype);
  has(op, "positions", a.positions, {tokens}, DType::i32);
  has(op, "table", a.table, {a.table.rows(), head_dim}, DType::f32);
  if (a.q_weight) {
    has(op, "x", a.x, a.dy.shape, a.dy.dtype);
    has(op, "rstd", a.rstd, {tokens, heads}, DType::f32);
    has(op, "q_weight", a.q_weight, {head_dim});
    has(op, "k_weight", a.k_weight, {head_dim});
    has(op, "dq_weight", a.dq_weight, {head_dim});
    has(op, "dk_weight", a.dk_weight, {head_dim});
    has(op, "partials", a.partials, {norm_partials(tokens), 2 * head_dim}, DType::f32);
  }
  send(stream, &Kernels::rope_backward, a);
}

void attention_forward(Stream& stream, const AttentionForwardArgs& a) {
  const char* op = "attention_forward";
  check_sequences(op, a.q, a.k, a.v, a.seq_offsets, a.max_seq);
  has(op, "o", a.o, a.q.shape, a.q.dtype);
  has(op, "lse", a.lse, {a.q.shape[1], a.q.shape[0]}, DType::f32);
  TRIREME_CHECK(a.lse.is_contiguous(), "{}: lse has rows of {} elements and a row stride of {}", op,
                a.lse.cols(), a.lse.row_stride);
  send(stream, &Kernels::attention_forward, a);
}

void attention_backward(Stream& stream, const AttentionBackwardArgs& a) {
  const char* op = "attention_backward";
  check_sequences(op, a.q, a.k, a.v, a.seq_offsets, a.max_seq);
  has(op, "o", a.o, a.q.shape, a.q.dtype);
  has(op, "dout", a.dout, a.q.shape, a.q.dtype);
  has(op, "lse", a.lse, {a.q.shape[1], a.q.shape[0]}, DType::f32);
  TRIREME_CHECK(a.lse.is_contiguous(), "{}: lse has rows of {} elements and a row stride of {}", op,
                a.lse.cols(), a.lse.row_stride);
  has(op, "dq", a.dq, a.q.shape, a.q.dtype);
  has(op, "dk", a.dk, a.k.shape, a.q.dtype);
  has(op, "dv", a.dv, a.v.shape, a.q.dtype);
  send(stream, &Kernels::attention_backward, a);
}

void attention_ranges_forward(Stream& stream, const AttentionRangesForwardArgs& a) {
  check_ranges("attention_ranges_forward", a);
  send(stream, &Kernels::attention_ranges_forward, a);
}

void attention_ranges_backward(Stream& stream, const AttentionRangesBackwardArgs& a) {
  const char* op = "attention_ranges_backward";
  check_ranges(op, a);
  has(op, "dout", a.dout, a.q.shape);
  is_f32_or(op, "dout", a.dout, a.q.dtype);
  has(op, "dq", a.dq, a.q.shape);
  is_f32_or(op, "dq", a.dq, a.accumulates ? DType::f32 : a.q.dtype);
  has(op, "dk", a.dk, a.k.shape);
  is_f32_or(op, "dk", a.dk, a.accumulates ? DType::f32 : a.q.dtype);
  has(op, "dv", a.dv, a.v.shape, a.dk.dtype);
  send(stream, &Kernels::attention_ranges_backward, a);
}

void attention_merge(Stream& stream, const AttentionMergeArgs& a) {
  const char* op = "attention_merge";
  is_real(op, "part", a.part);
  has(op, "part", a.part, {a.part.shape[0], a.part.shape[1], a.part.shape[2]});
  has(op, "o", a.o, a.part.shape, DType::f32);
  has_lse(op, "part_lse", a.part_lse, a.part.shape);
  has_lse(op, "lse", a.lse, a.part.shape);
  send(stream, &Kernels::attention_merge, a);
}

void gather_rows(Stream& stream, const GatherRowsArgs& a) {
  const char* op = "gather_rows";
  is_real(op, "x", a.x);
  has(op, "x", a.x, {a.x.rows(), a.x.cols()});
  has(op, "rows", a.rows, {a.d.rows()}, DType::i32);
  has(op, "d", a.d, {a.d.rows(), a.x.cols()}, a.x.dtype);
  send(stream, &Kernels::gather_rows, a);
}

void row_product(Stream& stream, const RowProductArgs& a) {
  const char* op = "row_product";
  const int64_t rows = a.x.rows(), depth = a.x.cols(), cols = a.weight.rows();
  is_real(op, "x", a.x);
  has(op, "weight", a.weight, {cols, depth}, a.x.dtype);
  may_have(op, "bias", a.bias, {cols}, a.x.dtype);
  may_have(op, "residual", a.residual, {rows, cols}, a.y.dtype);
  has(op, "y", a.y, {rows, cols});
  TRIREME_CHECK(a.y.dtype == a.x.dtype || a.y.dtype == DType::f32,
                "row_product: y is {}, not f32 or the type of x", base::name_of(a.y.dtype));
  send(stream, &Kernels::row_product, a);
}

void scatter_rows(Stream& stream, const ScatterRowsArgs& a) {
  const char* op = "scatter_rows";
  is_real(op, "x", a.x);
  has(op, "x", a.x, {a.x.rows(), a.x.cols()});
  has(op, "rows", a.rows, {a.x.rows()}, DType::i32);
  has(op, "d", a.d, {a.d.rows(), a.x.cols()}, a.x.dtype);
  send(stream, &Kernels::scatter_rows, a);
}

void attention_cached(Stream& stream, const AttentionCachedArgs& a) {
  const char* op = "attention_cached";
  const int64_t rows = a.q.shape[0], heads = a.q.shape[1], head_dim = a.q.shape[2];
  const int64_t kv_heads = a.cache.shape[1] / 2;
  is_real(op, "q", a.q);
  has(op, "cache", a.cache, {a.cache.rows(), 2 * kv_heads, head_dim}, a.q.dtype);
  TRIREME_CHECK(kv_heads > 0 && heads % kv_heads == 0, "{}: {} query heads, {} key heads", op,
                heads, kv_heads);
  has(op, "first_rows", a.first_rows, {rows}, DType::i32);
  has(op, "lengths", a.lengths, {rows}, DType::i32);
  TRIREME_CHECK(a.max_length >= 1 && a.max_length <= a.cache.rows(), "{}: max_length {} of {} rows",
                op, a.max_length, a.cache.rows());
  has(op, "o", a.o, a.q.shape, a.q.dtype);
  send(stream, &Kernels::attention_cached, a);
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
  may_have("gelu_forward", "amax", a.amax, {1}, DType::f32);
  send(stream, &Kernels::gelu_forward, a);
}

void clamp(Stream& stream, const ClampArgs& a) {
  const char* op = "clamp";
  is_real(op, "x", a.x);
  may_have(op, "dy", a.dy, a.x.shape, a.x.dtype);
  has(op, "y", a.y, a.x.shape, a.x.dtype);
  TRIREME_CHECK(a.limit > 0, "{}: a limit of {}", op, a.limit);
  send(stream, &Kernels::clamp, a);
}

void cross_entropy_stats(Stream& stream, const CrossEntropyStatsArgs& a) {
  const char* op = "cross_entropy_stats";
  is_real(op, "logits", a.logits);
  has(op, "labels", a.labels, {a.logits.rows()}, DType::i32);
  has(op, "stats", a.stats, {a.logits.rows(), 3}, DType::f32);
  send(stream, &Kernels::cross_entropy_stats, a);
}

void cross_entropy_grad(Stream& stream, const CrossEntropyGradArgs& a) {
  const char* op = "cross_entropy_grad";
  is_real(op, "logits", a.logits);
  has(op, "labels", a.labels, {a.logits.rows()}, DType::i32);
  has(op, "stats", a.stats, {a.logits.rows(), 3}, DType::f32);
  holds<StepSums>(op, "sums", a.sums);
  may_have(op, "token_losses", a.token_losses, {a.logits.rows()});
  may_have(op, "scale", a.scale, {1}, DType::f32);
  send(stream, &Kernels::cross_entropy_grad, a);
}

void cross_entropy_merge(Stream& stream, const CrossEntropyMergeArgs& a) {
  const char* op = "cross_entropy_merge";
  const int64_t rows = a.stats.rows();
  has(op, "stats", a.stats, {rows, 3}, DType::f32);
  has(op, "parts", a.parts, {a.parts.rows(), 3}, DType::f32);
  TRIREME_CHECK(
      a.parts.is_contiguous() && rows > 0 && a.parts.rows() > 0 && a.parts.rows() % rows == 0,
      "{}: parts {} for {} rows", op, a.parts.shape.to_string(), rows);
  send(stream, &Kernels::cross_entropy_merge, a);
}

void cross_entropy(Stream& stream, const CrossEntropyArgs& a) {
  const char* op = "cross_entropy";
  is_real(op, "logits", a.logits);
  has(op, "labels", a.labels, {a.logits.rows()}, DType::i32);
  has(op, "stats", a.stats, {a.logits.rows(), 3}, DType::f32);
  holds<StepSums>(op, "sums", a.sums);
  may_have(op, "token_losses", a.token_losses, {a.logits.rows()});
  may_have(op, "scale", a.scale, {1}, DType::f32);
  send(stream, &Kernels::cross_entropy, a);
}

void fill(Stream& stream, const FillArgs& a) {
  TRIREME_CHECK(base::is_real(a.d.dtype) || a.value == 0, "fill: {} with {}",
                base::name_of(a.d.dtype), a.value);
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
  if (a.is_max) {
    has("accumulate", "x", a.x, a.x.shape, DType::f32);
    has("accumulate", "d", a.d, a.x.shape, DType::f32);
  }
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
  holds<WideSum>("sum_squares", "squares", a.squares);
  send(stream, &Kernels::sum_squares, a);
}

void add_layers(Stream& stream, const AddLayersArgs& a) {
  const char* op = "add_layers";
  has(op, "squares", a.squares, {a.squares.rows(), spec::wide_sum_bytes}, DType::u8);
  has(op, "record", a.record, {spec::step_record_bytes(a.squares.rows() - 1)}, DType::u8);
  TRIREME_CHECK(a.squares.is_contiguous(), "{}: squares with gaps", op);
  send(stream, &Kernels::add_layers, a);
}

namespace {

// Records of ranks, or anything else that begins with StepSums.
void are_parts(const char* op, const ConstTensor& parts, int64_t copies, int64_t slices) {
  has(op, "parts", parts, {parts.rows(), parts.cols()}, DType::u8);
  TRIREME_CHECK(parts.is_contiguous(), "{}: parts with gaps", op);
  TRIREME_CHECK(
      parts.cols() >= spec::step_sums_bytes && parts.cols() % int64_t{alignof(StepSums)} == 0,
      "{}: parts of {} bytes", op, parts.cols());
  TRIREME_CHECK(copies >= 1 && slices >= 1 && parts.rows() % (copies * slices) == 0,
                "{}: {} parts, {} copies, {} slices", op, parts.rows(), copies, slices);
}

}  // namespace

void merge_sums(Stream& stream, const MergeSumsArgs& a) {
  are_parts("merge_sums", a.parts, a.copies, a.slices);
  holds<StepSums>("merge_sums", "sums", a.sums);
  send(stream, &Kernels::merge_sums, a);
}

void merge_records(Stream& stream, const MergeRecordsArgs& a) {
  const char* op = "merge_records";
  are_parts(op, a.parts, a.copies, a.slices);
  const int64_t layers = layers_of_record(a.parts.cols());
  has(op, "parts", a.parts, {a.parts.rows(), spec::step_record_bytes(layers)}, DType::u8);
  const int64_t data_ranks = a.parts.rows() / (a.copies * a.slices);
  has(op, "totals", a.totals, {spec::step_totals_bytes(layers, data_ranks)}, DType::u8);
  send(stream, &Kernels::merge_records, a);
}

void step_control(Stream& stream, const StepControlArgs& a) {
  holds<StepSums>("step_control", "sums", a.sums);
  holds<StepState>("step_control", "state", a.state);
  if (a.abort_flag) has("step_control", "abort_flag", a.abort_flag, {1}, DType::i32);
  send(stream, &Kernels::step_control, a);
}

void gate(Stream& stream, const GateArgs& a) {
  has("gate", "flag", a.flag, {1}, DType::i32);
  has("gate", "cell", a.cell, {1}, DType::i32);
  TRIREME_CHECK(a.threshold > 0 && a.value > 0, "gate: threshold {}, value {}", a.threshold,
                a.value);
  send(stream, &Kernels::gate, a);
}

namespace {

void are_weights(const char* op, const Tensor& param, const Tensor& master) {
  const Shape flat = {param.elements()};
  is_real(op, "param", param);
  has(op, "param", param, flat);
  TRIREME_CHECK(static_cast<bool>(master) == (param.dtype != DType::f32),
                "{}: a master goes with a bf16 or f16 parameter, here {}", op,
                base::name_of(param.dtype));
  if (master) {
    has(op, "master", master, flat);
    TRIREME_CHECK(master.dtype == DType::f32 || master.dtype == DType::u16,
                  "{}: master is {}, not f32 or u16", op, base::name_of(master.dtype));
    TRIREME_CHECK(master.dtype == DType::f32 || param.dtype == DType::bf16,
                  "{}: a u16 master with a parameter of {}, not bf16", op,
                  base::name_of(param.dtype));
  }
}

void are_changes(const char* op, const ChangeSquares& changes, int64_t elements) {
  if (!changes.sum) return;
  holds<WideSum>(op, "changes", changes.sum);
  TRIREME_CHECK(0 <= changes.begin && changes.begin <= changes.end && changes.end <= elements,
                "{}: changes of the elements {} to {} of {}", op, changes.begin, changes.end,
                elements);
}

}  // namespace

void adamw(Stream& stream, const AdamwArgs& a) {
  const char* op = "adamw";
  const Shape flat = {a.param.elements()};
  are_weights(op, a.param, a.master);
  has(op, "m", a.m, flat, DType::f32);
  has(op, "v", a.v, flat, DType::f32);
  is_real(op, "grad", a.grad);
  has(op, "grad", a.grad, flat);
  holds<StepState>(op, "state", a.state);
  are_changes(op, a.changes, a.param.elements());
  for (const int64_t border : {a.changes.begin, a.changes.end}) {
    TRIREME_CHECK(border % WideSum::block_elements == 0 || border == a.param.elements(),
                  "{}: changes from or to element {}", op, border);
  }
  send(stream, &Kernels::adamw, a);
}

void momentum(Stream& stream, const MomentumArgs& a) {
  const char* op = "momentum";
  const Shape flat = {a.m.elements()};
  has(op, "m", a.m, flat, DType::f32);
  has(op, "u", a.u, flat, DType::f32);
  is_real(op, "grad", a.grad);
  has(op, "grad", a.grad, flat);
  holds<StepState>(op, "state", a.state);
  send(stream, &Kernels::momentum, a);
}

void normalize(Stream& stream, const NormalizeArgs& a) {
  has("normalize", "d", a.d, {a.d.elements()}, DType::f32);
  holds<WideSum>("normalize", "squares", a.squares);
  send(stream, &Kernels::normalize, a);
}

void muon(Stream& stream, const MuonArgs& a) {
  are_weights("muon", a.param, a.master);
  has("muon", "direction", a.direction, {a.param.elements()}, DType::f32);
  holds<StepState>("muon", "state", a.state);
  are_changes("muon", a.changes, a.param.elements());
  send(stream, &Kernels::muon, a);
}

void content_sum(Stream& stream, const ContentSumArgs& a) {
  for (const ContentRange& range : a.ranges) {
    TRIREME_CHECK(
        range.bytes.is_contiguous() && reinterpret_cast<uintptr_t>(range.bytes.data) % 16 == 0,
        "content_sum: {} {} at {} with a row stride of {}", base::name_of(range.bytes.dtype),
        range.bytes.shape.to_string(), static_cast<const void*>(range.bytes.data),
        range.bytes.row_stride);
    TRIREME_CHECK(range.offset >= 0 && range.offset % base::content_block_bytes == 0,
                  "content_sum: a range at byte {}", range.offset);
  }
  holds<base::ContentSum>("content_sum", "sum", a.sum);
  send(stream, &Kernels::content_sum, a);
}

}  // namespace trireme::kernels::ops
