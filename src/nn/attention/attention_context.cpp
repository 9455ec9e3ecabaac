// SPDX-License-Identifier: Apache-2.0
#include "nn/attention/attention_context.h"

#include <algorithm>

#include "kernels/ops.h"

namespace trireme::nn {
namespace {

namespace ops = kernels::ops;
using spec::BlockSlot;

std::unique_ptr<const GroupAttention> make_group_attention(const GroupShape& shape,
                                                           const ContextBoundary& cp) {
  if (shape.split.groups == 1) return make_whole_attention(shape);
  return shape.split.is_ring ? make_ring_attention(shape, cp) : make_gathered_attention(shape, cp);
}

}  // namespace

ContextAttention::ContextAttention(const spec::BlockSpec& local, const spec::LocalShape& shape,
                                   const spec::Backend& backend, const ContextBoundary& cp)
    : local_(local),
      part_(spec::attention_block(local, shape)),
      split_(shape.context()),
      cp_(cp),
      group_(make_group_attention({part_, shape, split_, backend}, cp)) {}

void ContextAttention::exchange(Pass& pass, const Heads& own) const {
  const device::Arena::Mark mark(pass.scratch);
  const Tensor heads = pass.stash[BlockSlot::heads];
  const Tensor packed = pass.scratch.take({heads.shape, heads.dtype});
  const int64_t rows = own.q.rows(), dim = part_.head_dim;
  const int64_t q_width = part_.heads * dim, kv_width = part_.kv_heads * dim;
  for (int rank = 0; rank < ranks(); ++rank) {
    const Tensor block = packed.slice_rows(rank * rows, rows);
    const int64_t first_kv = first_kv_head(rank) * dim;
    ops::copy(pass.stream, {.x = own.q.as_matrix().slice_cols(rank * q_width, q_width),
                            .d = block.slice_cols(0, q_width)});
    ops::copy(pass.stream, {.x = own.k.as_matrix().slice_cols(first_kv, kv_width),
                            .d = block.slice_cols(q_width, kv_width)});
    ops::copy(pass.stream, {.x = own.v.as_matrix().slice_cols(first_kv, kv_width),
                            .d = block.slice_cols(q_width + kv_width, kv_width)});
  }
  cp_.all_to_all(pass, heads, packed);
}

void ContextAttention::rows_to_heads(Pass& pass, ConstTensor x, Tensor out) const {
  const device::Arena::Mark mark(pass.scratch);
  const Tensor packed = pass.scratch.take({out.shape, out.dtype});
  for (int rank = 0; rank < ranks(); ++rank) {
    ops::copy(pass.stream, {.x = x.slice_cols(rank * out.cols(), out.cols()),
                            .d = packed.slice_rows(rank * x.rows(), x.rows())});
  }
  cp_.all_to_all(pass, out, packed);
}

void ContextAttention::heads_to_rows(Pass& pass, ConstTensor x, Tensor out) const {
  const device::Arena::Mark mark(pass.scratch);
  const Tensor blocks = pass.scratch.take({x.shape, x.dtype});
  cp_.all_to_all(pass, blocks, x);
  for (int rank = 0; rank < ranks(); ++rank) {
    ops::copy(pass.stream, {.x = blocks.slice_rows(rank * out.rows(), out.rows()),
                            .d = out.slice_cols(rank * x.cols(), x.cols())});
  }
}

void ContextAttention::forward(Pass& pass, const Heads& in) const {
  if (!exchanges_heads()) {
    group_->forward(pass, in, part_of(pass.stash[BlockSlot::o]));
    return;
  }
  const Tensor o = pass.stash[BlockSlot::o_heads];
  group_->forward(pass, split_heads(pass.stash[BlockSlot::heads], part_), part_of(o));
  heads_to_rows(pass, o, pass.stash[BlockSlot::o]);
}

void ContextAttention::backward(Pass& pass, const Heads& in,
                                const std::function<void(Tensor)>& make_dout,
                                const Heads& d) const {
  const device::Arena::Mark mark(pass.scratch);
  const Tensor o = pass.stash[BlockSlot::o];
  if (!exchanges_heads()) {
    const Tensor dout = pass.scratch.take({o.shape, o.dtype});
    make_dout(dout);
    group_->backward(pass, in, part_of(o), part_of(dout), d);
    return;
  }
  const Tensor heads = pass.stash[BlockSlot::heads], o_heads = pass.stash[BlockSlot::o_heads];
  const Tensor dout_heads = pass.scratch.take({o_heads.shape, o_heads.dtype});
  {
    const device::Arena::Mark inner(pass.scratch);
    const Tensor dout = pass.scratch.take({o.shape, o.dtype});
    make_dout(dout);
    rows_to_heads(pass, dout, dout_heads);
  }
  const Tensor dheads = pass.scratch.take({heads.shape, heads.dtype});
  group_->backward(pass, split_heads(heads, part_), part_of(o_heads), part_of(dout_heads),
                   split_heads(dheads, part_));
  return_gradients(pass, dheads, d);
}

void ContextAttention::return_gradients(Pass& pass, Tensor dheads, const Heads& d) const {
  const device::Arena::Mark mark(pass.scratch);
  const Tensor blocks = pass.scratch.take({dheads.shape, dheads.dtype});
  cp_.all_to_all(pass, blocks, dheads);
  const int64_t rows = d.q.rows(), dim = part_.head_dim;
  const int64_t q_width = part_.heads * dim, kv_width = part_.kv_heads * dim;
  const int64_t readers = ranks() / std::min<int64_t>(local_.kv_heads, ranks());
  const auto of_rank = [&](int64_t rank, int64_t first, int64_t width) {
    return blocks.slice_rows(rank * rows, rows).slice_cols(first, width);
  };
  for (int rank = 0; rank < ranks(); ++rank) {
    ops::copy(pass.stream, {.x = of_rank(rank, 0, q_width),
                            .d = d.q.as_matrix().slice_cols(rank * q_width, q_width)});
    if (readers > 1) continue;
    const int64_t first_kv = first_kv_head(rank) * dim;
    ops::copy(pass.stream, {.x = of_rank(rank, q_width, kv_width),
                            .d = d.k.as_matrix().slice_cols(first_kv, kv_width)});
    ops::copy(pass.stream, {.x = of_rank(rank, q_width + kv_width, kv_width),
                            .d = d.v.as_matrix().slice_cols(first_kv, kv_width)});
  }
  if (readers == 1) return;
  // A rank has one key/value head, which `readers` adjacent ranks read.
  const Tensor sum = pass.scratch.take({{rows, dim}, base::DType::f32});
  for (int64_t head = 0; head < local_.kv_heads; ++head) {
    for (const bool is_key : {true, false}) {
      const int64_t first = is_key ? q_width : q_width + dim;
      ops::copy(pass.stream, {.x = of_rank(head * readers, first, dim), .d = sum});
      for (int64_t reader = 1; reader < readers; ++reader) {
        ops::accumulate(pass.stream, {.x = of_rank(head * readers + reader, first, dim), .d = sum});
      }
      const Tensor& to = is_key ? d.k : d.v;
      ops::copy(pass.stream, {.x = sum, .d = to.as_matrix().slice_cols(head * dim, dim)});
    }
  }
}

}  // namespace trireme::nn
