// SPDX-License-Identifier: Apache-2.0
// GELU with its slope, and d = value * x or value * gelu'(x), for products that do not fuse them;
// and the kernels that check candidates of the choice of algorithms.
#include <algorithm>
#include <type_traits>

#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/gemm/gemm_kernels.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/values.cuh"

namespace trireme::kernels::cuda {
namespace {

constexpr int epilogue_threads = 256;
constexpr int wide = 8;  // elements a thread moves at once: 16 bytes of bf16, 32 of f32

// W is 1, or `wide` and then p is aligned to 16 bytes.
template <int W, typename T>
__device__ void load_some(const T* p, float (&to)[W]) {
  constexpr int width = W == 1 ? 1 : Vec<T>::width;
#pragma unroll
  for (int i = 0; i < W; i += width) {
    float part[width];
    load_values(p + i, part);
#pragma unroll
    for (int j = 0; j < width; ++j) to[i + j] = part[j];
  }
}
template <int W, typename T>
__device__ void store_some(T* p, const float (&from)[W]) {
  constexpr int width = W == 1 ? 1 : Vec<T>::width;
#pragma unroll
  for (int i = 0; i < W; i += width) {
    float part[width];
#pragma unroll
    for (int j = 0; j < width; ++j) part[j] = from[i + j];
    store_values(p + i, part);
  }
}

// Rounded as a tensor of this type stores it.
template <typename T>
__device__ float rounded_as(float value) {
  T stored;
  store(&stored, value);
  return load(&stored);
}

// The factor of a value.
struct ByIt {
  template <typename X>
  __device__ static float factor(float x) {
    return x;
  }
};
struct ByGeluGrad {
  template <typename X>
  __device__ static float factor(float x) {
    return rounded_as<X>(gelu_grad(x));
  }
};

// No __restrict__: d may be value or x. A thread reads its elements before it writes them.
template <typename By, typename V, typename X, typename D, int W>
__global__ void __launch_bounds__(epilogue_threads)
    factor_kernel(const V* value, int64_t value_stride, const X* x, int64_t x_stride, D* d,
                  int64_t d_stride, int64_t rows, int64_t cols) {
  const int64_t col = (static_cast<int64_t>(blockIdx.x) * epilogue_threads + threadIdx.x) * W;
  if (col >= cols) return;
  for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    float v[W], u[W];
    load_some(value + row * value_stride + col, v);
    load_some(x + row * x_stride + col, u);
#pragma unroll
    for (int i = 0; i < W; ++i) v[i] *= By::template factor<X>(u[i]);
    store_some(d + row * d_stride + col, v);
  }
}

template <typename T, int W>
__global__ void __launch_bounds__(epilogue_threads)
    gelu_slope_kernel(T* x, int64_t x_stride, T* y, int64_t y_stride, int64_t rows, int64_t cols) {
  const int64_t col = (static_cast<int64_t>(blockIdx.x) * epilogue_threads + threadIdx.x) * W;
  if (col >= cols) return;
  for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    float u[W], result[W];
    load_some(x + row * x_stride + col, u);
#pragma unroll
    for (int i = 0; i < W; ++i) {
      result[i] = gelu(u[i]);
      u[i] = gelu_grad(u[i]);
    }
    store_some(y + row * y_stride + col, result);
    store_some(x + row * x_stride + col, u);
  }
}

__device__ uint64_t warp_sum_of(uint64_t value) {
  for (int offset = warp_size / 2; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(0xffffffffU, value, offset);
  }
  return value;
}

// Integer addition: the sum has the same bits in any order.
__device__ void add_to(uint64_t* total, uint64_t value) {
  value = warp_sum_of(value);
  if (threadIdx.x % warp_size == 0 && value != 0) {
    atomicAdd(reinterpret_cast<unsigned long long*>(total), value);
  }
}

__global__ void __launch_bounds__(epilogue_threads)
    digest_kernel(const uint32_t* words, int64_t count, Digest* digest) {
  uint64_t sum = 0, nonzero = 0;
  const int64_t step = static_cast<int64_t>(gridDim.x) * epilogue_threads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * epilogue_threads + threadIdx.x; i < count;
       i += step) {
    const uint32_t word = words[i];
    // The finaliser of SplitMix64.
    uint64_t h = (static_cast<uint64_t>(i) << 32) + word + 0x9e3779b97f4a7c15U;
    h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9U;
    h = (h ^ (h >> 27)) * 0x94d049bb133111ebU;
    sum += h ^ (h >> 31);
    nonzero += word != 0 ? 1 : 0;
  }
  add_to(&digest->sum, sum);
  add_to(&digest->nonzero, nonzero);
}

__global__ void __launch_bounds__(epilogue_threads)
    gelu_grad_errors_kernel(const bf16* product, int64_t product_stride, const bf16* value,
                            int64_t value_stride, const bf16* x, int64_t x_stride, int64_t rows,
                            int64_t cols, uint64_t* count) {
  uint64_t errors = 0;
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    for (int64_t col = threadIdx.x; col < cols; col += epilogue_threads) {
      const float found = load(product + row * product_stride + col);
      const float v = load(value + row * value_stride + col);
      const float expected = v * gelu_grad(load(x + row * x_stride + col));
      const float bound = 0x1p-6F * fabsf(expected) + 0x1p-8F * fabsf(v) + 1e-30F;
      if (!(fabsf(found - expected) <= bound)) ++errors;  // NaN is an error, too
    }
  }
  add_to(count, errors);
}

dim3 grid_over(const Tensor& d, int width) {
  return {static_cast<unsigned>(ceil_div(d.cols(), int64_t{epilogue_threads} * width)),
          static_cast<unsigned>(std::min<int64_t>(d.rows(), 65535))};
}

template <typename By, typename V, typename X, typename D, int W>
void launch_factor(device::CudaStream& stream, const FactorArgs& args) {
  factor_kernel<By, V, X, D, W><<<grid_over(args.d, W), epilogue_threads, 0, stream.handle()>>>(
      data<V>(args.value), args.value.row_stride, data<X>(args.x), args.x.row_stride,
      data<D>(args.d), args.d.row_stride, args.d.rows(), args.d.cols());
  check_launch("gemm factor");
}

template <typename By>
void multiply_values(device::CudaStream& stream, const FactorArgs& args) {
  if (args.d.rows() == 0 || args.d.cols() == 0) return;
  const bool is_wide = args.d.cols() % wide == 0 && is_vectorisable(args.value) &&
                       is_vectorisable(args.x) && is_vectorisable(args.d);
  with_real_type(args.value.dtype, [&](auto* value) {
    using V = std::remove_pointer_t<decltype(value)>;
    with_real_type(args.x.dtype, [&](auto* x) {
      using X = std::remove_pointer_t<decltype(x)>;
      with_real_type(args.d.dtype, [&](auto* d) {
        using D = std::remove_pointer_t<decltype(d)>;
        constexpr bool is_f16 = std::is_same_v<X, f16>;
        if constexpr (mixes_16_bits<V, X, D> || is_f16 != std::is_same_v<D, f16> ||
                      (std::is_same_v<V, f16> && !is_f16)) {
          refuse_mixed_16_bits("gemm");
        } else if (is_wide) {
          launch_factor<By, V, X, D, wide>(stream, args);
        } else {
          launch_factor<By, V, X, D, 1>(stream, args);
        }
      });
    });
  });
}

}  // namespace

void multiply_by(device::CudaStream& stream, const FactorArgs& args) {
  multiply_values<ByIt>(stream, args);
}

void multiply_by_gelu_grad(device::CudaStream& stream, const FactorArgs& args) {
  multiply_values<ByGeluGrad>(stream, args);
}

void gelu_with_slope(device::CudaStream& stream, const Tensor& x, const Tensor& y) {
  if (y.rows() == 0 || y.cols() == 0) return;
  const bool is_wide = y.cols() % wide == 0 && is_vectorisable(x) && is_vectorisable(y);
  with_real_type(y.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const auto run = [&](auto kernel, int width) {
      kernel<<<grid_over(y, width), epilogue_threads, 0, stream.handle()>>>(
          data<T>(x), x.row_stride, data<T>(y), y.row_stride, y.rows(), y.cols());
    };
    is_wide ? run(gelu_slope_kernel<T, wide>, wide) : run(gelu_slope_kernel<T, 1>, 1);
  });
  check_launch("gelu with slope");
}

void add_digest(device::CudaStream& stream, const std::byte* data, int64_t words, Digest* digest) {
  TRIREME_CHECK(words > 0, "a digest of {} words", words);
  const auto blocks =
      static_cast<unsigned>(std::min<int64_t>(1024, ceil_div(words, epilogue_threads)));
  digest_kernel<<<blocks, epilogue_threads, 0, stream.handle()>>>(
      reinterpret_cast<const uint32_t*>(data), words, digest);
  check_launch("digest");
}

void count_gelu_grad_errors(device::CudaStream& stream, const GeluGradCheckArgs& args) {
  const int64_t rows = args.product.rows(), cols = args.product.cols();
  TRIREME_CHECK(rows > 0 && cols > 0, "a check of {} x {}", rows, cols);
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(rows, 4096));
  gelu_grad_errors_kernel<<<blocks, epilogue_threads, 0, stream.handle()>>>(
      data<bf16>(args.product), args.product.row_stride, data<bf16>(args.value),
      args.value.row_stride, data<bf16>(args.x), args.x.row_stride, rows, cols, args.count);
  check_launch("gelu gradient check");
}

}  // namespace trireme::kernels::cuda
