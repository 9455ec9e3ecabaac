// SPDX-License-Identifier: Apache-2.0
// Gives every pair a row: a stable sort of pairs by expert, by counting. Pairs are divided into
// segments of whole tokens, one a warp.
//   1. Every segment counts its pairs of each expert.
//   2. Prefix sums over segments, by expert; the last block to finish computes where groups begin.
//   3. Every segment walks its pairs in order and gives them their rows.
// Counts are integers, whose sums have no order; the order of rows is that of pairs.
#include "kernels/cuda/table_ops.h"
#include "kernels/cuda/values.cuh"

namespace trireme::kernels::cuda {
namespace {

constexpr int pairs_of_segment = 256;  // about
constexpr int warps_of_block = 4;
constexpr int scan_experts = 32, scan_slices = 32;  // threads of a block of step 2
constexpr int64_t max_shared_bytes = 48 << 10;

struct Route {
  const int32_t* choice;
  int64_t pairs;
  int chosen, experts, block_experts, tile, capacity;  // capacity: INT32_MAX if there is no limit
  int64_t segment, segments;                           // pairs of one; number
  int block_rows;
  int64_t rows;
  int32_t *place, *pair, *counts, *starts;
  float *sum_dropped, *sum_lost, *sum_overflow;  // of the statistics; may be null
  // In the workspace:
  int32_t* offsets;         // [segments, experts]: counts, then the number in earlier segments
  int32_t* demand;          // [experts]: pairs
  uint32_t* arrived;        // blocks of step 2, then segments of step 3
  int32_t *dropped, *lost;  // pairs, tokens
};

__device__ int64_t segment_of_warp() {
  return static_cast<int64_t>(blockIdx.x) * warps_of_block + threadIdx.x / warp_size;
}

__global__ void __launch_bounds__(warps_of_block* warp_size) count_kernel(Route p) {
  extern __shared__ int32_t counters[];  // [warps_of_block][experts]
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  int32_t* counts = counters + threadIdx.x / warp_size * p.experts;
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (thread == 0) *p.arrived = 0;
  for (int64_t row = thread; row < p.rows; row += static_cast<int64_t>(gridDim.x) * blockDim.x) {
    p.pair[row] = -1;
  }
  const int64_t segment = segment_of_warp();
  if (segment >= p.segments) return;
  for (int e = lane; e < p.experts; e += warp_size) counts[e] = 0;
  __syncwarp();
  const int64_t end = min(p.pairs, (segment + 1) * p.segment);
#pragma unroll 8
  for (int64_t i = segment * p.segment + lane; i < end; i += warp_size) {
    atomicAdd(counts + p.choice[i], 1);
  }
  __syncwarp();
  for (int e = lane; e < p.experts; e += warp_size) p.offsets[segment * p.experts + e] = counts[e];
}

// The inclusive sum over lanes.
__device__ int scan_lanes(int value) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
#pragma unroll
  for (int offset = 1; offset < warp_size; offset *= 2) {
    const int other = __shfl_up_sync(0xffffffffU, value, offset);
    if (lane >= offset) value += other;
  }
  return value;
}

// Run by one warp. Groups follow one another inside their block of experts.
__device__ void place_groups(const Route& p) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  int before = 0, before_block = 0;  // rows of the groups before, and before the block of experts
  int dropped = 0, overflow = 0;
  for (int first = 0; first < p.experts; first += warp_size) {
    const int e = first + lane;
    const int pairs = e < p.experts ? __ldcg(p.demand + e) : 0, wanted = min(pairs, p.capacity);
    const int rounded = (wanted + p.tile - 1) / p.tile * p.tile;
    const int end = before + scan_lanes(rounded), begin = end - rounded;
    // The begin of the first expert of this block of experts: in an earlier turn, or in a lane.
    const int first_of_block = e / p.block_experts * p.block_experts;
    const int from_lane = __shfl_sync(0xffffffffU, begin, max(0, first_of_block - first));
    const int block_begin = first_of_block >= first ? from_lane : before_block;
    const int begin_in_block = min(begin - block_begin, p.block_rows);
    const int rows = min(wanted, p.block_rows - begin_in_block);
    if (e < p.experts) {
      const int start = e / p.block_experts * p.block_rows + begin_in_block;
      p.starts[e] = start;
      p.counts[e] = rows;
      if (e == p.experts - 1) p.starts[p.experts] = start + (rows + p.tile - 1) / p.tile * p.tile;
      dropped += pairs - rows;
      overflow += wanted - rows;
    }
    before = __shfl_sync(0xffffffffU, end, warp_size - 1);
    before_block = __shfl_sync(0xffffffffU, block_begin, warp_size - 1);
  }
  dropped = __reduce_add_sync(0xffffffffU, dropped);
  overflow = __reduce_add_sync(0xffffffffU, overflow);
  if (lane != 0) return;
  *p.dropped = dropped;
  *p.lost = 0;
  *p.arrived = 0;
  if (p.sum_dropped != nullptr) {
    *p.sum_dropped += static_cast<float>(dropped);
    *p.sum_overflow += static_cast<float>(overflow);
  }
}

__global__ void __launch_bounds__(scan_experts* scan_slices) offsets_kernel(Route p) {
  __shared__ int32_t sums[scan_slices][scan_experts + 1];
  __shared__ bool is_last;
  const int column = static_cast<int>(threadIdx.x), slice = static_cast<int>(threadIdx.y);
  const int e = static_cast<int>(blockIdx.x) * scan_experts + column;
  const int64_t per_slice = (p.segments + scan_slices - 1) / scan_slices;
  const int64_t begin = slice * per_slice, end = min(p.segments, begin + per_slice);
  int sum = 0;
  if (e < p.experts) {
#pragma unroll 8
    for (int64_t s = begin; s < end; ++s) sum += p.offsets[s * p.experts + e];
  }
  sums[slice][column] = sum;
  __syncthreads();
  // Warp w sums the slices of expert w of the block.
  const int inclusive = scan_lanes(sums[column][slice]);
  __syncthreads();
  sums[column][slice] = inclusive;
  __syncthreads();
  int before = sums[slice][column] - sum;
  if (e < p.experts) {
    if (slice == scan_slices - 1) p.demand[e] = before + sum;
#pragma unroll 8
    for (int64_t s = begin; s < end; ++s) {
      const int here = p.offsets[s * p.experts + e];
      p.offsets[s * p.experts + e] = before;
      before += here;
    }
  }
  __threadfence();
  __syncthreads();
  if (column == 0 && slice == 0) is_last = atomicAdd(p.arrived, 1U) == gridDim.x - 1;
  __syncthreads();
  if (!is_last || slice != 0) return;
  __threadfence();
  place_groups(p);
}

__global__ void __launch_bounds__(warps_of_block* warp_size) place_kernel(Route p) {
  extern __shared__ int32_t counters[];  // [warps_of_block][experts]: the next number of each
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  int32_t* next = counters + threadIdx.x / warp_size * p.experts;
  const int64_t segment = segment_of_warp();
  if (segment >= p.segments) return;
  for (int e = lane; e < p.experts; e += warp_size) next[e] = p.offsets[segment * p.experts + e];
  __syncwarp();
  const int64_t begin = segment * p.segment, end = min(p.pairs, begin + p.segment);
  const auto choice_of = [&](int64_t i) { return i < end ? p.choice[i] : p.experts; };
  int later = choice_of(begin + lane);
  for (int64_t first = begin; first < end; first += warp_size) {
    const int64_t i = first + lane;
    const bool is_pair = i < end;
    const int e = later;
    later = choice_of(i + warp_size);  // requested before the waits of this turn
    const uint32_t same = __match_any_sync(0xffffffffU, e);
    const int before = __popc(same & ((1U << lane) - 1));
    const int number = is_pair ? next[e] + before : 0;
    __syncwarp();
    if (is_pair && before == 0) next[e] = number + __popc(same);
    __syncwarp();
    if (!is_pair) continue;
    const bool has_row = number < p.counts[e];
    const int row = has_row ? p.starts[e] + number : -1;
    p.place[i] = row;
    if (has_row) p.pair[row] = static_cast<int32_t>(i);
  }
  if (p.sum_lost == nullptr || *p.dropped == 0) return;
  __syncwarp();
  int lost = 0;
  for (int64_t token = begin / p.chosen + lane; token * p.chosen < end; token += warp_size) {
    bool has_row = false;
    for (int k = 0; k < p.chosen; ++k) has_row = has_row || p.place[token * p.chosen + k] >= 0;
    lost += has_row ? 0 : 1;
  }
  lost = __reduce_add_sync(0xffffffffU, lost);
  if (lane != 0) return;
  atomicAdd(p.lost, lost);
  __threadfence();
  if (atomicAdd(p.arrived, 1U) == p.segments - 1) {
    *p.sum_lost += static_cast<float>(atomicAdd(p.lost, 0));
  }
}

}  // namespace

void route_rows(Stream& stream, const RouteRowsArgs& args) {
  device::CudaStream& cuda = device::cuda_stream(stream);
  const int64_t pairs = args.choice.elements(), chosen = args.choice.cols(), experts = args.experts;
  const int64_t block_rows = args.pair.rows() / args.blocks;
  const int64_t segment = chosen * std::max<int64_t>(1, pairs_of_segment / chosen);
  const int64_t segments = std::max<int64_t>(1, ceil_div(pairs, segment));
  const int64_t shared = warps_of_block * experts * 4;
  TRIREME_CHECK(shared <= max_shared_bytes, "route_rows: {} experts, at most {} are supported",
                experts, max_shared_bytes / 4 / warps_of_block);
  TRIREME_CHECK(pairs + experts * args.tile <= INT32_MAX && args.pair.rows() <= INT32_MAX,
                "route_rows: {} pairs and {} rows", pairs, args.pair.rows());
  const int64_t words = segments * experts + experts + 3;
  TRIREME_CHECK(4 * words <= cuda.workspace().bytes(), "route_rows: a workspace of {} bytes of {}",
                cuda.workspace().bytes(), 4 * words);
  auto* offsets = reinterpret_cast<int32_t*>(cuda.workspace().data);
  int32_t* demand = offsets + segments * experts;
  const spec::RouterStats at = {experts};
  const auto sum_at = [&](int64_t i) { return args.stats ? data<float>(args.stats) + i : nullptr; };
  const Route p = {
      .choice = data<int32_t>(args.choice),
      .pairs = pairs,
      .chosen = static_cast<int>(chosen),
      .experts = static_cast<int>(experts),
      .block_experts = static_cast<int>(experts / args.blocks),
      .tile = static_cast<int>(args.tile),
      .capacity = static_cast<int>(args.capacity == 0 ? INT32_MAX : args.capacity),
      .segment = segment,
      .segments = segments,
      .block_rows = static_cast<int>(block_rows),
      .rows = args.pair.rows(),
      .place = data<int32_t>(args.place),
      .pair = data<int32_t>(args.pair),
      .counts = data<int32_t>(args.counts),
      .starts = data<int32_t>(args.starts),
      .sum_dropped = sum_at(at.dropped()),
      .sum_lost = sum_at(at.lost()),
      .sum_overflow = sum_at(at.overflow()),
      .offsets = offsets,
      .demand = demand,
      .arrived = reinterpret_cast<uint32_t*>(demand + experts),
      .dropped = demand + experts + 1,
      .lost = demand + experts + 2,
  };
  const unsigned blocks = grid_of(ceil_div(segments, warps_of_block));
  const unsigned threads = warps_of_block * warp_size, bytes = static_cast<unsigned>(shared);
  count_kernel<<<blocks, threads, bytes, cuda.handle()>>>(p);
  offsets_kernel<<<grid_of(ceil_div(experts, scan_experts)), dim3(scan_experts, scan_slices), 0,
                   cuda.handle()>>>(p);
  place_kernel<<<blocks, threads, bytes, cuda.handle()>>>(p);
  check_launch("route_rows");
}

}  // namespace trireme::kernels::cuda
