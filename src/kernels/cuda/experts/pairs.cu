// SPDX-License-Identifier: Apache-2.0
// Moves rows between pairs and groups: gather_pairs copies a row for every pair, sum_pairs adds the
// rows of a token's pairs in order. Both are bound by memory: a thread moves 16 bytes at a time and
// has several rows in flight. Copies of a token's row lie far apart, so that a gather reads it from
// memory again for each; where they are known, a token writes them all.
#include "kernels/cuda/table_ops.h"
#include "kernels/cuda/values.cuh"

namespace trireme::kernels::cuda {
namespace {

constexpr int threads_of_rows = 256;
constexpr int rows_in_flight = 4, tokens_in_flight = 2;
constexpr int rows_without_source = 64;  // of a block, that are looked for

// A block covers rows (blockIdx.x high, ..) and columns of chunks (blockIdx.y).
struct Cover {
  dim3 grid, block;
};
Cover cover_rows(int64_t rows, int64_t chunks, int rows_of_thread) {
  int wide = 1;
  while (wide < chunks && wide < threads_of_rows) wide *= 2;
  const int high = threads_of_rows / wide;
  const int64_t columns = ceil_div(chunks, wide);
  TRIREME_CHECK(columns <= 65535, "rows of {} chunks are too long", chunks);
  return {
      dim3(grid_of(ceil_div(rows, int64_t{high} * rows_of_thread)), static_cast<unsigned>(columns)),
      dim3(static_cast<unsigned>(wide), static_cast<unsigned>(high))};
}

// Element is a chunk of a row: 16 bytes, or one element. Strides are in chunks.
template <typename Element>
struct Gather {
  const Element* x;
  const int32_t* source;
  const int32_t* end;  // may be null
  Element* d;
  int64_t x_stride, d_stride, chunks, rows;
  int divisor;
};

template <typename Element>
__global__ void __launch_bounds__(threads_of_rows) gather_kernel(Gather<Element> p) {
  const int64_t column = static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x;
  const int64_t first =
      static_cast<int64_t>(blockIdx.x) * rows_in_flight * blockDim.y + threadIdx.y;
  const int64_t end = p.end == nullptr ? p.rows : min(p.rows, static_cast<int64_t>(*p.end));
  if (column >= p.chunks) return;
  int source[rows_in_flight];
  Element values[rows_in_flight];
#pragma unroll
  for (int i = 0; i < rows_in_flight; ++i) {
    const int64_t row = first + i * blockDim.y;
    source[i] = row < end ? p.source[row] : -1;
  }
#pragma unroll
  for (int i = 0; i < rows_in_flight; ++i) {
    values[i] = Element{};
    if (source[i] >= 0) {
      values[i] = p.x[static_cast<int64_t>(source[i] / p.divisor) * p.x_stride + column];
    }
  }
#pragma unroll
  for (int i = 0; i < rows_in_flight; ++i) {
    const int64_t row = first + i * blockDim.y;
    if (row < end) p.d[row * p.d_stride + column] = values[i];
  }
}

// The first `blocks` blocks write the copies of rows of x, the others the rows without a source.
struct Copies {
  const uint4* x;
  const int32_t *place, *source;
  const int32_t* end;  // may be null
  uint4* d;
  int64_t x_stride, d_stride, chunks, tokens, rows;
  int chosen;
  unsigned blocks;
};

__global__ void __launch_bounds__(threads_of_rows) copies_kernel(Copies p) {
  const int64_t column = static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x;
  const int64_t end = p.end == nullptr ? p.rows : min(p.rows, static_cast<int64_t>(*p.end));
  if (column >= p.chunks) return;
  if (blockIdx.x >= p.blocks) {
    const int64_t first = static_cast<int64_t>(blockIdx.x - p.blocks) * rows_without_source;
    for (int64_t row = first + threadIdx.y; row < min(end, first + rows_without_source);
         row += blockDim.y) {
      if (p.source[row] < 0) p.d[row * p.d_stride + column] = uint4{};
    }
    return;
  }
  const int64_t first =
      static_cast<int64_t>(blockIdx.x) * tokens_in_flight * blockDim.y + threadIdx.y;
  uint4 values[tokens_in_flight];
#pragma unroll
  for (int i = 0; i < tokens_in_flight; ++i) {
    const int64_t token = first + i * blockDim.y;
    if (token < p.tokens) values[i] = p.x[token * p.x_stride + column];
  }
#pragma unroll
  for (int i = 0; i < tokens_in_flight; ++i) {
    const int64_t token = first + i * blockDim.y;
    if (token >= p.tokens) continue;
    const int32_t* place = p.place + token * p.chosen;
#pragma unroll 8
    for (int k = 0; k < p.chosen; ++k) {
      const int row = place[k];
      if (row >= 0 && row < end) p.d[row * p.d_stride + column] = values[i];
    }
  }
}

void queue_copies(cudaStream_t stream, const GatherPairsArgs& args) {
  const int64_t width = 16 / base::size_of(args.d.dtype), chunks = args.d.cols() / width;
  Cover c = cover_rows(args.x.rows(), chunks, tokens_in_flight);
  const Copies p = {.x = data<uint4>(args.x),
                    .place = data<int32_t>(args.place),
                    .source = data<int32_t>(args.source),
                    .end = args.end ? data<int32_t>(args.end) : nullptr,
                    .d = data<uint4>(args.d),
                    .x_stride = args.x.row_stride / width,
                    .d_stride = args.d.row_stride / width,
                    .chunks = chunks,
                    .tokens = args.x.rows(),
                    .rows = args.d.rows(),
                    .chosen = static_cast<int>(args.divisor),
                    .blocks = c.grid.x};
  c.grid.x = grid_of(c.grid.x + ceil_div(p.rows, rows_without_source));
  copies_kernel<<<c.grid, c.block, 0, stream>>>(p);
  check_launch("gather_pairs");
}

template <typename Element>
void queue_gather(cudaStream_t stream, const GatherPairsArgs& args) {
  const int64_t width = static_cast<int64_t>(sizeof(Element)) / base::size_of(args.d.dtype);
  const Gather<Element> p = {.x = data<Element>(args.x),
                             .source = data<int32_t>(args.source),
                             .end = args.end ? data<int32_t>(args.end) : nullptr,
                             .d = data<Element>(args.d),
                             .x_stride = args.x.row_stride / width,
                             .d_stride = args.d.row_stride / width,
                             .chunks = args.d.cols() / width,
                             .rows = args.d.rows(),
                             .divisor = static_cast<int>(args.divisor)};
  const Cover c = cover_rows(p.rows, p.chunks, rows_in_flight);
  gather_kernel<Element><<<c.grid, c.block, 0, stream>>>(p);
  check_launch("gather_pairs");
}

struct Sum {
  InRows rows, residual, other;
  const int32_t* place;  // [tokens, chosen]
  OutRows y;
  int64_t tokens, width;
  int chosen;
};

template <int W>
__device__ void add(float (&sum)[W], const float (&values)[W]) {
#pragma unroll
  for (int j = 0; j < W; ++j) sum[j] += values[j];
}

template <typename T, int W>
__global__ void __launch_bounds__(threads_of_rows) sum_kernel(Sum p) {
  constexpr int in_flight = 8;
  using Bits = std::conditional_t<W == 1, T, uint4>;  // as in memory: fewer registers
  const int64_t column = (static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * W;
  const int64_t token = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (column >= p.width || token >= p.tokens) return;
  float sum[W] = {}, values[W];
  if (p.residual.data != nullptr) load_values(p.residual.row<T>(token) + column, sum);
  if (p.other.data != nullptr) {
    load_values(p.other.row<T>(token) + column, values);
    add(sum, values);
  }
  for (int first = 0; first < p.chosen; first += in_flight) {
    int place[in_flight];
    Bits bits[in_flight];
#pragma unroll
    for (int i = 0; i < in_flight; ++i) {
      place[i] = first + i < p.chosen ? p.place[token * p.chosen + first + i] : -1;
    }
#pragma unroll
    for (int i = 0; i < in_flight; ++i) {
      if (place[i] >= 0) {
        bits[i] = *reinterpret_cast<const Bits*>(p.rows.row<T>(place[i]) + column);
      }
    }
#pragma unroll
    for (int i = 0; i < in_flight; ++i) {
      if (place[i] < 0) continue;
      if constexpr (W == 1) {
        values[0] = load(&bits[i]);
      } else {
        unpack<T>(bits[i], values);
      }
      add(sum, values);
    }
  }
  store_values(p.y.row<T>(token) + column, sum);
}

}  // namespace

void gather_pairs(Stream& stream, const GatherPairsArgs& args) {
  if (args.d.rows() == 0 || args.d.cols() == 0) return;
  TRIREME_CHECK(args.divisor <= INT32_MAX, "gather_pairs: divisor {}", args.divisor);
  const cudaStream_t handle = device::cuda_stream(stream).handle();
  const bool is_fast = is_vectorisable(args.x) && is_vectorisable(args.d);
  if (is_fast && args.place && args.divisor > 1 && args.x.rows() > 0) {
    queue_copies(handle, args);
  } else if (is_fast) {
    queue_gather<uint4>(handle, args);
  } else if (base::size_of(args.d.dtype) == 4) {
    queue_gather<uint32_t>(handle, args);
  } else {
    TRIREME_CHECK(base::size_of(args.d.dtype) == 2, "gather_pairs: rows of {}",
                  base::name_of(args.d.dtype));
    queue_gather<uint16_t>(handle, args);
  }
}

void sum_pairs(Stream& stream, const SumPairsArgs& args) {
  const int64_t tokens = args.y.rows(), width = args.y.cols();
  if (tokens == 0 || width == 0) return;
  const Sum p = {.rows = in_rows(args.rows),
                 .residual = in_rows(args.residual),
                 .other = in_rows(args.other),
                 .place = data<int32_t>(args.place),
                 .y = out_rows(args.y),
                 .tokens = tokens,
                 .width = width,
                 .chosen = static_cast<int>(args.place.cols())};
  const cudaStream_t handle = device::cuda_stream(stream).handle();
  with_real_type(args.y.dtype, [&](auto* type) {
    using E = std::remove_pointer_t<decltype(type)>;
    constexpr int W = Vec<E>::width;
    const base::DType dtype = args.y.dtype;
    const bool is_fast = is_fast_matrix(args.rows, dtype) && is_fast_matrix(args.residual, dtype) &&
                         is_fast_matrix(args.other, dtype) && is_fast_matrix(args.y, dtype);
    const Cover c = cover_rows(tokens, is_fast ? width / W : width, 1);
    const auto kernel = is_fast ? sum_kernel<E, W> : sum_kernel<E, 1>;
    kernel<<<c.grid, c.block, 0, handle>>>(p);
  });
  check_launch("sum_pairs");
}

}  // namespace trireme::kernels::cuda
