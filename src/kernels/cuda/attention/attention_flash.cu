// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attention/attention_flash.h"

#include "base/shape.h"
#include "kernels/cuda/attention/attention_flash.cuh"

namespace trireme::kernels::cuda {
namespace {

using base::DType;
using device::CudaStream;

constexpr float log2_e = 1.44269504F;
constexpr int rows_threads = 256;

struct Rows {
  const bf16 *o, *dout;
  int64_t o_stride, dout_stride;
  const float* lse;  // [sequences, H, T]
  float *lse_to, *delta;
  int heads, T, rows;
};

// lse and delta as flash::Problem has them. K / 8 lanes a row; blocks of one head of a sequence.
template <int K>
__global__ void __launch_bounds__(rows_threads) prepare_rows_kernel(Rows p) {
  constexpr int lanes = K / 8, rows_of_block = rows_threads / lanes;
  const int t =
      static_cast<int>(blockIdx.x) * rows_of_block + static_cast<int>(threadIdx.x) / lanes;
  const int head = static_cast<int>(blockIdx.y), sequence = static_cast<int>(blockIdx.z);
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  float sum = 0;
  if (t < p.T) {
    const int64_t row = static_cast<int64_t>(sequence) * p.T + t;
    const int64_t column = head * K + lane * 8;
    const auto o = Vec<bf16>::load(p.o + row * p.o_stride + column);
    const auto dout = Vec<bf16>::load(p.dout + row * p.dout_stride + column);
#pragma unroll
    for (int i = 0; i < 8; ++i) sum += __bfloat162float(o.at[i]) * __bfloat162float(dout.at[i]);
  }
#pragma unroll
  for (int offset = lanes / 2; offset > 0; offset /= 2) {
    sum += __shfl_xor_sync(0xffffffffU, sum, offset);
  }
  if (lane != 0 || t >= p.rows) return;
  const int64_t at = static_cast<int64_t>(sequence) * p.heads + head;
  p.delta[at * p.rows + t] = sum;
  p.lse_to[at * p.rows + t] = t < p.T ? p.lse[at * p.T + t] * log2_e : INFINITY;
}

// dq in bf16, of the sums: a block for each half of a tile, whose floats lie as warpgroups have
// them in registers.
template <int K>
__global__ void __launch_bounds__(flash::group_threads)
    finish_dq_kernel(const float* sums, bf16* dq, int64_t stride, int heads, int T, float scale) {
  constexpr int M = flash::tile_queries(K), padded = 64 + 8;
  __shared__ __align__(16) bf16 tile[64 * padded];
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / warp_size, lane = thread % warp_size;
  const int m = static_cast<int>(blockIdx.x) / 2, half = static_cast<int>(blockIdx.x) % 2;
  const int head = static_cast<int>(blockIdx.y), sequence = static_cast<int>(blockIdx.z);
  const int64_t at =
      (static_cast<int64_t>(sequence) * heads + head) * static_cast<int64_t>(gridDim.x) +
      blockIdx.x;
  const auto* from = reinterpret_cast<const float4*>(sums + at * flash::half_floats);
  const int row = 16 * warp + lane / 4;
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const float4 four = from[j * flash::group_threads + thread];
    const int column = 8 * j + 2 * (lane % 4);
    *reinterpret_cast<uint32_t*>(tile + row * padded + column) =
        flash::packed(four.x * scale, four.y * scale);
    *reinterpret_cast<uint32_t*>(tile + (row + 8) * padded + column) =
        flash::packed(four.z * scale, four.w * scale);
  }
  __syncthreads();
  const int first_row = m * M + (K == 64 ? half * 64 : 0);
  const int64_t first_column = head * K + (K == 64 ? 0 : half * 64);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int r = i * 16 + thread / 8, c = thread % 8 * 8;
    if (first_row + r >= T) continue;
    Vec<bf16>::load(tile + r * padded + c)
        .store(dq + (static_cast<int64_t>(sequence) * T + first_row + r) * stride + first_column +
               c);
  }
}

spec::FlashScratch scratch_of(const AttentionBackwardArgs& args) {
  return spec::flash_scratch({.sequences = args.sequences,
                              .seq_len = args.max_seq,
                              .heads = args.q.shape[1],
                              .head_dim = args.q.shape[2]});
}

template <int K>
void run(CudaStream& stream, const TensorMaps& maps, const AttentionBackwardArgs& args) {
  const int64_t S = args.sequences, T = args.max_seq, H = args.q.shape[1], G = args.k.shape[1];
  const int64_t rows = base::round_up(T, flash::tile_keys);
  const spec::FlashScratch scratch = scratch_of(args);
  std::byte* at = args.workspace.data;
  flash::Problem p = {};
  // Rows as wide as their stride: only the columns of the tensor's heads are read.
  const auto map = [&](const ConstTensor& t, const Box& box) {
    ConstTensor all = t;
    all.shape = {S, T, t.row_stride};
    all.row_stride = T * t.row_stride;
    return maps.matrices(all, box);
  };
  p.q = map(args.q, flash::query_box(K));
  p.dout = map(args.dout, flash::query_box(K));
  p.k = map(args.k, flash::key_box);
  p.v = map(args.v, flash::key_box);
  auto* lse = reinterpret_cast<float*>(at);
  auto* delta = reinterpret_cast<float*>(at + scratch.rows);
  p.lse = lse;
  p.delta = delta;
  p.dq_sum = reinterpret_cast<float*>(at + 2 * scratch.rows);
  p.turns = reinterpret_cast<int*>(at + 2 * scratch.rows + scratch.dq);
  p.query_tiles = static_cast<int>(rows / flash::tile_queries(K));
  p.ticket = p.turns + S * H * p.query_tiles * 2;
  p.dk = data<bf16>(args.dk);
  p.dv = data<bf16>(args.dv);
  p.dk_stride = args.dk.row_stride;
  p.dv_stride = args.dv.row_stride;
  p.heads = static_cast<int>(H);
  p.kv_heads = static_cast<int>(G);
  p.T = static_cast<int>(T);
  p.rows = static_cast<int>(rows);
  p.key_tiles = static_cast<int>(rows / flash::tile_keys);
  p.scale = args.scale;
  p.scale_log2 = args.scale * log2_e;

  device::cuda_check(
      cudaMemsetAsync(p.turns, 0, static_cast<size_t>(scratch.turns), stream.handle()),
      "attention_backward: clearing turns");
  constexpr int rows_of_block = rows_threads / (K / 8);
  const dim3 row_blocks(static_cast<unsigned>(ceil_div(rows, rows_of_block)),
                        static_cast<unsigned>(H), static_cast<unsigned>(S));
  prepare_rows_kernel<K><<<row_blocks, rows_threads, 0, stream.handle()>>>(
      {data<bf16>(args.o), data<bf16>(args.dout), args.o.row_stride, args.dout.row_stride,
       data<float>(args.lse), lse, delta, p.heads, p.T, p.rows});
  check_launch("attention_backward rows");

  constexpr auto bytes = static_cast<int>(flash::Shared<K>::bytes);
  device::cuda_check(
      cudaFuncSetAttribute(flash::kernel<K>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
      "attention_backward: shared memory");
  flash::kernel<K>
      <<<static_cast<unsigned>(S * G * p.key_tiles), flash::threads, bytes, stream.handle()>>>(p);
  check_launch("attention_backward flash");

  const dim3 halves(static_cast<unsigned>(2 * p.query_tiles), static_cast<unsigned>(H),
                    static_cast<unsigned>(S));
  finish_dq_kernel<K><<<halves, flash::group_threads, 0, stream.handle()>>>(
      p.dq_sum, data<bf16>(args.dq), args.dq.row_stride, p.heads, p.T, p.scale);
  check_launch("attention_backward dq");
}

// Would the block with the most steps, that of the first keys, run long after the others?
bool has_a_long_tail(int64_t processors, const AttentionBackwardArgs& args) {
  constexpr int64_t short_block = 64;  // steps
  const int64_t K = args.q.shape[2], G = args.k.shape[1], group = args.q.shape[1] / G;
  const int64_t key_tiles = ceil_div(args.max_seq, flash::tile_keys);
  const int64_t longest =
      group * key_tiles * (flash::tile_keys / flash::tile_queries(static_cast<int>(K)));
  const int64_t all = args.sequences * G * longest * (key_tiles + 1) / 2;
  return longest > short_block && longest * processors > 2 * all;
}

}  // namespace

bool FlashAttention::backward(CudaStream& stream, const AttentionBackwardArgs& args) const {
  if (!maps_.is_supported() || args.q.dtype != DType::bf16 || args.dq.dtype != DType::bf16) {
    return false;
  }
  const int64_t K = args.q.shape[2], T = args.max_seq, S = args.sequences, H = args.q.shape[1];
  if ((K != 64 && K != 128) || S > 65535 || H > 65535 || T > 1 << 24) return false;
  if (args.workspace.bytes() < scratch_of(args).bytes()) return false;
  if (has_a_long_tail(stream.cuda_device().multiprocessors(), args)) return false;
  if (K == 64) {
    run<64>(stream, maps_, args);
  } else {
    run<128>(stream, maps_, args);
  }
  return true;
}

}  // namespace trireme::kernels::cuda
