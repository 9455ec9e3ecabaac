// SPDX-License-Identifier: Apache-2.0
// GroupAttention: attention of the rows of a group of ranks along cp (spec::ContextSplit), with the
// heads that this rank has of them, to the keys of all groups. The group has all rows, gathers the
// keys of the others, or lets them go round.
#pragma once

#include <memory>

#include "nn/attention/attention_core.h"

namespace trireme::nn {

struct GroupShape {
  spec::BlockSpec block;  // spec::attention_block()
  spec::LocalShape shape;
  spec::ContextSplit split;
  spec::Backend backend;

  int64_t rows() const { return split.group_tokens(); }
  int64_t kv_width() const { return block.kv_heads * block.head_dim; }
  // Returns the call of attention_ranges_backward to `keys` keys with some of the heads.
  spec::AttentionRangesShape call(base::DType, int64_t keys, int64_t kv_heads) const;
};

class GroupAttention {
 public:
  explicit GroupAttention(const GroupShape& shape) : shape_(shape) {}
  virtual ~GroupAttention() = default;
  // Fills the slot lse.
  virtual void forward(Pass&, const Heads&, Tensor o) const = 0;
  virtual void backward(Pass&, const Heads&, Tensor o, Tensor dout, const Heads& d) const = 0;

 protected:
  // The keys that the rows of this group see, of one source.
  struct Keys {
    ConstTensor begin, end;
    std::span<const kernels::QueryChunk> chunks;
  };
  Keys keys_of(const Pass&, int source) const;

  GroupShape shape_;
};

// Copies k and v of `kv_heads` heads from `first` side by side into `kv`.
void pack_keys(Pass&, const Heads&, int64_t first, int64_t kv_heads, Tensor kv);

std::unique_ptr<const GroupAttention> make_whole_attention(const GroupShape&);
std::unique_ptr<const GroupAttention> make_gathered_attention(const GroupShape&,
                                                              const ContextBoundary&);
std::unique_ptr<const GroupAttention> make_ring_attention(const GroupShape&,
                                                          const ContextBoundary&);

}  // namespace trireme::nn
