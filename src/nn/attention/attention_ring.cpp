// SPDX-License-Identifier: Apache-2.0
// Attention in a ring: keys and values of one group after the other pass by, the next ones on their
// way while the present ones are computed. Partial results are merged in fp32 by log-sum-exp. In
// the backward the gradients of keys and values go round with them, in fp32, and end where they
// began.
#include <array>

#include "kernels/ops.h"
#include "nn/attention/group_attention.h"

namespace trireme::nn {
namespace {

namespace ops = kernels::ops;
using base::DType;
using spec::BlockSlot;

class RingAttention final : public GroupAttention {
 public:
  RingAttention(const GroupShape& shape, const ContextBoundary& cp)
      : GroupAttention(shape), cp_(cp) {}

  void forward(Pass& pass, const Heads& in, Tensor o) const override;
  void backward(Pass& pass, const Heads& in, Tensor o, Tensor dout, const Heads& d) const override;

 private:
  // Keys and values that are read, and those that arrive meanwhile.
  struct Ring {
    std::array<Tensor, 2> kv;
    device::Event arrived;
  };
  Ring begin(Pass&, const Heads&) const;
  // Returns the keys of a step, and starts to pass them on.
  Heads keys(Pass&, int step, Ring&) const;
  int steps() const { return shape_.split.groups; }
  // Returns the group whose keys are here in a step.
  int source(int step) const { return (cp_.groups->rank() - step + steps()) % steps(); }
  Heads split(Tensor kv) const {
    const spec::BlockSpec& block = shape_.block;
    return {{},
            kv.slice_heads(0, block.kv_heads, block.head_dim),
            kv.slice_heads(shape_.kv_width(), block.kv_heads, block.head_dim)};
  }
  double pairs() const { return spec::mean_pairs(shape_.split) / steps(); }

  ContextBoundary cp_;
};

RingAttention::Ring RingAttention::begin(Pass& pass, const Heads& in) const {
  Ring ring;
  for (Tensor& kv : ring.kv) {
    kv = pass.scratch.take({{shape_.rows(), 2 * shape_.kv_width()}, in.q.dtype});
  }
  pack_keys(pass, in, 0, shape_.block.kv_heads, ring.kv[0]);
  return ring;
}

Heads RingAttention::keys(Pass& pass, int step, Ring& ring) const {
  const auto here = static_cast<size_t>(step % 2);
  cp_.wait(pass, ring.arrived);
  if (step + 1 < steps()) {
    // Compute has read what was there before.
    ring.arrived =
        cp_.start(pass, [&] { cp_.groups->shift(*cp_.side, ring.kv[1 - here], ring.kv[here]); });
  }
  return split(ring.kv[here]);
}

void RingAttention::forward(Pass& pass, const Heads& in, Tensor o) const {
  const device::Arena::Mark mark(pass.scratch);
  const spec::BlockSpec& block = shape_.block;
  Ring ring = begin(pass, in);
  const base::TensorSpec wide{{shape_.rows(), block.heads * block.head_dim}, DType::f32};
  const auto take = [&] {
    return pass.scratch.take(wide).slice_heads(0, block.heads, block.head_dim);
  };
  const Tensor sum = take(), part = take();
  const Tensor lse = pass.stash[BlockSlot::lse];
  const Tensor part_lse = pass.scratch.take({lse.shape, lse.dtype});
  for (int step = 0; step < steps(); ++step) {
    const Heads all = keys(pass, step, ring);
    const Keys ranges = keys_of(pass, source(step));
    ops::attention_ranges_forward(pass.stream, {.q = in.q,
                                                .k = all.k,
                                                .v = all.v,
                                                .key_begin = ranges.begin,
                                                .key_end = ranges.end,
                                                .chunks = ranges.chunks,
                                                .pairs = pairs(),
                                                .scale = attention_scale(block),
                                                .o = step == 0 ? sum : part,
                                                .lse = step == 0 ? lse : part_lse});
    if (step == 0) continue;
    ops::attention_merge(pass.stream, {.part = part, .part_lse = part_lse, .o = sum, .lse = lse});
  }
  ops::copy(pass.stream, {.x = sum.as_matrix(), .d = o.as_matrix()});
}

void RingAttention::backward(Pass& pass, const Heads& in, Tensor o, Tensor dout,
                             const Heads& d) const {
  const device::Arena::Mark mark(pass.scratch);
  const spec::BlockSpec& block = shape_.block;
  Ring ring = begin(pass, in);
  std::array<Tensor, 2> dkv;
  for (Tensor& sums : dkv) {
    sums = pass.scratch.take({{shape_.rows(), 2 * shape_.kv_width()}, DType::f32});
  }
  const Tensor dq = pass.scratch.take({{shape_.rows(), block.heads * block.head_dim}, DType::f32});
  const base::TensorSpec workspace = spec::attention_ranges_workspace(
      shape_.backend, shape_.call(in.q.dtype, shape_.rows(), block.kv_heads));
  const Tensor scratch = workspace.shape.ndim() == 0 ? Tensor{} : pass.scratch.take(workspace);
  for (int step = 0; step < steps(); ++step) {
    const auto here = static_cast<size_t>(step % 2);
    const Heads all = keys(pass, step, ring), sums = split(dkv[here]);
    const Keys ranges = keys_of(pass, source(step));
    ops::attention_ranges_backward(pass.stream,
                                   {.q = in.q,
                                    .k = all.k,
                                    .v = all.v,
                                    .o = o,
                                    .dout = dout,
                                    .lse = pass.stash[BlockSlot::lse],
                                    .key_begin = ranges.begin,
                                    .key_end = ranges.end,
                                    .chunks = ranges.chunks,
                                    .pairs = pairs(),
                                    .scale = attention_scale(block),
                                    .dq = dq.slice_heads(0, block.heads, block.head_dim),
                                    .dk = sums.k,
                                    .dv = sums.v,
                                    .accumulates = step > 0,
                                    .workspace = scratch});
    cp_.wait(pass,
             cp_.start(pass, [&] { cp_.groups->shift(*cp_.side, dkv[1 - here], dkv[here]); }));
  }
  const Heads sums = split(dkv[static_cast<size_t>(steps() % 2)]);
  ops::copy(pass.stream, {.x = dq, .d = d.q.as_matrix()});
  ops::copy(pass.stream, {.x = sums.k.as_matrix(), .d = d.k.as_matrix()});
  ops::copy(pass.stream, {.x = sums.v.as_matrix(), .d = d.v.as_matrix()});
}

}  // namespace

std::unique_ptr<const GroupAttention> make_ring_attention(const GroupShape& shape,
                                                          const ContextBoundary& cp) {
  return std::make_unique<RingAttention>(shape, cp);
}

}  // namespace trireme::nn
