// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/cudnn/attention_graph.h"

#include <deque>

namespace trireme::kernels::cuda {
namespace {

// B sequences, H query heads, G key/value heads, T queries and N keys of a sequence, K head size.
class Builder {
 public:
  Builder(CudnnGraph& graph, const AttentionKey& key)
      : g_(graph),
        key_(key),
        B_(key.sequences),
        H_(key.heads),
        G_(key.kv_heads),
        T_(key.seq_len),
        N_(key.keys),
        K_(key.head_dim),
        half_(key.is_f16 ? CUDNN_DATA_HALF : CUDNN_DATA_BFLOAT16) {}

  AttentionTensors forward() {
    AttentionTensors t = common();
    t.v = key_heads(key_.v_stride);
    const CudnnTensor scores = pairs();
    g_.matmul(t.q, t.k, scores, {.m = queries_limit_, .n = keys_limit_});
    const CudnnTensor masked = mask(g_.pointwise(CUDNN_POINTWISE_MUL, scores, t.scale), t);
    const CudnnTensor highest = queries(), total = queries();
    g_.reduce(CUDNN_REDUCE_TENSOR_MAX, masked, highest);
    const CudnnTensor e =
        g_.pointwise(CUDNN_POINTWISE_EXP, g_.pointwise(CUDNN_POINTWISE_SUB, masked, highest));
    g_.reduce(CUDNN_REDUCE_TENSOR_ADD, e, total);
    const CudnnTensor log_total = g_.pointwise(CUDNN_POINTWISE_LOG, total);
    g_.pointwise_to(CUDNN_POINTWISE_ADD, highest, &log_total, t.lse);
    const CudnnTensor p = g_.inner(half_, {B_, H_, T_, N_});  // fp32 is not supported
    g_.pointwise_to(CUDNN_POINTWISE_DIV, e, &total, p);
    g_.matmul(p, t.v, t.o, {.m = queries_limit_, .k = keys_limit_});
    return t;
  }

  AttentionTensors backward() {
    AttentionTensors t = common();
    t.v = transposed_heads(key_.v_stride);
    t.dout = query_heads(key_.dout_stride);
    t.dq = query_heads(key_.dq_stride);
    t.dk = key_heads(key_.dk_stride);
    t.dv = key_heads(key_.dv_stride);
    t.one = g_.scalar();
    add_delta(t);

    const CudnnTensor scores = pairs();
    g_.matmul(t.q, t.k, scores, {.m = queries_limit_, .n = keys_limit_});
    const CudnnTensor scaled = g_.pointwise(CUDNN_POINTWISE_MUL, scores, t.scale);
    const CudnnTensor shifted = g_.pointwise(CUDNN_POINTWISE_SUB, scaled, t.lse);
    const CudnnTensor p = g_.pointwise(CUDNN_POINTWISE_EXP, mask(shifted, t));
    add_key_gradient(p, t.dout, t.dv);

    const CudnnTensor dp = pairs();
    g_.matmul(t.dout, t.v, dp, {.m = queries_limit_, .n = keys_limit_});
    const CudnnTensor centred = g_.pointwise(CUDNN_POINTWISE_SUB, dp, t.delta);
    const CudnnTensor weighted = g_.pointwise(CUDNN_POINTWISE_MUL, centred, p);
    const CudnnTensor ds = g_.pointwise(CUDNN_POINTWISE_MUL, weighted, t.scale);
    add_key_gradient(ds, t.q, t.dk);
    add_query_gradient(ds, t);
    return t;
  }

  std::vector<AttentionOffsets> offsets() const { return {offsets_.begin(), offsets_.end()}; }

 private:
  CudnnTensor query_heads(int64_t row_stride) {
    return g_.real({half_,
                    {B_, H_, T_, K_},
                    {T_ * row_stride, key_.head_step * K_, row_stride, 1},
                    offsets(row_stride)});
  }
  CudnnTensor key_heads(int64_t row_stride) {
    return g_.real(
        {half_, {B_, G_, N_, K_}, {N_ * row_stride, K_, row_stride, 1}, offsets(row_stride)});
  }
  CudnnTensor transposed_heads(int64_t row_stride) {
    return g_.real(
        {half_, {B_, G_, K_, N_}, {N_ * row_stride, K_, 1, row_stride}, offsets(row_stride)});
  }
  CudnnTensor pairs() { return g_.inner(CUDNN_DATA_FLOAT, {B_, H_, T_, N_}); }
  CudnnTensor queries() { return g_.inner(CUDNN_DATA_FLOAT, {B_, H_, T_, 1}); }

  // The begins of documents for a tensor with this row stride; null if there are none.
  const CudnnTensor* offsets(int64_t row_stride) {
    if (!key_.is_ragged) return nullptr;
    for (const AttentionOffsets& known : offsets_) {
      if (known.stride == row_stride) return &known.tensor;
    }
    offsets_.push_back({row_stride, g_.per_batch(CUDNN_DATA_INT64, B_ + 1)});
    return &offsets_.back().tensor;
  }

  AttentionTensors common() {
    AttentionTensors t;
    t.q = query_heads(key_.q_stride);
    t.k = transposed_heads(key_.k_stride);
    t.o = query_heads(key_.o_stride);
    t.lse = lse_like(key_.lse_sequence_stride);
    t.scale = g_.scalar();
    if (key_.is_causal || key_.is_ragged) t.minus_infinity = g_.scalar();  // others are refused
    if (key_.is_causal && N_ != T_) {
      t.query_count = g_.scalar(CUDNN_DATA_INT32);
      t.key_count = g_.scalar(CUDNN_DATA_INT32);
    }
    if (key_.is_ragged) {
      t.query_lengths = query_lengths_ = g_.per_batch(CUDNN_DATA_INT32, B_);
      t.key_lengths = key_lengths_ = g_.per_batch(CUDNN_DATA_INT32, B_);
      queries_limit_ = &query_lengths_;
      keys_limit_ = &key_lengths_;
    }
    return t;
  }

  CudnnTensor lse_like(int64_t sequence_stride) {
    return g_.real({CUDNN_DATA_FLOAT,
                    {B_, H_, T_, 1},
                    {sequence_stride, key_.lse_head_stride, key_.lse_stride, 1},
                    offsets(key_.lse_stride)});
  }

  CudnnTensor mask(const CudnnTensor& scores, const AttentionTensors& t) {
    CudnnTensor masked = scores;
    if (key_.is_ragged) {
      masked = g_.within(masked, query_lengths_, key_lengths_, t.minus_infinity);
    }
    if (!key_.is_causal) return masked;
    if (N_ == T_) return g_.causal(masked, t.minus_infinity);
    return g_.causal(masked, t.minus_infinity, &t.key_count, &t.query_count);
  }

  // delta = sum over K of dout * o. Without the product by one dq and dk come out wrong.
  void add_delta(AttentionTensors& t) {
    const CudnnTensor product =
        g_.inner({CUDNN_DATA_FLOAT, {B_, H_, T_, K_}, {H_ * T_ * K_, T_ * K_, H_ * K_, 1}});
    g_.pointwise_to(CUDNN_POINTWISE_MUL, t.dout, &t.o, product);
    const CudnnTensor sum = queries();
    g_.reduce(CUDNN_REDUCE_TENSOR_ADD, product, sum);
    t.delta = key_.is_ragged ? lse_like(key_.lse_sequence_stride)
                             : g_.real({CUDNN_DATA_FLOAT, {B_, H_, T_, 1}, {H_ * T_, T_, 1, 1}});
    g_.pointwise_to(CUDNN_POINTWISE_MUL, sum, &t.one, t.delta);
  }

  // to = pairs^T x queries, summed over the query heads of a key head. These are kept in 16
  // bits before the sum: declared as fp32 the result is wrong.
  void add_key_gradient(const CudnnTensor& from, const CudnnTensor& x, const CudnnTensor& to) {
    const CudnnTensor transposed =
        g_.inner({half_, {B_, H_, N_, T_}, {H_ * T_ * N_, T_ * N_, 1, N_}});
    g_.reshape(from, transposed);
    const CudnnLimits limits = {.m = keys_limit_, .k = queries_limit_};
    if (H_ == G_) {
      g_.matmul(transposed, x, to, limits);
      return;
    }
    const Dims4 dims = {B_, H_, N_, K_};
    const CudnnTensor all_heads = g_.inner(half_, dims);
    g_.matmul(transposed, x, all_heads, limits);
    g_.reduce(CUDNN_REDUCE_TENSOR_ADD, all_heads, to);
  }

  void add_query_gradient(const CudnnTensor& ds, AttentionTensors& t) {
    const CudnnTensor keys = g_.inner({half_,
                                       {B_, G_, N_, K_},
                                       {N_ * key_.k_stride, K_, key_.k_stride, 1},
                                       offsets(key_.k_stride)});
    g_.reshape(t.k, keys);
    const CudnnLimits limits = {.m = queries_limit_, .k = keys_limit_};
    if (key_.kind == AttentionKind::backward_deterministic) {
      g_.matmul(ds, keys, t.dq, limits);
      return;
    }
    const Dims4 dims = {B_, H_, T_, K_};
    if (key_.is_ragged) {
      // Declared otherwise than dq, it is read and written at wrong places.
      t.dq_sum = g_.real({CUDNN_DATA_FLOAT, dims, t.dq.strides, offsets(key_.dq_stride)});
    } else {
      t.dq_sum = g_.real({CUDNN_DATA_FLOAT, dims, dense_strides(dims)});
    }
    g_.matmul(ds, keys, t.dq_sum, limits);
    g_.pointwise_to(CUDNN_POINTWISE_IDENTITY, t.dq_sum, nullptr, t.dq);
  }

  CudnnGraph& g_;
  const AttentionKey& key_;
  int64_t B_, H_, G_, T_, N_, K_;
  cudnnDataType_t half_;
  CudnnTensor query_lengths_, key_lengths_;
  const CudnnTensor *queries_limit_ = nullptr, *keys_limit_ = nullptr;  // unless null, of documents
  std::deque<AttentionOffsets> offsets_;  // a deque, so that pointers stay valid
};

}  // namespace

AttentionTensors build_attention(CudnnGraph& graph, const AttentionKey& key) {
  Builder builder(graph, key);
  AttentionTensors tensors =
      key.kind == AttentionKind::forward ? builder.forward() : builder.backward();
  tensors.offsets = builder.offsets();
  return tensors;
}

}  // namespace trireme::kernels::cuda
