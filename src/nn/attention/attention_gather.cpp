// SPDX-License-Identifier: Apache-2.0
// Attention to gathered keys: a few key/value heads at a time, the keys and values of all groups
// are gathered and put into the order of rows, while the heads before are computed. The backward
// gathers them again, and sums dk and dv over the groups in fp32.
#include <algorithm>
#include <array>

#include "kernels/ops.h"
#include "nn/attention/group_attention.h"

namespace trireme::nn {
namespace {

namespace ops = kernels::ops;
using base::DType;
using spec::BlockSlot;

class GatheredAttention final : public GroupAttention {
 public:
  GatheredAttention(const GroupShape& shape, const ContextBoundary& cp)
      : GroupAttention(shape),
        cp_(cp),
        kv_heads_(spec::gathered_kv_heads(shape.block.kv_heads)),
        calls_(shape.block.kv_heads / kv_heads_),
        heads_(shape.block.heads / calls_),
        width_(2 * kv_heads_ * shape.block.head_dim) {}

  void forward(Pass& pass, const Heads& in, Tensor o) const override;
  void backward(Pass& pass, const Heads& in, Tensor o, Tensor dout, const Heads& d) const override;

 private:
  // Memory and progress of the keys of two calls, the second of which are on their way.
  struct Arriving {
    Tensor ordered;
    std::array<Tensor, 2> packed, gathered;
    std::array<device::Event, 2> arrived;
  };
  Arriving begin(Pass&, const Heads&) const;
  void start(Pass&, const Heads&, int64_t call, Arriving&) const;
  // Returns the keys and values of a call in the order of rows, and starts the next.
  Heads keys(Pass&, const Heads&, int64_t call, Arriving&) const;
  // Returns the views of k and v in a tensor of both.
  Heads split(Tensor kv) const {
    return {{},
            kv.slice_heads(0, kv_heads_, head_dim()),
            kv.slice_heads(width_ / 2, kv_heads_, head_dim())};
  }
  int64_t head_dim() const { return shape_.block.head_dim; }
  // Returns the query heads of a call.
  Tensor queries(const Tensor& all, int64_t call) const {
    return all.as_matrix().slice_heads(call * heads_ * head_dim(), heads_, head_dim());
  }

  ContextBoundary cp_;
  int64_t kv_heads_, calls_, heads_, width_;  // of a call
};

GatheredAttention::Arriving GatheredAttention::begin(Pass& pass, const Heads& in) const {
  const DType dtype = in.q.dtype;
  Arriving at;
  at.ordered = pass.scratch.take({{shape_.split.tokens(), width_}, dtype});
  for (size_t i = 0; i < static_cast<size_t>(std::min<int64_t>(calls_, 2)); ++i) {
    at.packed[i] = pass.scratch.take({{shape_.rows(), width_}, dtype});
    at.gathered[i] = pass.scratch.take({{shape_.split.tokens(), width_}, dtype});
  }
  start(pass, in, 0, at);
  return at;
}

void GatheredAttention::start(Pass& pass, const Heads& in, int64_t call, Arriving& at) const {
  const auto slot = static_cast<size_t>(call % 2);
  pack_keys(pass, in, call * kv_heads_, kv_heads_, at.packed[slot]);
  // Compute has also read what was gathered into this slot before.
  at.arrived[slot] = cp_.start(
      pass, [&] { cp_.groups->all_gather(*cp_.side, at.gathered[slot], at.packed[slot]); });
}

Heads GatheredAttention::keys(Pass& pass, const Heads& in, int64_t call, Arriving& at) const {
  if (call + 1 < calls_) start(pass, in, call + 1, at);
  const auto slot = static_cast<size_t>(call % 2);
  cp_.wait(pass, at.arrived[slot]);
  ops::scatter_rows(pass.stream,
                    {.x = at.gathered[slot], .rows = pass.context_keys.order, .d = at.ordered});
  return split(at.ordered);
}

void GatheredAttention::forward(Pass& pass, const Heads& in, Tensor o) const {
  const device::Arena::Mark mark(pass.scratch);
  const Keys ranges = keys_of(pass, 0);
  Arriving arriving = begin(pass, in);
  for (int64_t call = 0; call < calls_; ++call) {
    const Heads all = keys(pass, in, call, arriving);
    ops::attention_ranges_forward(
        pass.stream, {.q = queries(in.q, call),
                      .k = all.k,
                      .v = all.v,
                      .key_begin = ranges.begin,
                      .key_end = ranges.end,
                      .chunks = ranges.chunks,
                      .pairs = spec::mean_pairs(shape_.split),
                      .scale = attention_scale(shape_.block),
                      .o = queries(o, call),
                      .lse = pass.stash[BlockSlot::lse].slice_rows(call * heads_, heads_)});
  }
}

void GatheredAttention::backward(Pass& pass, const Heads& in, Tensor o, Tensor dout,
                                 const Heads& d) const {
  const device::Arena::Mark mark(pass.scratch);
  const Keys ranges = keys_of(pass, 0);
  const int64_t tokens = shape_.split.tokens();
  Arriving arriving = begin(pass, in);
  const Tensor dkv = pass.scratch.take({{tokens, width_}, DType::f32});
  const Tensor by_groups = pass.scratch.take({{tokens, width_}, DType::f32});
  const Tensor own = pass.scratch.take({{shape_.rows(), width_}, DType::f32});
  const base::TensorSpec workspace =
      spec::attention_ranges_workspace(shape_.backend, shape_.call(in.q.dtype, tokens, kv_heads_));
  const Tensor scratch = workspace.shape.ndim() == 0 ? Tensor{} : pass.scratch.take(workspace);
  for (int64_t call = 0; call < calls_; ++call) {
    const Heads all = keys(pass, in, call, arriving), sums = split(dkv), result = split(own);
    ops::attention_ranges_backward(
        pass.stream, {.q = queries(in.q, call),
                      .k = all.k,
                      .v = all.v,
                      .o = queries(o, call),
                      .dout = queries(dout, call),
                      .lse = pass.stash[BlockSlot::lse].slice_rows(call * heads_, heads_),
                      .key_begin = ranges.begin,
                      .key_end = ranges.end,
                      .chunks = ranges.chunks,
                      .pairs = spec::mean_pairs(shape_.split),
                      .scale = attention_scale(shape_.block),
                      .dq = queries(d.q, call),
                      .dk = sums.k,
                      .dv = sums.v,
                      .workspace = scratch});
    ops::gather_rows(pass.stream, {.x = dkv, .rows = pass.context_keys.order, .d = by_groups});
    cp_.wait(pass, cp_.start(pass, [&] { cp_.groups->reduce_scatter(*cp_.side, own, by_groups); }));
    const int64_t first = call * kv_heads_ * head_dim();
    ops::copy(pass.stream,
              {.x = result.k.as_matrix(), .d = d.k.as_matrix().slice_cols(first, width_ / 2)});
    ops::copy(pass.stream,
              {.x = result.v.as_matrix(), .d = d.v.as_matrix().slice_cols(first, width_ / 2)});
  }
}

}  // namespace

std::unique_ptr<const GroupAttention> make_gathered_attention(const GroupShape& shape,
                                                              const ContextBoundary& cp) {
  return std::make_unique<GatheredAttention>(shape, cp);
}

}  // namespace trireme::nn
