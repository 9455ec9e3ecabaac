// SPDX-License-Identifier: Apache-2.0
// Shared by the forward and backward kernels of the rotary embedding: how lanes divide a head, and
// the cosines and sines of a token.
#pragma once

#include "kernels/cuda/values.cuh"

namespace trireme::kernels::cuda {

constexpr int64_t rope_max_head_dim = 256;
constexpr int rope_warps = 8;  // of a block

// cos_0 .. cos_{K/2-1} sin_0 .. sin_{K/2-1} by position.
struct RopeTable {
  const int32_t* positions;
  int64_t positions_stride;
  const float* data;
  int64_t stride;
  int64_t K;
  bool is_vectorisable;

  __device__ const float* row(int64_t t) const {
    return data + positions[t * positions_stride] * stride;
  }
};

// In the fast kernels a lane has W pairs (i, i + K/2) of a head, so a head takes `lanes` = K / (2
// W) lanes, a power of two, and a warp takes 32 / lanes heads of one token at a time.
template <int W>
struct RopeLane {
  int lanes;          // of a head
  int slot;           // of this lane in its head
  int head;           // of this lane among the heads of the warp
  int heads;          // of the warp at a time
  int64_t low, high;  // first columns of its pairs in the head

  __device__ explicit RopeLane(int64_t K) {
    const int lane = static_cast<int>(threadIdx.x) % warp_size;
    lanes = static_cast<int>(K) / (2 * W);
    slot = lane % lanes;
    head = lane / lanes;
    heads = warp_size / lanes;
    low = slot * W;
    high = K / 2 + low;
  }

  // The sum over the lanes of a head. All lanes of the warp must call.
  __device__ float head_sum(float value) const {
    for (int offset = 1; offset < lanes; offset *= 2) {
      value += __shfl_xor_sync(0xffffffffU, value, offset);
    }
    return value;
  }

  // cos and sin of its pairs.
  __device__ void angles(const RopeTable& table, int64_t t, float (&cosine)[W],
                         float (&sine)[W]) const {
    const float* row = table.row(t);
    if (table.is_vectorisable) {
#pragma unroll
      for (int j = 0; j < W; j += 4) {
        const float4 c = *reinterpret_cast<const float4*>(row + low + j);
        const float4 s = *reinterpret_cast<const float4*>(row + high + j);
        cosine[j] = c.x, cosine[j + 1] = c.y, cosine[j + 2] = c.z, cosine[j + 3] = c.w;
        sine[j] = s.x, sine[j + 1] = s.y, sine[j + 2] = s.z, sine[j + 3] = s.w;
      }
    } else {
#pragma unroll
      for (int j = 0; j < W; ++j) {
        cosine[j] = row[low + j];
        sine[j] = row[high + j];
      }
    }
  }
};

// ---- host side

inline RopeTable rope_table(const device::ConstTensor& positions,
                            const device::ConstTensor& table) {
  return {.positions = data<int32_t>(positions),
          .positions_stride = positions.row_stride,
          .data = data<float>(table),
          .stride = table.row_stride,
          .K = table.cols(),
          .is_vectorisable = is_vectorisable(table)};
}

// Returns whether the lanes of a warp divide heads of size K of this type, at `t`, evenly.
inline bool is_fast_heads(const device::ConstTensor& t, base::DType dtype) {
  if (!t) return true;
  const int64_t K = t.shape[2], pair_width = 2 * 16 / base::size_of(dtype);
  const int64_t lanes = K / pair_width;
  return is_fast_matrix(t, dtype) && K % pair_width == 0 && lanes <= warp_size &&
         (lanes & (lanes - 1)) == 0;
}

}  // namespace trireme::kernels::cuda
