// SPDX-License-Identifier: Apache-2.0
// Ops that set, move or add elements: fill, copy, accumulate, init_normal. All are bound by memory:
// their time is the bytes that they touch divided by the bandwidth.
#include "kernels/cuda/elementwise.cuh"

#include <bit>
#include <cmath>
#include <type_traits>

#include "base/float16.h"
#include "base/rng.h"
#include "base/split_float.h"
#include "kernels/cuda/table_ops.h"

namespace trireme::kernels::cuda {
namespace {

cudaStream_t handle_of(Stream& stream) { return device::cuda_stream(stream).handle(); }

// ---- fill: repeats the bit pattern of one element

template <typename Bits, int W>
__global__ void fill_kernel(Extent extent, Bits* d, int64_t d_stride, Bits bits) {
  Chunk<Bits, W> chunk;
#pragma unroll
  for (int i = 0; i < W; ++i) chunk.at[i] = bits;
  for_each_chunk<W>(extent, [&](int64_t row, int64_t col, int64_t count) {
    chunk.store(d + row * d_stride + col, count);
  });
}

template <typename Bits>
void fill_with(cudaStream_t stream, const Tensor& d, Bits bits) {
  const Extent extent = common_extent(d, d);
  constexpr int wide = Vec<Bits>::width;
  if (has_aligned_rows(d, extent)) {
    const auto [grid, block] = launch_shape(extent, wide);
    fill_kernel<Bits, wide><<<grid, block, 0, stream>>>(extent, data<Bits>(d), d.row_stride, bits);
  } else {
    const auto [grid, block] = launch_shape(extent, 1);
    fill_kernel<Bits, 1><<<grid, block, 0, stream>>>(extent, data<Bits>(d), d.row_stride, bits);
  }
  check_launch("fill");
}

// ---- copy, accumulate

// Elements of equal type are copied as bits: every NaN keeps its bits.
struct Copy {
  static constexpr bool reads_d = false;
  template <typename X, typename D>
  __device__ void operator()(const X& x, D& d) const {
    if constexpr (std::is_same_v<X, D>) {
      d = x;
    } else {
      store(&d, load(&x));
    }
  }
};

struct Accumulate {
  static constexpr bool reads_d = true;
  template <typename X, typename D>
  __device__ void operator()(const X& x, D& d) const {
    store(&d, load(&d) + load(&x));
  }
};

struct Maximum {
  static constexpr bool reads_d = true;
  __device__ void operator()(float x, float& d) const {
    if (x > d || isnan(x)) d = x;
  }
};

template <typename Op, typename X, typename D, int W>
__global__ void combine_kernel(Extent extent, const X* x, int64_t x_stride, D* d,
                               int64_t d_stride) {
  for_each_chunk<W>(extent, [&](int64_t row, int64_t col, int64_t count) {
    D* to = d + row * d_stride + col;
    const auto from = Chunk<X, W>::load(x + row * x_stride + col, count);
    Chunk<D, W> chunk;
    if constexpr (Op::reads_d) chunk = Chunk<D, W>::load(to, count);
#pragma unroll
    for (int i = 0; i < W; ++i) Op{}(from.at[i], chunk.at[i]);
    chunk.store(to, count);
  });
}

template <typename Op, typename X, typename D>
void combine_as(Stream& stream, const ConstTensor& x, const Tensor& d, const char* name) {
  const Extent extent = common_extent(x, d);
  if (extent.rows == 0) return;
  constexpr int wide = chunk_width<X, D>;
  const X* from = data<X>(x);
  D* to = data<D>(d);
  if (has_aligned_rows(x, extent) && has_aligned_rows(d, extent)) {
    const auto [grid, block] = launch_shape(extent, wide);
    combine_kernel<Op, X, D, wide>
        <<<grid, block, 0, handle_of(stream)>>>(extent, from, x.row_stride, to, d.row_stride);
  } else {
    const auto [grid, block] = launch_shape(extent, 1);
    combine_kernel<Op, X, D, 1>
        <<<grid, block, 0, handle_of(stream)>>>(extent, from, x.row_stride, to, d.row_stride);
  }
  check_launch(name);
}

template <typename Op>
void combine(Stream& stream, const ConstTensor& x, const Tensor& d, const char* name) {
  with_real_type(x.dtype, [&](auto* x_type) {
    with_real_type(d.dtype, [&](auto* d_type) {
      using X = std::remove_pointer_t<decltype(x_type)>;
      using D = std::remove_pointer_t<decltype(d_type)>;
      if constexpr (mixes_16_bits<X, D>)
        return refuse_mixed_16_bits(name);
      else
        combine_as<Op, X, D>(stream, x, d, name);
    });
  });
}

template <int W>
__global__ void split_kernel(Extent extent, const float* x, uint16_t* high, uint16_t* low) {
  for_each_chunk<W>(extent, [&](int64_t, int64_t at, int64_t count) {
    const auto from = Chunk<float, W>::load(x + at, count);
    Chunk<uint16_t, W> upper, lower;
#pragma unroll
    for (int i = 0; i < W; ++i) {
      const uint32_t packed = base::split_bits(__float_as_uint(from.at[i]));
      upper.at[i] = static_cast<uint16_t>(packed >> 16U);
      lower.at[i] = static_cast<uint16_t>(packed);
    }
    upper.store(high + at, count);
    lower.store(low + at, count);
  });
}

void copy_split(Stream& stream, const CopyArgs& args) {
  const Extent extent = {1, args.x.elements()};
  if (extent.cols == 0) return;
  const auto run = [&](auto kernel, int width) {
    const auto [grid, block] = launch_shape(extent, width);
    kernel<<<grid, block, 0, handle_of(stream)>>>(extent, data<float>(args.x),
                                                  data<uint16_t>(args.d), data<uint16_t>(args.low));
  };
  const bool is_aligned = has_aligned_rows(args.x, extent) && has_aligned_rows(args.d, extent) &&
                          has_aligned_rows(args.low, extent);
  is_aligned ? run(split_kernel<8>, 8) : run(split_kernel<1>, 1);
  check_launch("copy");
}

// ---- init_normal: as much arithmetic as memory, and only before the first step; no chunks.

struct Draw {
  base::RngKey key;
  uint64_t first, global_row_stride;
  float std_dev;
};

template <typename D>
__global__ void draw_kernel(Extent extent, D* d, int64_t d_stride, Draw draw) {
  for_each_chunk<1>(extent, [&](int64_t row, int64_t col, int64_t) {
    const uint64_t index = draw.first + static_cast<uint64_t>(row) * draw.global_row_stride +
                           static_cast<uint64_t>(col);
    store(d + row * d_stride + col, base::rng_normal(draw.key, index, draw.std_dev));
  });
}

}  // namespace

void fill(Stream& stream, const FillArgs& args) {
  const Tensor& d = args.d;
  if (d.elements() == 0) return;
  cudaStream_t handle = handle_of(stream);
  const bool is_zero = args.value == 0 && !std::signbit(args.value);
  if (is_zero && d.is_contiguous()) {
    const auto bytes = static_cast<size_t>(d.bytes());
    device::cuda_check(cudaMemsetAsync(d.data, 0, bytes, handle), "fill with zero");
    return;
  }
  switch (d.dtype) {
    case base::DType::f32:
      return fill_with(handle, d, std::bit_cast<uint32_t>(args.value));
    case base::DType::bf16:
      return fill_with(handle, d, base::Bf16(args.value).bits);
    case base::DType::f16:
      return fill_with(handle, d, base::F16(args.value).bits);
    default:
      break;
  }
  TRIREME_CHECK(args.value == 0, "fill: {} with {}", base::name_of(d.dtype), args.value);
  switch (base::size_of(d.dtype)) {
    case 1:
      return fill_with(handle, d, uint8_t{0});
    case 4:
      return fill_with(handle, d, uint32_t{0});
    case 8:
      return fill_with(handle, d, uint64_t{0});
    default:
      TRIREME_CHECK(false, "fill: {}", base::name_of(d.dtype));
  }
}

void copy(Stream& stream, const CopyArgs& args) {
  args.low ? copy_split(stream, args) : combine<Copy>(stream, args.x, args.d, "copy");
}

void accumulate(Stream& stream, const AccumulateArgs& args) {
  if (args.is_max) return combine_as<Maximum, float, float>(stream, args.x, args.d, "accumulate");
  combine<Accumulate>(stream, args.x, args.d, "accumulate");
}

void init_normal(Stream& stream, const InitNormalArgs& args) {
  const Extent extent = {args.d.rows(), args.d.cols()};
  if (args.d.elements() == 0) return;
  const Draw draw = {args.key, args.first, args.global_row_stride, args.std_dev};
  const auto [grid, block] = launch_shape(extent, 1);
  with_real_type(args.d.dtype, [&](auto* type) {
    using D = std::remove_pointer_t<decltype(type)>;
    draw_kernel<D>
        <<<grid, block, 0, handle_of(stream)>>>(extent, data<D>(args.d), args.d.row_stride, draw);
  });
  check_launch("init_normal");
}

}  // namespace trireme::kernels::cuda
