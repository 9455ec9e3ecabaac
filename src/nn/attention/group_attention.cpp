// SPDX-License-Identifier: Apache-2.0
#include "nn/attention/group_attention.h"

#include "kernels/ops.h"

namespace trireme::nn {

namespace ops = kernels::ops;
using spec::BlockSlot;

spec::AttentionRangesShape GroupShape::call(base::DType dtype, int64_t keys,
                                            int64_t kv_heads) const {
  return {.dtype = dtype,
          .grad_dtype = base::DType::f32,
          .rows = rows(),
          .keys = keys,
          .heads = block.heads / block.kv_heads * kv_heads,
          .kv_heads = kv_heads,
          .head_dim = block.head_dim};
}

GroupAttention::Keys GroupAttention::keys_of(const Pass& pass, int source) const {
  const ContextKeys& all = pass.context_keys;
  const int64_t rows = shape_.rows();
  Keys keys{all.begin.slice_rows(source * rows, rows), all.end.slice_rows(source * rows, rows), {}};
  if (!all.chunks.empty()) keys.chunks = all.chunks[static_cast<size_t>(source)];
  return keys;
}

void pack_keys(Pass& pass, const Heads& in, int64_t first, int64_t kv_heads, Tensor kv) {
  const int64_t head_dim = in.k.shape[2], width = kv_heads * head_dim;
  ops::copy(pass.stream, {.x = in.k.as_matrix().slice_cols(first * head_dim, width),
                          .d = kv.slice_cols(0, width)});
  ops::copy(pass.stream, {.x = in.v.as_matrix().slice_cols(first * head_dim, width),
                          .d = kv.slice_cols(width, width)});
}

namespace {

// One group has all rows: the op of one rank, with the same bits.
class WholeAttention final : public GroupAttention {
 public:
  using GroupAttention::GroupAttention;

  void forward(Pass& pass, const Heads& in, Tensor o) const override {
    ops::attention_forward(pass.stream, {.q = in.q,
                                         .k = in.k,
                                         .v = in.v,
                                         .seq_offsets = pass.seq_offsets,
                                         .sequences = pass.sequences,
                                         .max_seq = pass.max_seq,
                                         .has_documents = pass.has_documents,
                                         .scale = attention_scale(shape_.block),
                                         .o = o,
                                         .lse = pass.stash[BlockSlot::lse]});
  }

  void backward(Pass& pass, const Heads& in, Tensor o, Tensor dout, const Heads& d) const override {
    const device::Arena::Mark mark(pass.scratch);
    const base::TensorSpec workspace = spec::attention_workspace(
        shape_.backend, spec::attention_shape(shape_.block, shape_.shape, o.dtype));
    ops::attention_backward(
        pass.stream,
        {.q = in.q,
         .k = in.k,
         .v = in.v,
         .o = o,
         .dout = dout,
         .lse = pass.stash[BlockSlot::lse],
         .seq_offsets = pass.seq_offsets,
         .sequences = pass.sequences,
         .max_seq = pass.max_seq,
         .has_documents = pass.has_documents,
         .scale = attention_scale(shape_.block),
         .dq = d.q,
         .dk = d.k,
         .dv = d.v,
         .workspace = workspace.shape.ndim() == 0 ? Tensor{} : pass.scratch.take(workspace)});
  }
};

}  // namespace

std::unique_ptr<const GroupAttention> make_whole_attention(const GroupShape& shape) {
  return std::make_unique<WholeAttention>(shape);
}

}  // namespace trireme::nn
