// SPDX-License-Identifier: Apache-2.0
// sum[i] += sum over k of a[i, k], where a is an 8-bit operand: the bias gradient that goes with a
// product of codes. Reads a once; the order of the additions depends on its shape only.
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "kernels/cuda/gemm/gemm_kernels.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/values.cuh"

namespace trireme::kernels::cuda {
namespace {

constexpr int code_sum_warps = 8;
constexpr int codes_at_once = 16;  // of a lane; they share a scale

struct CodeRows {
  const uint8_t* codes;
  int64_t stride, rows, cols;
  const float* scale;
  int64_t scale_stride;  // between blocks of 128; with one scale 0
  bool is_tensor;
  bool is_wide;  // rows can be read 16 bytes at a time
};

__device__ float float_of_code(uint8_t code, __nv_fp8_interpretation_t format) {
  return __half2float(__half(__nv_cvt_fp8_to_halfraw(code, format)));
}

// A warp a row.
template <__nv_fp8_interpretation_t format, typename S>
__global__ void __launch_bounds__(code_sum_warps* warp_size) code_sums_kernel(CodeRows a, S* sum) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * code_sum_warps + threadIdx.x / warp_size;
  if (row >= a.rows) return;  // the whole warp
  const uint8_t* from = a.codes + row * a.stride;
  float total = 0;
#pragma unroll 4
  for (int64_t col = static_cast<int64_t>(lane) * codes_at_once; col < a.cols;
       col += warp_size * codes_at_once) {
    float part = 0;
    if (a.is_wide) {
      const uint4 bits = load_bits(from + col);
      const uint32_t words[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
      for (int j = 0; j < codes_at_once; ++j) {
        part += float_of_code(static_cast<uint8_t>(words[j / 4] >> (8 * (j % 4))), format);
      }
    } else {
      for (int j = 0; j < codes_at_once && col + j < a.cols; ++j) {
        part += float_of_code(from[col + j], format);
      }
    }
    const float scale =
        a.is_tensor ? a.scale[0] : a.scale[col / spec::scale_block * a.scale_stride + row];
    total = fmaf(part, scale, total);
  }
  total = warp_sum(total);
  if (lane == 0) store(sum + row, load(sum + row) + total);
}

}  // namespace

void add_row_sums_of_codes(device::CudaStream& stream, const GemmArgs& args, const Tensor& sum) {
  TRIREME_CHECK(sum.is_contiguous(), "gemm: sums with stride {}, not 1", sum.row_stride);
  TRIREME_CHECK(args.shape_a != ScaleShape::block_128, "gemm: a has scales of blocks");
  if (args.a.rows() == 0 || args.a.cols() == 0) return;
  const CodeRows a = {.codes = data<uint8_t>(args.a),
                      .stride = args.a.row_stride,
                      .rows = args.a.rows(),
                      .cols = args.a.cols(),
                      .scale = data<float>(args.scale_a),
                      .scale_stride = args.scale_a.row_stride,
                      .is_tensor = args.shape_a == ScaleShape::tensor,
                      .is_wide = is_vectorisable(args.a)};
  const unsigned grid = grid_of(ceil_div(a.rows, code_sum_warps));
  with_gradient_type(sum.dtype, [&](auto* type) {
    using S = std::remove_pointer_t<decltype(type)>;
    const auto run = [&](auto kernel) {
      kernel<<<grid, code_sum_warps * warp_size, 0, stream.handle()>>>(a, data<S>(sum));
    };
    args.a.dtype == base::DType::f8e4m3 ? run(code_sums_kernel<__NV_E4M3, S>)
                                        : run(code_sums_kernel<__NV_E5M2, S>);
  });
  check_launch("sums of codes");
}

}  // namespace trireme::kernels::cuda
