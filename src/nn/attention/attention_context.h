// SPDX-License-Identifier: Apache-2.0
// Attention among ranks along cp. Under Ulysses the ranks of a group first exchange rows for heads,
// so that each has some heads of all rows of the group; GroupAttention does the rest.
#pragma once

#include <functional>
#include <memory>

#include "nn/attention/attention_core.h"
#include "nn/attention/group_attention.h"

namespace trireme::nn {

class ContextAttention final : public AttentionCore {
 public:
  ContextAttention(const spec::BlockSpec& local, const spec::LocalShape&, const spec::Backend&,
                   const ContextBoundary&);

  bool exchanges_heads() const override { return ranks() > 1; }
  void exchange(Pass&, const Heads& own) const override;
  void forward(Pass&, const Heads&) const override;
  void backward(Pass&, const Heads&, const std::function<void(Tensor)>& make_dout,
                const Heads& d) const override;

 private:
  int ranks() const { return split_.ulysses; }
  // Returns the first of the key/value heads that a rank of the group reads.
  int64_t first_kv_head(int rank) const { return rank * local_.kv_heads / ranks(); }
  // Sends columns [rank * width, + width) of x to each rank: out = its columns of all ranks' rows.
  void rows_to_heads(Pass&, ConstTensor x, Tensor out) const;
  // The inverse.
  void heads_to_rows(Pass&, ConstTensor x, Tensor out) const;
  // Sends the gradients of q, k and v back to the ranks that have the rows, and adds up those of
  // key/value heads that several ranks read.
  void return_gradients(Pass&, Tensor dheads, const Heads& d) const;
  // Returns a view of the slot with the heads of a rank.
  Tensor part_of(Tensor rows) const { return rows.slice_heads(0, part_.heads, part_.head_dim); }

  spec::BlockSpec local_, part_;
  spec::ContextSplit split_;
  ContextBoundary cp_;
  std::unique_ptr<const GroupAttention> group_;
};

}  // namespace trireme::nn
