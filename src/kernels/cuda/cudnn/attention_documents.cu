// SPDX-License-Identifier: Apache-2.0
#include "base/check.h"
#include "kernels/cuda/cudnn/attention_documents.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/values.cuh"

namespace trireme::kernels::cuda {
namespace {

constexpr int select_threads = 1024;
constexpr int lse_threads = 256;
constexpr int sum_threads = 256;

// One block; a thread takes a run of documents, so that one scan gives the places of all.
__global__ void __launch_bounds__(select_threads)
    select_kernel(const int32_t* offsets, int documents, DocumentTable table) {
  __shared__ int found[select_threads];
  const int thread = static_cast<int>(threadIdx.x);
  const int run = (documents + select_threads - 1) / select_threads;
  const int first = min(thread * run, documents), end = min(first + run, documents);
  const auto is_long = [&](int i) { return offsets[i + 1] - offsets[i] >= fused_document_length; };
  int count = 0;
#pragma unroll 8
  for (int i = first; i < end; ++i) count += is_long(i) ? 1 : 0;
  found[thread] = count;
  __syncthreads();
  for (int step = 1; step < select_threads; step *= 2) {  // inclusive sums
    const int before = thread >= step ? found[thread - step] : 0;
    __syncthreads();
    found[thread] += before;
    __syncthreads();
  }
  int place = found[thread] - count;
  const int total = found[select_threads - 1];
  const auto write = [&](int64_t at, int64_t begin) {
    for (int s = 0; s < table.stride_count; ++s) table.starts[s][at] = begin * table.strides[s];
  };
  for (int i = first; i < end; ++i) {
    if (!is_long(i)) continue;
    table.lengths[place] = offsets[i + 1] - offsets[i];
    write(place, offsets[i]);
    ++place;
  }
  const int64_t tokens = offsets[documents];
  for (int64_t at = total + thread; at <= table.capacity; at += select_threads) {
    if (at < table.capacity) table.lengths[at] = 0;
    write(at, tokens);
  }
}

__global__ void __launch_bounds__(lse_threads)
    lse_kernel(AttentionProblem p, float* by_head, bool to_by_head) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * lse_threads + threadIdx.x;
  if (i >= static_cast<int64_t>(p.tokens) * p.heads) return;
  const int head = static_cast<int>(i / p.tokens), t = static_cast<int>(i % p.tokens);
  const RowKeys row = p.rows[t];
  if (row.begin >= 0) return;
  float* other = p.lse + lse_index(row, p.heads, head, t);
  if (to_by_head) {
    by_head[i] = *other;
  } else {
    *other = by_head[i];
  }
}

struct SumParams {
  HeadView to;
  const void* parts[max_head_parts];
  int part_count;
  int64_t row_stride, head_stride;
  HeadCount count;
};

// A thread sums eight elements.
__global__ void __launch_bounds__(sum_threads) sum_kernel(SumParams p) {
  constexpr int at_once = 8;
  const int64_t units = p.count.K / at_once;
  const int64_t i = static_cast<int64_t>(blockIdx.x) * sum_threads + threadIdx.x;
  if (i >= p.count.rows * p.count.heads * units) return;
  const int64_t column = i % units * at_once, head = i / units % p.count.heads;
  const int64_t row = i / units / p.count.heads;
  const int64_t from = row * p.row_stride + head * p.head_stride + column;
  float sums[at_once] = {};
  for (int part = 0; part < p.part_count; ++part) {
    float values[at_once];
    unpack<bf16>(load_bits(static_cast<const bf16*>(p.parts[part]) + from), values);
#pragma unroll
    for (int e = 0; e < at_once; ++e) sums[e] += values[e];
  }
  bf16* to = static_cast<bf16*>(p.to.data);
  store_bits(to + row * p.to.row_stride + head * p.to.head_stride + column, pack<bf16>(sums));
}

}  // namespace

void select_documents(const device::CudaStream& stream, const ConstTensor& seq_offsets,
                      const DocumentTable& table) {
  select_kernel<<<1, select_threads, 0, stream.handle()>>>(
      data<int32_t>(seq_offsets), static_cast<int>(seq_offsets.rows() - 1), table);
  check_launch("attention documents");
}

void copy_document_lse(const device::CudaStream& stream, const AttentionProblem& p, float* by_head,
                       bool to_by_head) {
  const int64_t blocks = ceil_div(int64_t{p.tokens} * p.heads, lse_threads);
  lse_kernel<<<grid_of(blocks), lse_threads, 0, stream.handle()>>>(p, by_head, to_by_head);
  check_launch("attention documents lse");
}

void sum_heads(const device::CudaStream& stream, const HeadView& to,
               std::span<const HeadView> parts, const HeadCount& count) {
  TRIREME_CHECK(!parts.empty() && parts.size() <= max_head_parts && to.is_bf16, "a sum of {} parts",
                parts.size());
  SumParams params{.to = to,
                   .parts = {},
                   .part_count = static_cast<int>(parts.size()),
                   .row_stride = parts[0].row_stride,
                   .head_stride = parts[0].head_stride,
                   .count = count};
  for (size_t i = 0; i < parts.size(); ++i) params.parts[i] = parts[i].data;
  const int64_t threads = count.rows * count.heads * (count.K / 8);
  sum_kernel<<<grid_of(ceil_div(threads, sum_threads)), sum_threads, 0, stream.handle()>>>(params);
  check_launch("attention documents sum");
}

}  // namespace trireme::kernels::cuda
