// SPDX-License-Identifier: Apache-2.0
// Shared by the forward and backward of attention of ranges by cuDNN.
#pragma once

#include "base/dtype.h"
#include "kernels/cuda/cudnn/attention_copies.h"
#include "kernels/cuda/cudnn/attention_plans.h"
#include "spec/facts/backend.h"

namespace trireme::kernels::cuda {

inline bool is_empty(const QueryChunk& c) { return c.rows == 0 || c.first_key >= c.end_key; }

template <typename Args>
spec::AttentionRangesShape ranges_shape_of(const Args& args, base::DType grad_dtype) {
  return {.dtype = args.q.dtype,
          .grad_dtype = grad_dtype,
          .rows = args.q.rows(),
          .keys = args.k.rows(),
          .heads = args.q.shape[1],
          .kv_heads = args.k.shape[1],
          .head_dim = args.q.shape[2]};
}

// Head `head` of row `row`.
inline void* head_at(const ConstTensor& t, int64_t row, int64_t head) {
  const int64_t element = row * t.row_stride + head * t.shape[2];
  return const_cast<std::byte*>(t.data) + element * base::size_of(t.dtype);
}
inline HeadView head_view(const ConstTensor& t, int64_t row, int64_t head) {
  return {head_at(t, row, head), t.row_stride, t.shape[2], t.dtype == base::DType::bf16};
}

// The graph of a chunk, forward.
AttentionKey key_of(const QueryChunk& chunk, const ConstTensor& q, const ConstTensor& k,
                    const ConstTensor& v, const ConstTensor& o);

}  // namespace trireme::kernels::cuda
