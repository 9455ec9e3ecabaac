// SPDX-License-Identifier: Apache-2.0
// value = alpha op(a) op(b) + beta d and its epilogue, for any strides, alignments and types, on
// CUDA cores. 8-bit operands are multiplied by their scales as they are read. A block computes a 64
// x 64 tile, a thread 4 x 4 of it. k is processed in steps of 32, each summed from zero and then
// added, so that the rounding errors of a long k stay small.
#include <cuda_fp8.h>

#include <type_traits>

#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/gemm/gemm_kernels.h"
#include "kernels/cuda/launch.cuh"

namespace trireme::kernels::cuda {
namespace {

constexpr int tile = 64;
constexpr int depth = 32;
constexpr int general_threads = 256;
constexpr int per_thread = 4;  // rows, and columns
static_assert(tile / per_thread * (tile / per_thread) == general_threads);

template <typename T>
__device__ float element(const T* p) {
  if constexpr (sizeof(T) == 1)
    return static_cast<float>(*p);  // of the code alone
  else
    return load(p);
}

// A matrix or vector whose type is known at run time; null if absent.
struct Any {
  void* data;
  int64_t stride;
  base::DType dtype;

  __device__ float at(int64_t row, int64_t col) const {
    const int64_t i = row * stride + col;
    if (dtype == base::DType::bf16) return load(static_cast<const bf16*>(data) + i);
    if (dtype == base::DType::f16) return load(static_cast<const f16*>(data) + i);
    return load(static_cast<const float*>(data) + i);
  }
  // As a store rounds it.
  __device__ float rounded(float value) const {
    if (dtype == base::DType::bf16) return __bfloat162float(__float2bfloat16_rn(value));
    return dtype == base::DType::f16 ? __half2float(__float2half_rn(value)) : value;
  }
  __device__ void put(int64_t row, int64_t col, float value) const {
    const int64_t i = row * stride + col;
    if (dtype == base::DType::bf16) {
      store(static_cast<bf16*>(data) + i, value);
    } else if (dtype == base::DType::f16) {
      store(static_cast<f16*>(data) + i, value);
    } else {
      store(static_cast<float*>(data) + i, value);
    }
  }
};

// The scales of an 8-bit operand. Those of row r and its k-th code lie at [k / 128, r] (row_128) or
// [r / 128, k / 128] (block_128).
struct OperandScales {
  const float* data;
  int64_t stride;
  ScaleShape shape;

  __device__ float at(int64_t row, int64_t k) const {
    if (shape == ScaleShape::tensor) return data[0];
    constexpr int64_t block = spec::scale_block;
    return shape == ScaleShape::row_128 ? data[k / block * stride + row]
                                        : data[row / block * stride + k / block];
  }
};

struct Params {
  int64_t m, n, k;
  const void *a, *b;
  int64_t a_stride, b_stride;
  OperandScales a_scales, b_scales;  // of 8-bit operands
  bool trans_a, trans_b;
  float alpha, beta;
  Any d;
  // Tensors of the epilogue; absent if it has none.
  Any bias{}, residual{}, gelu_input{}, gelu_grad_of{}, factor{};
};

// Loads the next part of a matrix: to[i][j] = x(k0 + i, c0 + j), zero outside. x(i, j) is
// element [i, j] of the stored matrix, or [j, i] with k_is_column. Neighbouring threads read
// neighbouring elements. Codes are multiplied by their scales.
template <typename T>
__device__ void fill_panel(float (*to)[tile + 1], const T* x, int64_t stride, bool k_is_column,
                           int64_t k0, int64_t k, int64_t c0, int64_t columns,
                           const OperandScales& scales) {
  for (int e = static_cast<int>(threadIdx.x); e < depth * tile; e += general_threads) {
    const int i = k_is_column ? e % depth : e / tile;
    const int j = k_is_column ? e / depth : e % tile;
    const int64_t ki = k0 + i, c = c0 + j;
    float value = 0;
    if (ki < k && c < columns) {
      value = element(x + (k_is_column ? c * stride + ki : ki * stride + c));
      if constexpr (sizeof(T) == 1) value *= scales.at(c, ki);
    }
    to[i][j] = value;
  }
}

__device__ void finish(const Params& p, int64_t row, int64_t col, float sum) {
  float value = p.alpha * sum;
  if (p.bias.data != nullptr) value += p.bias.at(col, 0);  // [n]: rows of one
  if (p.residual.data != nullptr) value += p.residual.at(row, col);
  if (p.beta != 0) value += p.beta * p.d.at(row, col);
  if (p.gelu_input.data != nullptr) {
    p.gelu_input.put(row, col, value);
    return;
  }
  // d may be the tensor that is read: each thread reads the elements that it writes.
  if (p.factor.data != nullptr) value *= p.factor.at(row, col);
  if (p.gelu_grad_of.data != nullptr) {
    value *= p.gelu_grad_of.rounded(gelu_grad(p.gelu_grad_of.at(row, col)));
  }
  p.d.put(row, col, value);
}

template <typename A, typename B>
__global__ void __launch_bounds__(general_threads) general_gemm_kernel(const Params p) {
  __shared__ float a_panel[depth][tile + 1];
  __shared__ float b_panel[depth][tile + 1];
  const int64_t row0 = static_cast<int64_t>(blockIdx.x) * tile;
  const int64_t col0 = static_cast<int64_t>(blockIdx.y) * tile;
  // Rows ty, ty + 16, ... and columns tx, tx + 16, ... of the tile.
  constexpr int side = tile / per_thread;
  const int tx = static_cast<int>(threadIdx.x) % side, ty = static_cast<int>(threadIdx.x) / side;

  float sum[per_thread][per_thread] = {};
  for (int64_t k0 = 0; k0 < p.k; k0 += depth) {
    fill_panel(a_panel, static_cast<const A*>(p.a), p.a_stride, !p.trans_a, k0, p.k, row0, p.m,
               p.a_scales);
    fill_panel(b_panel, static_cast<const B*>(p.b), p.b_stride, p.trans_b, k0, p.k, col0, p.n,
               p.b_scales);
    __syncthreads();
    float part[per_thread][per_thread] = {};
#pragma unroll 8
    for (int i = 0; i < depth; ++i) {
      float a[per_thread], b[per_thread];
#pragma unroll
      for (int r = 0; r < per_thread; ++r) {
        a[r] = a_panel[i][ty + r * side];
        b[r] = b_panel[i][tx + r * side];
      }
#pragma unroll
      for (int r = 0; r < per_thread; ++r) {
#pragma unroll
        for (int c = 0; c < per_thread; ++c) part[r][c] = fmaf(a[r], b[c], part[r][c]);
      }
    }
#pragma unroll
    for (int r = 0; r < per_thread; ++r) {
#pragma unroll
      for (int c = 0; c < per_thread; ++c) sum[r][c] += part[r][c];
    }
    __syncthreads();
  }
#pragma unroll
  for (int r = 0; r < per_thread; ++r) {
#pragma unroll
    for (int c = 0; c < per_thread; ++c) {
      const int64_t row = row0 + ty + r * side, col = col0 + tx + c * side;
      if (row < p.m && col < p.n) finish(p, row, col, sum[r][c]);
    }
  }
}

Any any_of(const ConstTensor& t) {
  if (!t) return {nullptr, 0, base::DType::f32};
  // Only outputs are written through the pointer.
  return {const_cast<std::byte*>(t.data), t.row_stride, t.dtype};
}

OperandScales scales_of(const ConstTensor& scale, ScaleShape shape) {
  return {scale ? data<float>(scale) : nullptr, scale ? scale.row_stride : 0, shape};
}

// Calls f with a pointer that carries the type of an operand's elements.
template <typename F>
void with_operand_type(base::DType dtype, F&& f) {
  if (dtype == base::DType::f8e4m3) {
    f(static_cast<__nv_fp8_e4m3*>(nullptr));
  } else if (dtype == base::DType::f8e5m2) {
    f(static_cast<__nv_fp8_e5m2*>(nullptr));
  } else {
    with_real_type(dtype, f);
  }
}

void add_epilogue(Params& p, const AddTerms& e) {
  p.bias = any_of(e.bias);
  p.residual = any_of(e.residual);
}
void add_epilogue(Params& p, const GeluForward& e) {
  p.bias = any_of(e.bias);
  p.gelu_input = any_of(e.input);
}
void add_epilogue(Params& p, const GeluForwardSlope& e) {
  p.bias = any_of(e.bias);
  p.gelu_input = any_of(e.slope);
}
void add_epilogue(Params& p, const GeluGradient& e) { p.gelu_grad_of = any_of(e.input); }
void add_epilogue(Params& p, const ScaleBy& e) { p.factor = any_of(e.factor); }
void add_epilogue(Params& /*p*/, const BiasGradient& /*e*/) {}

}  // namespace

void general_gemm(device::CudaStream& stream, const GemmArgs& args) {
  Params p = {.m = args.d.rows(),
              .n = args.d.cols(),
              .k = args.trans_a ? args.a.rows() : args.a.cols(),
              .a = args.a.data,
              .b = args.b.data,
              .a_stride = args.a.row_stride,
              .b_stride = args.b.row_stride,
              .a_scales = scales_of(args.scale_a, args.shape_a),
              .b_scales = scales_of(args.scale_b, args.shape_b),
              .trans_a = args.trans_a,
              .trans_b = args.trans_b,
              .alpha = args.alpha,
              .beta = args.beta,
              .d = any_of(args.d)};
  std::visit([&p](const auto& e) { add_epilogue(p, e); }, args.epilogue);
  const int64_t row_tiles = ceil_div(p.m, tile), col_tiles = ceil_div(p.n, tile);
  TRIREME_CHECK(
      row_tiles > 0 && row_tiles < (int64_t{1} << 31) && col_tiles > 0 && col_tiles <= 65535,
      "gemm: a product of {} x {} exceeds the grid", p.m, p.n);
  const dim3 grid(static_cast<unsigned>(row_tiles), static_cast<unsigned>(col_tiles));
  with_operand_type(args.a.dtype, [&](auto* a) {
    using A = std::remove_pointer_t<decltype(a)>;
    with_operand_type(args.b.dtype, [&](auto* b) {
      using B = std::remove_pointer_t<decltype(b)>;
      // Codes are multiplied by codes, and f16 by f16 only.
      if constexpr ((sizeof(A) == 1) == (sizeof(B) == 1) &&
                    std::is_same_v<A, f16> == std::is_same_v<B, f16>) {
        general_gemm_kernel<A, B><<<grid, general_threads, 0, stream.handle()>>>(p);
      } else {
        TRIREME_CHECK(false, "gemm: a is {}, b is {}", base::name_of(args.a.dtype),
                      base::name_of(args.b.dtype));
      }
    });
  });
  check_launch("general gemm");
}

}  // namespace trireme::kernels::cuda
