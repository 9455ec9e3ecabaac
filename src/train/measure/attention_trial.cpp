// SPDX-License-Identifier: Apache-2.0
#include "train/measure/attention_trial.h"

#include <cmath>
#include <span>

namespace trireme::train {
namespace {

using base::DType;
using base::TensorSpec;
using device::Tensor;

TensorSpec packed_spec(const spec::AttentionShape& s) {
  return {{s.tokens(), (s.heads + 2 * s.kv_heads) * s.head_dim}, s.dtype};
}
TensorSpec rows_spec(const spec::AttentionShape& s) {
  return {{s.tokens(), s.heads, s.head_dim}, s.dtype};
}
TensorSpec lse_spec(const spec::AttentionShape& s) { return {{s.heads, s.tokens()}, DType::f32}; }
TensorSpec offsets_spec(const spec::AttentionShape& s) { return {{s.sequences + 1}, DType::i32}; }

}  // namespace

std::vector<TensorSpec> attention_tensors(const spec::AttentionShape& shape,
                                          const spec::Backend& backend) {
  return {packed_spec(shape),
          packed_spec(shape),
          rows_spec(shape),
          rows_spec(shape),
          lse_spec(shape),
          offsets_spec(shape),
          spec::attention_workspace(backend, shape)};
}

AttentionTrial attention_trial(const spec::AttentionShape& shape, const spec::Backend& backend,
                               device::Stream& stream,
                               const std::function<Tensor(const TensorSpec&)>& tensor) {
  std::vector<int32_t> starts;
  for (int64_t i = 0; i <= shape.sequences; ++i) {
    starts.push_back(static_cast<int32_t>(i * shape.seq_len));
  }
  const Tensor offsets = tensor(offsets_spec(shape));
  stream.upload(offsets, std::as_bytes(std::span(starts)));
  stream.synchronize();
  const Tensor qkv = tensor(packed_spec(shape)), dqkv = tensor(packed_spec(shape));
  const auto part = [&shape](const Tensor& whole, int64_t first, int64_t heads) {
    return whole.slice_heads(first * shape.head_dim, heads, shape.head_dim);
  };
  const TensorSpec scratch = spec::attention_workspace(backend, shape);
  const kernels::AttentionForwardArgs forward{
      .q = part(qkv, 0, shape.heads),
      .k = part(qkv, shape.heads, shape.kv_heads),
      .v = part(qkv, shape.heads + shape.kv_heads, shape.kv_heads),
      .seq_offsets = offsets,
      .sequences = shape.sequences,
      .max_seq = shape.seq_len,
      .has_documents = false,
      .scale = 1.0F / std::sqrt(static_cast<float>(shape.head_dim)),
      .o = tensor(rows_spec(shape)),
      .lse = tensor(lse_spec(shape))};
  return {forward,
          {.q = forward.q,
           .k = forward.k,
           .v = forward.v,
           .o = forward.o,
           .dout = tensor(rows_spec(shape)),
           .lse = forward.lse,
           .seq_offsets = offsets,
           .sequences = shape.sequences,
           .max_seq = shape.seq_len,
           .has_documents = false,
           .scale = forward.scale,
           .dq = part(dqkv, 0, shape.heads),
           .dk = part(dqkv, shape.heads, shape.kv_heads),
           .dv = part(dqkv, shape.heads + shape.kv_heads, shape.kv_heads),
           .workspace = scratch.shape.ndim() > 0 ? tensor(scratch) : Tensor{}}};
}

}  // namespace trireme::train
