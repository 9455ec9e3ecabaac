// SPDX-License-Identifier: Apache-2.0
// Kernels around cuDNN's attention of documents. Documents of at least fused_document_length tokens
// are cuDNN's, so there are at most tokens / fused_document_length of them; Trireme's kernels
// compute the shorter ones. Which is which is decided on the device.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/cuda/attention/attention_problem.h"
#include "kernels/cuda/cudnn/attention_copies.h"

namespace trireme::kernels::cuda {

constexpr int64_t fused_document_length = 256;

// Writes the lengths of the long documents and, for each of the row strides, the elements at which
// they begin; unused places have length 0. starts[i]: [capacity + 1] for strides[i].
struct DocumentTable {
  static constexpr int max_strides = 6;
  int64_t capacity = 0;
  int32_t* lengths = nullptr;  // [capacity]
  int stride_count = 0;
  int64_t strides[max_strides] = {};
  int64_t* starts[max_strides] = {};
};
void select_documents(const device::CudaStream&, const ConstTensor& seq_offsets,
                      const DocumentTable& table);

// Copies lse of the rows that begin at -1 between the order of AttentionForwardArgs and `by_head`,
// [heads, tokens].
void copy_document_lse(const device::CudaStream&, const AttentionProblem&, float* by_head,
                       bool to_by_head);

// to = the sum of `parts`, which all have the strides and type of the first, in fp32.
constexpr int max_head_parts = 16;
void sum_heads(const device::CudaStream&, const HeadView& to, std::span<const HeadView> parts,
               const HeadCount& count);

}  // namespace trireme::kernels::cuda
