// SPDX-License-Identifier: Apache-2.0
#include "nn/attention/attention_core.h"

#include <cmath>

#include "base/check.h"
#include "kernels/ops.h"
#include "nn/attention/attention_context.h"

namespace trireme::nn {
namespace {

namespace ops = kernels::ops;
using spec::BlockSlot;

// Attention of a rank that has all rows of its sequences.
class LocalAttention final : public AttentionCore {
 public:
  LocalAttention(const spec::BlockSpec& block, const spec::LocalShape& shape,
                 const spec::Backend& backend)
      : block_(block), shape_(shape), backend_(backend) {}

  bool exchanges_heads() const override { return false; }
  void exchange(Pass&, const Heads&) const override {
    TRIREME_CHECK(false, "one rank exchanges no heads");
  }

  void forward(Pass& pass, const Heads& in) const override {
    ops::attention_forward(
        pass.stream, {.q = in.q,
                      .k = in.k,
                      .v = in.v,
                      .seq_offsets = pass.seq_offsets,
                      .sequences = pass.sequences,
                      .max_seq = pass.max_seq,
                      .has_documents = pass.has_documents,
                      .scale = attention_scale(block_),
                      .o = pass.stash[BlockSlot::o].slice_heads(0, block_.heads, block_.head_dim),
                      .lse = pass.stash[BlockSlot::lse]});
  }

  void backward(Pass& pass, const Heads& in, const std::function<void(Tensor)>& make_dout,
                const Heads& d) const override {
    const device::Arena::Mark mark(pass.scratch);
    const Tensor o = pass.stash[BlockSlot::o];
    const Tensor dout = pass.scratch.take({o.shape, o.dtype});
    make_dout(dout);
    const base::TensorSpec workspace =
        spec::attention_workspace(backend_, spec::attention_shape(block_, shape_, o.dtype));
    ops::attention_backward(
        pass.stream,
        {.q = in.q,
         .k = in.k,
         .v = in.v,
         .o = o.slice_heads(0, block_.heads, block_.head_dim),
         .dout = dout.slice_heads(0, block_.heads, block_.head_dim),
         .lse = pass.stash[BlockSlot::lse],
         .seq_offsets = pass.seq_offsets,
         .sequences = pass.sequences,
         .max_seq = pass.max_seq,
         .has_documents = pass.has_documents,
         .scale = attention_scale(block_),
         .dq = d.q,
         .dk = d.k,
         .dv = d.v,
         .workspace = workspace.shape.ndim() == 0 ? Tensor{} : pass.scratch.take(workspace)});
  }

 private:
  spec::BlockSpec block_;
  spec::LocalShape shape_;
  spec::Backend backend_;
};

}  // namespace

Heads split_heads(Tensor fused, const spec::BlockSpec& block) {
  const int64_t q = block.heads * block.head_dim, kv = block.kv_heads * block.head_dim;
  return {fused.slice_heads(0, block.heads, block.head_dim),
          fused.slice_heads(q, block.kv_heads, block.head_dim),
          fused.slice_heads(q + kv, block.kv_heads, block.head_dim)};
}

float attention_scale(const spec::BlockSpec& block) {
  return 1.0F / std::sqrt(static_cast<float>(block.head_dim));
}

std::unique_ptr<const AttentionCore> make_attention_core(const spec::BlockSpec& local,
                                                         const spec::LocalShape& shape,
                                                         const spec::Backend& backend,
                                                         const ContextBoundary& cp) {
  if (shape.mesh[spec::Axis::cp] == 1) {
    return std::make_unique<LocalAttention>(local, shape, backend);
  }
  return std::make_unique<ContextAttention>(local, shape, backend, cp);
}

}  // namespace trireme::nn
