// SPDX-License-Identifier: Apache-2.0
// sum_squares with the reference's bits: fp64 within blocks of 128 elements, from left to right,
// and fixed point across blocks (kernels/wide_sum.h), where additions have no order.
//
// A warp takes tiles of 32 blocks. It copies a tile to shared memory with all lanes side by side;
// then every lane adds up one block. A chain of 128 fp64 additions takes about 2,500 cycles, the
// load some 1,500, and twelve warps of a multiprocessor have a tile of 16 KiB each, which is twice
// what the memory delivers in that time.
#include <cuda_pipeline.h>

#include <algorithm>
#include <type_traits>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/table_ops.h"
#include "kernels/step_state.h"
#include "kernels/wide_sum.h"

namespace trireme::kernels::cuda {
namespace {

constexpr int block_elements = static_cast<int>(WideSum::block_elements);
constexpr int tile_elements = warp_size * block_elements;
constexpr int warps = 2;  // of a thread block: their tiles fit into static shared memory

// Blocks are padded by 16 bytes, so that 8 lanes that each read 16 bytes of their block touch all
// 32 banks once.
template <typename T>
struct alignas(16) Tile {
  static constexpr int stride = block_elements + Vec<T>::width;
  T at[warp_size * stride];
};

// Elements of the tile beyond the end are zero, which does not change sums.
template <typename T>
__device__ void load_tile(Tile<T>& tile, const T* x, int64_t count, bool is_aligned) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  if (is_aligned && count >= tile_elements) {
    constexpr int vectors = block_elements / Vec<T>::width;  // of a block
#pragma unroll 4
    for (int i = lane; i < warp_size * vectors; i += warp_size) {
      T* to = tile.at + i / vectors * Tile<T>::stride + i % vectors * Vec<T>::width;
      __pipeline_memcpy_async(to, x + i * Vec<T>::width, 16);
    }
    __pipeline_commit();
    __pipeline_wait_prior(0);
  } else {
    for (int i = lane; i < tile_elements; i += warp_size) {
      tile.at[i / block_elements * Tile<T>::stride + i % block_elements] = i < count ? x[i] : T{};
    }
  }
  __syncwarp();
}

// x * x is exact in fp64, so it does not matter whether the compiler fuses the addition.
template <typename T>
__device__ double block_sum(const Tile<T>& tile) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const T* block = tile.at + lane * Tile<T>::stride;
  double sum = 0;
#pragma unroll 4
  for (int i = 0; i < block_elements; i += Vec<T>::width) {
    const Vec<T> vec = Vec<T>::load(block + i);
#pragma unroll
    for (int j = 0; j < Vec<T>::width; ++j) {
      const auto value = static_cast<double>(load(&vec.at[j]));
      sum += value * value;
    }
  }
  return sum;
}

// Limbs are indexed by constants only, so that they stay in registers.
__device__ void add_parts(WideSum& sum, const WideParts& parts) {
#pragma unroll
  for (int limb = 0; limb < WideSum::limbs; ++limb) {
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      if (parts.first + i == limb) sum.limb[limb] += parts.part[i];
    }
  }
  sum.not_finite += parts.not_finite;
}

__device__ int64_t warp_sum_of(int64_t value) {
  auto sum = static_cast<unsigned long long>(value);
#pragma unroll
  for (int offset = warp_size / 2; offset > 0; offset /= 2) {
    sum += __shfl_xor_sync(0xffffffffU, sum, offset);
  }
  return static_cast<int64_t>(sum);
}

// Lane i of every warp adds limb i.
__device__ void add_to(WideSum* to, const WideSum& sum) {
  static_assert(sizeof(WideSum) == (WideSum::limbs + 1) * sizeof(int64_t));
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  int64_t mine = 0;
#pragma unroll
  for (int limb = 0; limb <= WideSum::limbs; ++limb) {
    const bool is_limb = limb < WideSum::limbs;
    const int64_t total = warp_sum_of(is_limb ? sum.limb[limb % WideSum::limbs] : sum.not_finite);
    if (lane == limb) mine = total;
  }
  if (mine == 0) return;
  int64_t* place = lane < WideSum::limbs ? &to->limb[lane] : &to->not_finite;
  atomicAdd(reinterpret_cast<unsigned long long*>(place), static_cast<unsigned long long>(mine));
}

template <typename T>
__global__ void __launch_bounds__(warps* warp_size)
    sum_squares_kernel(const T* x, int64_t count, bool is_aligned, WideSum* squares) {
  __shared__ Tile<T> tiles[warps];
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  Tile<T>& tile = tiles[warp];
  WideSum sum{};
  const int64_t step = int64_t{gridDim.x} * warps * tile_elements;
  for (int64_t first = (int64_t{blockIdx.x} * warps + warp) * tile_elements; first < count;
       first += step) {
    load_tile(tile, x + first, count - first, is_aligned);
    add_parts(sum, wide_parts(block_sum(tile)));
    __syncwarp();  // all lanes have read before the next tile is written
  }
  add_to(squares, sum);
}

}  // namespace

void sum_squares(Stream& stream, const SumSquaresArgs& args) {
  const int64_t count = args.x.elements();
  if (count == 0) return;
  TRIREME_CHECK(args.x.is_contiguous(), "sum_squares: {} elements with stride {}", count,
                args.x.row_stride);
  const bool is_aligned = reinterpret_cast<uintptr_t>(args.x.data) % 16 == 0;
  device::CudaStream& cuda = device::cuda_stream(stream);
  with_gradient_type(args.x.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    // As many blocks as the shared memory of a multiprocessor holds, all of which is requested.
    constexpr int64_t resident = sizeof(T) == 4 ? 6 : 12;
    device::cuda_check(
        cudaFuncSetAttribute(sum_squares_kernel<T>, cudaFuncAttributePreferredSharedMemoryCarveout,
                             cudaSharedmemCarveoutMaxShared),
        "sum_squares: shared memory");
    const int64_t blocks = std::min(ceil_div(count, warps * tile_elements),
                                    resident * cuda.cuda_device().multiprocessors());
    sum_squares_kernel<T><<<static_cast<unsigned>(blocks), warps * warp_size, 0, cuda.handle()>>>(
        data<T>(args.x), count, is_aligned, data<WideSum>(args.squares));
  });
  check_launch("sum_squares");
}

}  // namespace trireme::kernels::cuda
