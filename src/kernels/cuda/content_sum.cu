// SPDX-License-Identifier: Apache-2.0
// content_sum, the formula of base/hash/content_sum.h: thread blocks take chunks of the ranges in
// turn, add up 16-byte blocks in registers, and add their sums to the total by integer atomics,
// whose result does not depend on their order. It runs beside a step: one thread block for each
// multiprocessor reads memory almost as fast as more, and leaves them room.
#include <algorithm>

#include "base/hash/content_sum.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/table_ops.h"
#include "kernels/cuda/values.cuh"

namespace trireme::kernels::cuda {
namespace {

using base::ContentKeys;
using base::ContentSum;

constexpr int content_threads = 256, content_warps = content_threads / warp_size;
constexpr int content_loads = 8;  // of a thread, under way at the same time
constexpr int64_t chunk_blocks = 2 * content_loads * content_threads;
constexpr int ranges_of_launch = 64;

struct ContentLaunch {
  struct Range {
    const std::byte* data;
    uint64_t first_block;  // of the content
    int64_t bytes;
    int64_t first_chunk;  // of the launch
  };
  Range ranges[ranges_of_launch];
  int count;
  int64_t chunks;
};

__device__ void add_bits(ContentSum& sum, const uint4& bits, const ContentKeys& keys) {
  sum.add_block(bits.x | static_cast<uint64_t>(bits.y) << 32,
                bits.z | static_cast<uint64_t>(bits.w) << 32, keys);
}

// The last block of a range, of fewer than 16 bytes.
__device__ void add_rest(ContentSum& sum, const std::byte* data, int bytes,
                         const ContentKeys& keys) {
  uint64_t words[2] = {};
  for (int i = 0; i < bytes; ++i) {
    words[i / 8] |= static_cast<uint64_t>(data[i]) << (8 * (i % 8));
  }
  sum.add_block(words[0], words[1], keys);
}

// Adds this thread's blocks of the chunk that begins at `block` of the range.
__device__ void add_chunk(ContentSum& sum, const ContentLaunch::Range& range, int64_t block) {
  const auto* const blocks = reinterpret_cast<const uint4*>(range.data);
  const int64_t whole = range.bytes / base::content_block_bytes;
  const int64_t own = block + threadIdx.x;
  const ContentKeys keys = ContentKeys::at(range.first_block + static_cast<uint64_t>(own));
  if (block + chunk_blocks <= whole) {
    for (int64_t first = 0; first < chunk_blocks; first += content_loads * content_threads) {
      uint4 bits[content_loads];
#pragma unroll
      for (int i = 0; i < content_loads; ++i) {
        bits[i] = __ldcs(blocks + own + first + i * content_threads);
      }
#pragma unroll
      for (int i = 0; i < content_loads; ++i) {
        add_bits(sum, bits[i], keys.after(static_cast<uint64_t>(first + i * content_threads)));
      }
    }
    return;
  }
  for (int64_t i = 0; own + i < whole; i += content_threads) {
    add_bits(sum, blocks[own + i], keys.after(static_cast<uint64_t>(i)));
  }
  const auto rest = static_cast<int>(range.bytes % base::content_block_bytes);
  if (rest > 0 && threadIdx.x == 0) {
    add_rest(sum, range.data + whole * base::content_block_bytes, rest,
             ContentKeys::at(range.first_block + static_cast<uint64_t>(whole)));
  }
}

// All lanes get the sum.
__device__ ContentSum warp_total(ContentSum sum) {
#pragma unroll
  for (int offset = warp_size / 2; offset > 0; offset /= 2) {
    const uint64_t low = __shfl_xor_sync(0xffffffffU, sum.low, offset);
    const uint64_t high = __shfl_xor_sync(0xffffffffU, sum.high, offset);
    sum.add({low, high});
  }
  return sum;
}

__device__ void add_to_total(unsigned long long* total, const ContentSum& sum) {
  const unsigned long long before = atomicAdd(total, sum.low);
  // The addition that wraps the low word carries.
  const unsigned long long carry = before + sum.low < before ? 1 : 0;
  atomicAdd(total + 1, sum.high + carry);
}

// total: low, high.
__global__ void __launch_bounds__(content_threads)
    content_sum_kernel(const __grid_constant__ ContentLaunch launch, unsigned long long* total) {
  __shared__ uint64_t of_warps[content_warps][2];
  ContentSum sum;
  int at = 0;  // chunks of a thread block ascend
  for (int64_t chunk = blockIdx.x; chunk < launch.chunks; chunk += gridDim.x) {
    while (at + 1 < launch.count && launch.ranges[at + 1].first_chunk <= chunk) ++at;
    const ContentLaunch::Range& range = launch.ranges[at];
    add_chunk(sum, range, (chunk - range.first_chunk) * chunk_blocks);
  }
  sum = warp_total(sum);
  if (threadIdx.x % warp_size == 0) {
    of_warps[threadIdx.x / warp_size][0] = sum.low;
    of_warps[threadIdx.x / warp_size][1] = sum.high;
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int warp = 1; warp < content_warps; ++warp) {
    sum.add({of_warps[warp][0], of_warps[warp][1]});
  }
  add_to_total(total, sum);
}

ContentLaunch launch_of(std::span<const ContentRange> ranges) {
  ContentLaunch launch{};
  for (const ContentRange& range : ranges) {
    launch.ranges[launch.count++] = {
        range.bytes.data, static_cast<uint64_t>(range.offset / base::content_block_bytes),
        range.bytes.bytes(), launch.chunks};
    launch.chunks += ceil_div(range.bytes.bytes(), chunk_blocks * base::content_block_bytes);
  }
  return launch;
}

}  // namespace

void content_sum(Stream& stream, const ContentSumArgs& args) {
  device::CudaStream& cuda = device::cuda_stream(stream);
  const int64_t max_grid = cuda.cuda_device().multiprocessors();
  for (std::span rest(args.ranges); !rest.empty();) {
    const auto count = std::min<size_t>(rest.size(), ranges_of_launch);
    const ContentLaunch launch = launch_of(rest.first(count));
    rest = rest.subspan(count);
    if (launch.chunks == 0) continue;
    content_sum_kernel<<<grid_of(std::min(launch.chunks, max_grid)), content_threads, 0,
                         cuda.handle()>>>(launch, data<unsigned long long>(args.sum));
    check_launch("content_sum");
  }
}

}  // namespace trireme::kernels::cuda
