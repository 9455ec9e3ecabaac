// SPDX-License-Identifier: Apache-2.0
// y = silu(gate) up;  dgate = dy up silu'(gate), dup = dy silu(gate);  y = gelu(x);  limits.
// Element by element, bound by memory: 6, 10 (12 with y) and 4 bytes an element of y in bf16. A
// thread moves 16 bytes of each operand; blockIdx.x is the row, or the first of some rows if the
// kernel also raises the largest magnitude of what it writes: that is done once a block.
#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/quantize/magnitude.cuh"
#include "kernels/cuda/table_ops.h"
#include "kernels/cuda/values.cuh"

namespace trireme::kernels::cuda {
namespace {

constexpr int max_threads = 256;

// The first column of this thread's W elements of the row blockIdx.x.
template <int W>
__device__ int64_t first_column() {
  return (static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * W;
}

// Calls work(t, c, largest) for the rows and columns of this thread; `largest` are the values
// that it writes.
constexpr int raised_rows = 8;
template <typename T, int W, bool raises, typename Work>
__device__ void over_rows(int64_t rows, int64_t cols, uint32_t* amax, const Work& work) {
  const int64_t c = first_column<W>();
  Largest<T> largest;
  if constexpr (!raises) {
    if (c < cols) work(static_cast<int64_t>(blockIdx.x), c, largest);
  } else {
    __shared__ uint32_t shared[max_threads / warp_size];
    const int64_t first = static_cast<int64_t>(blockIdx.x) * raised_rows;
    const int64_t end = first + raised_rows < rows ? first + raised_rows : rows;
#pragma unroll 2
    for (int64_t t = first; t < end; ++t) {
      if (c < cols) work(t, c, largest);
    }
    raise_by_block(amax, largest.bits(), shared);
  }
}

template <typename T, int W, bool raises>
__global__ void __launch_bounds__(max_threads)
    swiglu_forward_kernel(InRows gate_up, OutRows y, int64_t rows, int64_t F, uint32_t* amax) {
  over_rows<T, W, raises>(rows, F, amax, [&](int64_t t, int64_t c, Largest<T>& largest) {
    float gate[W], up[W];
    load_values(gate_up.row<T>(t) + c, gate);
    load_values(gate_up.row<T>(t) + F + c, up);
#pragma unroll
    for (int j = 0; j < W; ++j) gate[j] = silu(gate[j]).value * up[j];
    store_values(y.row<T>(t) + c, gate, largest);
  });
}

// Each thread reads its gate and up before it writes them: dgate_up may be gate_up. y, if present,
// is computed as in the forward.
template <typename T, int W, bool raises>
__global__ void __launch_bounds__(max_threads)
    swiglu_backward_kernel(InRows gate_up, InRows dy, OutRows dgate_up, OutRows y, int64_t rows,
                           int64_t F, uint32_t* amax) {
  over_rows<T, W, raises>(rows, F, amax, [&](int64_t t, int64_t c, Largest<T>& largest) {
    float gate[W], up[W], grad[W], result[W];
    load_values(gate_up.row<T>(t) + c, gate);
    load_values(gate_up.row<T>(t) + F + c, up);
    load_values(dy.row<T>(t) + c, grad);
#pragma unroll
    for (int j = 0; j < W; ++j) {
      const Silu s = silu(gate[j]);
      result[j] = s.value * up[j];
      gate[j] = grad[j] * up[j] * s.derivative;
      up[j] = grad[j] * s.value;
    }
    store_values(dgate_up.row<T>(t) + c, gate, largest);
    store_values(dgate_up.row<T>(t) + F + c, up, largest);
    if (y.data != nullptr) store_values(y.row<T>(t) + c, result);
  });
}

template <typename T, int W, bool raises>
__global__ void __launch_bounds__(max_threads)
    gelu_forward_kernel(InRows x, OutRows y, int64_t rows, int64_t F, uint32_t* amax) {
  over_rows<T, W, raises>(rows, F, amax, [&](int64_t t, int64_t c, Largest<T>& largest) {
    float values[W];
    load_values(x.row<T>(t) + c, values);
#pragma unroll
    for (int j = 0; j < W; ++j) values[j] = gelu(values[j]);
    store_values(y.row<T>(t) + c, values, largest);
  });
}

// With dy y is the gradient: dy where x is within the limits.
template <typename T, int W>
__global__ void __launch_bounds__(max_threads)
    clamp_kernel(InRows x, InRows dy, OutRows y, int64_t F, float limit) {
  const int64_t t = blockIdx.x, c = first_column<W>();
  if (c >= F) return;
  float values[W], grads[W];
  load_values(x.row<T>(t) + c, values);
  if (dy.data != nullptr) {
    load_values(dy.row<T>(t) + c, grads);
#pragma unroll
    for (int j = 0; j < W; ++j) {
      values[j] = values[j] >= -limit && values[j] <= limit ? grads[j] : 0.0F;
    }
  } else {
#pragma unroll
    for (int j = 0; j < W; ++j) {
      values[j] = values[j] < -limit ? -limit : values[j] > limit ? limit : values[j];
    }
  }
  store_values(y.row<T>(t) + c, values);
}

// The blocks of kernels that also raise largest magnitudes have several rows.
int64_t row_blocks(int64_t rows, bool raises) {
  return raises ? ceil_div(rows, raised_rows) : rows;
}

// The number of threads that cover `rows` rows of `cols` elements, W each.
struct Cover {
  dim3 grid, block;
};
Cover cover(int64_t rows, int64_t cols, int64_t W) {
  const int64_t moves = ceil_div(cols, W);
  const int64_t threads =
      moves < max_threads ? ceil_div(moves, warp_size) * warp_size : max_threads;
  const int64_t chunks = ceil_div(moves, threads);
  TRIREME_CHECK(chunks <= 65535, "swiglu: rows of {} elements are too long", cols);
  return {dim3(grid_of(rows), static_cast<unsigned>(chunks)), dim3(static_cast<unsigned>(threads))};
}

}  // namespace

void swiglu_forward(Stream& stream, const SwigluForwardArgs& args) {
  const int64_t T = args.y.rows(), F = args.y.cols();
  if (T == 0 || F == 0) return;
  const cudaStream_t handle = device::cuda_stream(stream).handle();
  const InRows gate_up = in_rows(args.gate_up);
  const OutRows y = out_rows(args.y);
  uint32_t* amax = amax_bits(args.amax);
  const auto run = [&](const Cover& c, auto kernel) {
    kernel<<<c.grid, c.block, 0, handle>>>(gate_up, y, T, F, amax);
  };
  with_real_type(args.y.dtype, [&](auto* type) {
    using E = std::remove_pointer_t<decltype(type)>;
    constexpr int W = Vec<E>::width;
    if (is_vectorisable(args.gate_up) && is_vectorisable(args.y)) {
      const Cover c = cover(row_blocks(T, amax != nullptr), F, W);
      run(c,
          amax != nullptr ? swiglu_forward_kernel<E, W, true> : swiglu_forward_kernel<E, W, false>);
    } else {
      const Cover c = cover(row_blocks(T, amax != nullptr), F, 1);
      run(c,
          amax != nullptr ? swiglu_forward_kernel<E, 1, true> : swiglu_forward_kernel<E, 1, false>);
    }
  });
  check_launch("swiglu_forward");
}

void swiglu_backward(Stream& stream, const SwigluBackwardArgs& args) {
  const int64_t T = args.dy.rows(), F = args.dy.cols();
  if (T == 0 || F == 0) return;
  const cudaStream_t handle = device::cuda_stream(stream).handle();
  const InRows gate_up = in_rows(args.gate_up), dy = in_rows(args.dy);
  const OutRows d = out_rows(args.dgate_up), y = out_rows(args.y);
  uint32_t* amax = amax_bits(args.amax);
  const auto run = [&](const Cover& c, auto kernel) {
    kernel<<<c.grid, c.block, 0, handle>>>(gate_up, dy, d, y, T, F, amax);
  };
  with_real_type(args.dy.dtype, [&](auto* type) {
    using E = std::remove_pointer_t<decltype(type)>;
    constexpr int W = Vec<E>::width;
    if (is_vectorisable(args.gate_up) && is_vectorisable(args.dy) &&
        is_vectorisable(args.dgate_up) && (!args.y || is_vectorisable(args.y))) {
      const Cover c = cover(row_blocks(T, amax != nullptr), F, W);
      run(c, amax != nullptr ? swiglu_backward_kernel<E, W, true>
                             : swiglu_backward_kernel<E, W, false>);
    } else {
      const Cover c = cover(row_blocks(T, amax != nullptr), F, 1);
      run(c, amax != nullptr ? swiglu_backward_kernel<E, 1, true>
                             : swiglu_backward_kernel<E, 1, false>);
    }
  });
  check_launch("swiglu_backward");
}

void gelu_forward(Stream& stream, const GeluForwardArgs& args) {
  const int64_t T = args.x.rows(), F = args.x.cols();
  if (T == 0 || F == 0) return;
  const cudaStream_t handle = device::cuda_stream(stream).handle();
  const InRows x = in_rows(args.x);
  const OutRows y = out_rows(args.y);
  uint32_t* amax = amax_bits(args.amax);
  const auto run = [&](const Cover& c, auto kernel) {
    kernel<<<c.grid, c.block, 0, handle>>>(x, y, T, F, amax);
  };
  with_real_type(args.x.dtype, [&](auto* type) {
    using E = std::remove_pointer_t<decltype(type)>;
    constexpr int W = Vec<E>::width;
    if (is_vectorisable(args.x) && is_vectorisable(args.y)) {
      const Cover c = cover(row_blocks(T, amax != nullptr), F, W);
      run(c, amax != nullptr ? gelu_forward_kernel<E, W, true> : gelu_forward_kernel<E, W, false>);
    } else {
      const Cover c = cover(row_blocks(T, amax != nullptr), F, 1);
      run(c, amax != nullptr ? gelu_forward_kernel<E, 1, true> : gelu_forward_kernel<E, 1, false>);
    }
  });
  check_launch("gelu_forward");
}

void clamp(Stream& stream, const ClampArgs& args) {
  const int64_t T = args.x.rows(), F = args.x.cols();
  if (T == 0 || F == 0) return;
  const cudaStream_t handle = device::cuda_stream(stream).handle();
  const InRows x = in_rows(args.x), dy = in_rows(args.dy);
  const OutRows y = out_rows(args.y);
  with_real_type(args.x.dtype, [&](auto* type) {
    using E = std::remove_pointer_t<decltype(type)>;
    constexpr int W = Vec<E>::width;
    if (is_vectorisable(args.x) && is_vectorisable(args.y) &&
        (!args.dy || is_vectorisable(args.dy))) {
      const Cover c = cover(T, F, W);
      clamp_kernel<E, W><<<c.grid, c.block, 0, handle>>>(x, dy, y, F, args.limit);
    } else {
      const Cover c = cover(T, F, 1);
      clamp_kernel<E, 1><<<c.grid, c.block, 0, handle>>>(x, dy, y, F, args.limit);
    }
  });
  check_launch("clamp");
}

}  // namespace trireme::kernels::cuda
