// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attention/attention_graph.h"

namespace trireme::kernels::cuda {
namespace {

// B sequences, H query heads, G key/value heads, T tokens of a sequence, K head size.
class Builder {
 public:
  Builder(CudnnGraph& graph, const AttentionKey& key)
      : g_(graph),
        key_(key),
        B_(key.sequences),
        H_(key.heads),
        G_(key.kv_heads),
        T_(key.seq_len),
        K_(key.head_dim) {}

  AttentionTensors forward() {
    AttentionTensors t = common();
    t.v = heads(G_, key_.v_stride);
    const CudnnTensor scores = pairs();
    g_.matmul(t.q, t.k, scores);
    const CudnnTensor scaled = g_.pointwise(CUDNN_POINTWISE_MUL, scores, t.scale);
    const CudnnTensor masked = g_.causal(scaled, t.minus_infinity);
    const CudnnTensor highest = queries(), total = queries();
    g_.reduce(CUDNN_REDUCE_TENSOR_MAX, masked, highest);
    const CudnnTensor e =
        g_.pointwise(CUDNN_POINTWISE_EXP, g_.pointwise(CUDNN_POINTWISE_SUB, masked, highest));
    g_.reduce(CUDNN_REDUCE_TENSOR_ADD, e, total);
    const CudnnTensor log_total = g_.pointwise(CUDNN_POINTWISE_LOG, total);
    g_.pointwise_to(CUDNN_POINTWISE_ADD, highest, &log_total, t.lse);
    const CudnnTensor p = g_.inner(CUDNN_DATA_BFLOAT16, {B_, H_, T_, T_});  // fp32 is not supported
    g_.pointwise_to(CUDNN_POINTWISE_DIV, e, &total, p);
    g_.matmul(p, t.v, t.o);
    return t;
  }

  AttentionTensors backward() {
    AttentionTensors t = common();
    t.v = transposed_heads(key_.v_stride);
    t.dout = heads(H_, key_.dout_stride);
    t.dq = heads(H_, key_.dq_stride);
    t.dk = heads(G_, key_.dk_stride);
    t.dv = heads(G_, key_.dv_stride);
    t.one = g_.scalar();
    add_delta(t);

    const CudnnTensor scores = pairs();
    g_.matmul(t.q, t.k, scores);
    const CudnnTensor scaled = g_.pointwise(CUDNN_POINTWISE_MUL, scores, t.scale);
    const CudnnTensor shifted = g_.pointwise(CUDNN_POINTWISE_SUB, scaled, t.lse);
    const CudnnTensor p = g_.pointwise(CUDNN_POINTWISE_EXP, g_.causal(shifted, t.minus_infinity));
    add_key_gradient(p, t.dout, t.dv);

    const CudnnTensor dp = pairs();
    g_.matmul(t.dout, t.v, dp);
    const CudnnTensor centred = g_.pointwise(CUDNN_POINTWISE_SUB, dp, t.delta);
    const CudnnTensor weighted = g_.pointwise(CUDNN_POINTWISE_MUL, centred, p);
    const CudnnTensor ds = g_.pointwise(CUDNN_POINTWISE_MUL, weighted, t.scale);
    add_key_gradient(ds, t.q, t.dk);
    add_query_gradient(ds, t);
    return t;
  }

 private:
  CudnnTensor heads(int64_t count, int64_t row_stride) {
    return g_.real(
        {CUDNN_DATA_BFLOAT16, {B_, count, T_, K_}, {T_ * row_stride, K_, row_stride, 1}});
  }
  CudnnTensor transposed_heads(int64_t row_stride) {
    return g_.real({CUDNN_DATA_BFLOAT16, {B_, G_, K_, T_}, {T_ * row_stride, K_, 1, row_stride}});
  }
  CudnnTensor pairs() { return g_.inner(CUDNN_DATA_FLOAT, {B_, H_, T_, T_}); }
  CudnnTensor queries() { return g_.inner(CUDNN_DATA_FLOAT, {B_, H_, T_, 1}); }

  AttentionTensors common() {
    AttentionTensors t;
    t.q = heads(H_, key_.q_stride);
    t.k = transposed_heads(key_.k_stride);
    t.o = heads(H_, key_.o_stride);
    t.lse = g_.real({CUDNN_DATA_FLOAT, {B_, H_, T_, 1}, {key_.lse_heads * T_, T_, 1, 1}});
    t.scale = g_.scalar();
    t.minus_infinity = g_.scalar();
    return t;
  }

  // delta = sum over K of dout * o. Without the product by one dq and dk come out wrong.
  void add_delta(AttentionTensors& t) {
    const CudnnTensor product =
        g_.inner({CUDNN_DATA_FLOAT, {B_, H_, T_, K_}, {H_ * T_ * K_, T_ * K_, H_ * K_, 1}});
    g_.pointwise_to(CUDNN_POINTWISE_MUL, t.dout, &t.o, product);
    const CudnnTensor sum = queries();
    g_.reduce(CUDNN_REDUCE_TENSOR_ADD, product, sum);
    t.delta = g_.real({CUDNN_DATA_FLOAT, {B_, H_, T_, 1}, {H_ * T_, T_, 1, 1}});
    g_.pointwise_to(CUDNN_POINTWISE_MUL, sum, &t.one, t.delta);
  }

  // to = pairs^T x queries, summed over the query heads of a key head. These are kept in bf16
  // before the sum: declared as fp32 the result is wrong.
  void add_key_gradient(const CudnnTensor& from, const CudnnTensor& x, const CudnnTensor& to) {
    const CudnnTensor transposed =
        g_.inner({CUDNN_DATA_BFLOAT16, {B_, H_, T_, T_}, {H_ * T_ * T_, T_ * T_, 1, T_}});
    g_.reshape(from, transposed);
    if (H_ == G_) {
      g_.matmul(transposed, x, to);
      return;
    }
    const CudnnTensor all_heads = g_.inner(CUDNN_DATA_BFLOAT16, {B_, H_, T_, K_});
    g_.matmul(transposed, x, all_heads);
    g_.reduce(CUDNN_REDUCE_TENSOR_ADD, all_heads, to);
  }

  void add_query_gradient(const CudnnTensor& ds, AttentionTensors& t) {
    const CudnnTensor keys = g_.inner(
        {CUDNN_DATA_BFLOAT16, {B_, G_, T_, K_}, {T_ * key_.k_stride, K_, key_.k_stride, 1}});
    g_.reshape(t.k, keys);
    if (key_.kind == AttentionKind::backward_deterministic) {
      g_.matmul(ds, keys, t.dq);
      return;
    }
    const Dims4 dims = {B_, H_, T_, K_};
    t.dq_sum = g_.real({CUDNN_DATA_FLOAT, dims, dense_strides(dims)});
    g_.matmul(ds, keys, t.dq_sum);
    g_.pointwise_to(CUDNN_POINTWISE_IDENTITY, t.dq_sum, nullptr, t.dq);
  }

  CudnnGraph& g_;
  const AttentionKey& key_;
  int64_t B_, H_, G_, T_, K_;
};

}  // namespace

AttentionTensors build_attention(CudnnGraph& graph, const AttentionKey& key) {
  Builder builder(graph, key);
  return key.kind == AttentionKind::forward ? builder.forward() : builder.backward();
}

}  // namespace trireme::kernels::cuda
