// SPDX-License-Identifier: Apache-2.0
// What Trireme's own attention kernels compute: every query row sees one range of keys. Documents,
// equal sequences and the ranges of context parallelism are all described by an array of RowKeys,
// which a small kernel writes to the device before the others run.
#pragma once

#include <cstdint>

#include "device/cuda/cuda_device.h"
#include "kernels/args.h"

namespace trireme::kernels::cuda {

// A tensor [rows, heads, K] of f32, bf16 or f16. With is_vector every head of every row starts on
// 16 bytes, and K elements are a multiple of 16 bytes.
struct HeadRows {
  void* data = nullptr;
  int64_t row_stride = 0;
  base::DType dtype = base::DType::f32;
  bool is_vector = false;
};

// A query row sees keys [begin, end). begin = -1: another kernel computes the row, and the key with
// the same number; nothing is written for them. Head h of lse is element
// lse_begin H + h lse_rows + (row - lse_begin).
struct alignas(16) RowKeys {
  int32_t begin, end;
  int32_t lse_begin, lse_rows;
};
#ifdef __CUDACC__
__device__ inline int64_t lse_index(const RowKeys& row, int heads, int head, int t) {
  return static_cast<int64_t>(row.lse_begin) * heads + static_cast<int64_t>(head) * row.lse_rows +
         (t - row.lse_begin);
}
#endif

// Over the query rows of one tile: [begin, end) holds the keys that any row sees, and every row
// sees the keys [all_begin, all_end).
struct alignas(16) TileKeys {
  int32_t begin, end;
  int32_t all_begin, all_end;
};
constexpr int tile_rows = 64;

struct AttentionProblem {
  HeadRows q, k, v, o;
  HeadRows dout, dq, dk, dv;  // backward only
  float* lse = nullptr;
  float* delta = nullptr;           // [heads, tokens], backward only
  const RowKeys* rows = nullptr;    // [tokens]
  const TileKeys* tiles = nullptr;  // [tokens / tile_rows, rounded up]
  int tokens = 0, keys = 0, heads = 0, kv_heads = 0, K = 0;
  float scale = 1;
  bool is_self = false;  // keys are those of the queries: RowKeys::begin = -1 excludes keys, too
  bool accumulates = false;  // dq, dk and dv, which are f32, are added to
};

// Queue the kernels that fill rows and tiles in the workspace of the stream, and return the
// problem. Documents of at least `fused_length` tokens are computed by cuDNN: their rows begin at
// -1.
AttentionProblem problem_of(device::CudaStream&, const AttentionForwardArgs&, int64_t fused_length);
AttentionProblem problem_of(device::CudaStream&, const AttentionBackwardArgs&,
                            int64_t fused_length);
AttentionProblem problem_of(device::CudaStream&, const AttentionRangesForwardArgs&);
AttentionProblem problem_of(device::CudaStream&, const AttentionRangesBackwardArgs&);

constexpr int64_t no_fused_length = int64_t{1} << 31;  // longer than any document

// Bytes of the stream's workspace that rows and tiles take, from its begin.
int64_t problem_bytes(int64_t tokens);

// Compute the problem: on tensor cores where its shape and types allow it, otherwise in fp32 on
// CUDA cores, which is much slower. They use no atomics and are deterministic. Both throw
// ConfigError for a head size above max_attention_head_dim.
constexpr int64_t max_attention_head_dim = 256;
void attention_forward(const device::CudaStream&, const AttentionProblem&);
// delta, dq, dk and dv.
void attention_backward(const device::CudaStream&, const AttentionProblem&);

// The parts.
bool is_tensor_core_problem(const AttentionProblem&);
void tensor_core_forward(const device::CudaStream&, const AttentionProblem&);
void tensor_core_dq(const device::CudaStream&, const AttentionProblem&);
void tensor_core_dkv(const device::CudaStream&, const AttentionProblem&);
void general_forward(const device::CudaStream&, const AttentionProblem&);
void general_dq(const device::CudaStream&, const AttentionProblem&);
void general_dkv(const device::CudaStream&, const AttentionProblem&);
// delta = sum over K of dout * o.
void attention_delta(const device::CudaStream&, const AttentionProblem&);

}  // namespace trireme::kernels::cuda
