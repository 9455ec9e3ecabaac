// SPDX-License-Identifier: Apache-2.0
// The ranges of rows and tiles, delta, and the choice between the kernels.
#include <climits>

#include "base/check.h"
#include "base/error.h"
#include "kernels/cuda/attention/attention_problem.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/values.cuh"

namespace trireme::kernels::cuda {
namespace {

constexpr int row_threads = 256;

// Where the ranges come from: documents if `offsets` is given, key_begin and key_end if those are,
// otherwise sequences of `length` tokens.
struct Source {
  const int32_t* offsets = nullptr;
  int offset_count = 0;
  const int32_t *key_begin = nullptr, *key_end = nullptr;
  int length = 0;
  int64_t fused_length = no_fused_length;
  bool causal = true;
};

// The sequence of token t: offsets[i] <= t < offsets[i + 1], by bisection.
__device__ int2 sequence_of(const Source& s, int t) {
  if (s.offsets == nullptr) return {t / s.length * s.length, t / s.length * s.length + s.length};
  int low = 0, high = s.offset_count - 1;  // offsets[low] <= t < offsets[high]
  while (high - low > 1) {
    const int middle = low + (high - low) / 2;
    if (s.offsets[middle] <= t) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return {s.offsets[low], s.offsets[high]};
}

__global__ void __launch_bounds__(row_threads) rows_kernel(Source s, RowKeys* rows, int tokens) {
  const int t = static_cast<int>(blockIdx.x * row_threads + threadIdx.x);
  if (t >= tokens) return;
  if (s.key_begin != nullptr) {
    const int begin = s.key_begin[t], end = s.key_end[t];
    rows[t] = {begin < end ? begin : 0, begin < end ? end : 0, 0, tokens};
    return;
  }
  const int2 sequence = sequence_of(s, t);
  const int length = sequence.y - sequence.x;
  const bool is_other = length >= s.fused_length;
  rows[t] = {is_other ? -1 : sequence.x, is_other ? -1 : (s.causal ? t + 1 : sequence.y),
             sequence.x, length};
}

// A warp for each tile; a lane takes two rows.
__global__ void __launch_bounds__(row_threads)
    tiles_kernel(const RowKeys* rows, TileKeys* tiles, int tokens) {
  const int tile = static_cast<int>(blockIdx.x * row_threads + threadIdx.x) / warp_size;
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  if (tile * tile_rows >= tokens) return;
  int begin = INT_MAX, end = 0, all_begin = 0, all_end = INT_MAX;
  for (int t = tile * tile_rows + lane; t < min((tile + 1) * tile_rows, tokens); t += warp_size) {
    const RowKeys row = rows[t];
    if (row.begin < row.end) {
      begin = min(begin, row.begin);
      end = max(end, row.end);
    }
    all_begin = max(all_begin, row.begin);
    all_end = min(all_end, row.end);
  }
  begin = __reduce_min_sync(0xffffffffU, begin);
  end = __reduce_max_sync(0xffffffffU, end);
  all_begin = __reduce_max_sync(0xffffffffU, all_begin);
  all_end = __reduce_min_sync(0xffffffffU, all_end);
  if (lane == 0) tiles[tile] = {min(begin, end), end, all_begin, all_end};
}

// A warp for each token and head. Reads 2 T H K elements, a small part of the whole backward.
__global__ void __launch_bounds__(row_threads) delta_kernel(AttentionProblem p) {
  const int64_t row =
      static_cast<int64_t>(blockIdx.x) * (row_threads / warp_size) + threadIdx.x / warp_size;
  if (row >= static_cast<int64_t>(p.tokens) * p.heads) return;
  const int64_t t = row / p.heads, head = row % p.heads;
  const InRows o = {p.o.data, p.o.row_stride, p.o.dtype};
  const InRows dout = {p.dout.data, p.dout.row_stride, p.dout.dtype};
  float sum = 0;
  for (int c = static_cast<int>(threadIdx.x) % warp_size; c < p.K; c += warp_size) {
    sum += o.get(t, head * p.K + c) * dout.get(t, head * p.K + c);
  }
  sum = warp_sum(sum);
  if (threadIdx.x % warp_size == 0) p.delta[head * p.tokens + t] = sum;
}

template <typename T>
HeadRows head_rows(const T& t) {
  if (!t) return {};
  const int64_t size = base::size_of(t.dtype);
  const bool is_vector = reinterpret_cast<uintptr_t>(t.data) % 16 == 0 &&
                         t.row_stride * size % 16 == 0 && t.shape[2] * size % 16 == 0;
  TRIREME_CHECK(base::is_real(t.dtype), "{} is not f32, bf16 or f16", base::name_of(t.dtype));
  return {const_cast<std::byte*>(t.data), t.row_stride, t.dtype, is_vector};
}

int64_t row_bytes(int64_t tokens) {
  return base::round_up(tokens * static_cast<int64_t>(sizeof(RowKeys)), base::grain_bytes);
}

template <typename Args>
AttentionProblem common_problem(const Args& args) {
  AttentionProblem p;
  p.q = head_rows(args.q);
  p.k = head_rows(args.k);
  p.v = head_rows(args.v);
  p.o = head_rows(args.o);
  p.lse = reinterpret_cast<float*>(const_cast<std::byte*>(args.lse.data));
  p.tokens = static_cast<int>(args.q.rows());
  p.keys = static_cast<int>(args.k.rows());
  p.heads = static_cast<int>(args.q.shape[1]);
  p.kv_heads = static_cast<int>(args.k.shape[1]);
  p.K = static_cast<int>(args.q.shape[2]);
  p.scale = args.scale;
  if (p.K > max_attention_head_dim) {
    throw base::ConfigError(
        fmt::format("attention on a GPU: head size {} is not supported; the maximum is {}", p.K,
                    max_attention_head_dim));
  }
  return p;
}

template <typename Args>
void add_gradients(const char* op, const Args& args, AttentionProblem& p) {
  p.dout = head_rows(args.dout);
  p.dq = head_rows(args.dq);
  p.dk = head_rows(args.dk);
  p.dv = head_rows(args.dv);
  const int64_t delta_rows = args.q.rows() * args.q.shape[1];
  TRIREME_CHECK(args.workspace && args.workspace.dtype == base::DType::f32 &&
                    args.workspace.is_contiguous() && args.workspace.elements() >= delta_rows,
                "{}: workspace {} for {} sums of dout * o", op, args.workspace.shape.to_string(),
                delta_rows);
  p.delta = data<float>(args.workspace);
}

template <typename Args>
Source source_of(const Args& args, int64_t fused_length) {
  TRIREME_CHECK(args.seq_offsets.is_contiguous(), "attention: seq_offsets has stride {}, not 1",
                args.seq_offsets.row_stride);
  TRIREME_CHECK(args.has_documents || args.sequences * args.max_seq == args.q.rows(),
                "attention: {} sequences of {} tokens are not {} tokens", args.sequences,
                args.max_seq, args.q.rows());
  return {.offsets = args.has_documents ? data<int32_t>(args.seq_offsets) : nullptr,
          .offset_count = static_cast<int>(args.seq_offsets.rows()),
          .length = static_cast<int>(args.max_seq),
          .fused_length = fused_length,
          .causal = args.causal};
}
template <typename Args>
Source ranges_of(const Args& args) {
  TRIREME_CHECK(args.key_begin.is_contiguous() && args.key_end.is_contiguous(),
                "attention: key_begin and key_end have strides {} and {}, not 1",
                args.key_begin.row_stride, args.key_end.row_stride);
  return {.key_begin = data<int32_t>(args.key_begin), .key_end = data<int32_t>(args.key_end)};
}

void fill_rows(device::CudaStream& stream, const Source& source, AttentionProblem& p) {
  const Tensor workspace = stream.workspace();
  TRIREME_CHECK(workspace && workspace.bytes() >= problem_bytes(p.tokens) &&
                    reinterpret_cast<uintptr_t>(workspace.data) % 16 == 0,
                "attention: {} tokens need {} bytes, stream '{}' has a workspace of {}", p.tokens,
                problem_bytes(p.tokens), stream.name(), workspace ? workspace.bytes() : 0);
  auto* rows = reinterpret_cast<RowKeys*>(workspace.data);
  auto* tiles = reinterpret_cast<TileKeys*>(workspace.data + row_bytes(p.tokens));
  rows_kernel<<<grid_of(ceil_div(p.tokens, row_threads)), row_threads, 0, stream.handle()>>>(
      source, rows, p.tokens);
  check_launch("attention rows");
  const int64_t tile_count = ceil_div(p.tokens, tile_rows);
  tiles_kernel<<<grid_of(ceil_div(tile_count * warp_size, row_threads)), row_threads, 0,
                 stream.handle()>>>(rows, tiles, p.tokens);
  check_launch("attention tiles");
  p.rows = rows;
  p.tiles = tiles;
}

}  // namespace

int64_t problem_bytes(int64_t tokens) {
  const int64_t tiles = ceil_div(tokens, tile_rows) * static_cast<int64_t>(sizeof(TileKeys));
  return row_bytes(tokens) + base::round_up(tiles, base::grain_bytes);
}

AttentionProblem problem_of(device::CudaStream& stream, const AttentionForwardArgs& args,
                            int64_t fused_length) {
  AttentionProblem p = common_problem(args);
  p.is_self = true;
  fill_rows(stream, source_of(args, fused_length), p);
  return p;
}
AttentionProblem problem_of(device::CudaStream& stream, const AttentionBackwardArgs& args,
                            int64_t fused_length) {
  AttentionProblem p = common_problem(args);
  add_gradients("attention_backward", args, p);
  p.is_self = true;
  fill_rows(stream, source_of(args, fused_length), p);
  return p;
}
AttentionProblem problem_of(device::CudaStream& stream, const AttentionRangesForwardArgs& args) {
  AttentionProblem p = common_problem(args);
  fill_rows(stream, ranges_of(args), p);
  return p;
}
AttentionProblem problem_of(device::CudaStream& stream, const AttentionRangesBackwardArgs& args) {
  AttentionProblem p = common_problem(args);
  add_gradients("attention_ranges_backward", args, p);
  p.accumulates = args.accumulates;
  fill_rows(stream, ranges_of(args), p);
  return p;
}

void attention_delta(const device::CudaStream& stream, const AttentionProblem& p) {
  const int64_t blocks = ceil_div(int64_t{p.tokens} * p.heads, row_threads / warp_size);
  delta_kernel<<<grid_of(blocks), row_threads, 0, stream.handle()>>>(p);
  check_launch("attention delta");
}

void attention_forward(const device::CudaStream& stream, const AttentionProblem& p) {
  is_tensor_core_problem(p) ? tensor_core_forward(stream, p) : general_forward(stream, p);
}

void attention_backward(const device::CudaStream& stream, const AttentionProblem& p) {
  attention_delta(stream, p);
  if (is_tensor_core_problem(p)) {
    tensor_core_dq(stream, p);
    tensor_core_dkv(stream, p);
  } else {
    general_dq(stream, p);
    general_dkv(stream, p);
  }
}

}  // namespace trireme::kernels::cuda
