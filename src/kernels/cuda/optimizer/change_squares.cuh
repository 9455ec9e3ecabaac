// SPDX-License-Identifier: Apache-2.0
// The squares of the changes that a kernel makes to weights: every thread adds up its own in fp64,
// then a block adds one number to the WideSum. Bits depend on the grid, so on the kind of GPU and
// the number of elements, and on nothing else.
#pragma once

#include "kernels/args.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/wide_sum.h"

namespace trireme::kernels::cuda {

// ChangeSquares on the device.
struct CountedChanges {
  WideSum* sum;  // null: none are counted
  int64_t begin, end;
};

inline CountedChanges counted_changes(const ChangeSquares& changes) {
  return {changes.sum ? data<WideSum>(changes.sum) : nullptr, changes.begin, changes.end};
}

// All threads of a block of `Threads` call it, with the sum of their squares.
template <int Threads>
__device__ void add_changes(const CountedChanges& changes, double squares) {
  if (changes.sum == nullptr) return;
#pragma unroll
  for (int offset = warp_size / 2; offset > 0; offset /= 2) {
    squares += __shfl_xor_sync(0xffffffffU, squares, offset);
  }
  __shared__ double warps[Threads / warp_size];
  if (threadIdx.x % warp_size == 0) warps[threadIdx.x / warp_size] = squares;
  __syncthreads();
  if (threadIdx.x != 0) return;
  double sum = 0;
  for (const double part : warps) sum += part;
  const WideParts parts = wide_parts(sum);
  const auto add = [](int64_t* to, int64_t value) {
    if (value != 0) {
      atomicAdd(reinterpret_cast<unsigned long long*>(to), static_cast<unsigned long long>(value));
    }
  };
  for (int i = 0; i < 3; ++i) {
    if (parts.part[i] != 0) add(&changes.sum->limb[parts.first + i], parts.part[i]);
  }
  add(&changes.sum->not_finite, parts.not_finite);
}

}  // namespace trireme::kernels::cuda
