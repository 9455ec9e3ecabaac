// SPDX-License-Identifier: Apache-2.0
// A block computes a tile of 64 x 64 values, a thread 4 x 4 of it, from panels of 32 along k in
// shared memory, as general_gemm() does. Steps along k are summed from zero and then added, so that
// the rounding errors of a long k stay small.
#include "kernels/cuda/experts/grouped_general.h"

#include <algorithm>

#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/experts/grouped.cuh"
#include "kernels/cuda/experts/row_sums.h"
#include "kernels/cuda/quantize/float8.cuh"
#include "kernels/cuda/values.cuh"

namespace trireme::kernels::cuda {
namespace {

using device::CudaStream;

constexpr int side = 64;  // of a tile
constexpr int depth = 32;
constexpr int per_thread = 4;  // rows, and columns
constexpr int threads_of_side = side / per_thread;
constexpr int threads_of_tile = threads_of_side * threads_of_side;

// Scales of codes: that of element (k, c) is data[k / 128 k_stride + c / together c_stride].
struct ScalesOfCodes {
  const float* data;  // null: values without scales
  int64_t k_stride, c_stride;
  int together;
  __nv_fp8_interpretation_t format;
};

// An operand [k, side of the tile]: element (k, c) is data[first + k k_stride + c c_stride], zero
// from the ends on.
struct Operand {
  InRows rows;
  int64_t first, k_stride, c_stride;
  int64_t k_end, c_end;
  ScalesOfCodes scales;

  __device__ float at(int64_t k, int64_t c) const {
    if (k >= k_end || c >= c_end) return 0;
    const int64_t place = first + k * k_stride + c * c_stride;
    if (scales.data == nullptr) return rows.get(0, place);
    const float scale =
        scales
            .data[k / spec::scale_block * scales.k_stride + c / scales.together * scales.c_stride];
    return value_of_code(static_cast<const uint8_t*>(rows.data)[place], scales.format) * scale;
  }
};

// Neighbouring threads read neighbouring elements.
__device__ void fill(float (*panel)[side + 1], const Operand& x, int64_t k0, int64_t c0) {
  const bool k_is_near = x.k_stride == 1;
  for (int e = static_cast<int>(threadIdx.x); e < depth * side; e += threads_of_tile) {
    const int i = k_is_near ? e % depth : e / side, j = k_is_near ? e / depth : e % side;
    panel[i][j] = x.at(k0 + i, c0 + j);
  }
}

// Rows row0 + y + 16 i and columns column0 + x + 16 j of the thread.
struct Place {
  int64_t row0, column0;
  int x = static_cast<int>(threadIdx.x) % threads_of_side;
  int y = static_cast<int>(threadIdx.x) / threads_of_side;
  __device__ int64_t row(int i) const { return row0 + y + i * threads_of_side; }
  __device__ int64_t column(int j) const { return column0 + x + j * threads_of_side; }
};

__device__ void multiply(const Operand& a, const Operand& b, const Place& place,
                         float (&sum)[per_thread][per_thread]) {
  __shared__ float a_panel[depth][side + 1];
  __shared__ float b_panel[depth][side + 1];
  for (int64_t k0 = 0; k0 < a.k_end; k0 += depth) {
    fill(a_panel, a, k0, place.row0);
    fill(b_panel, b, k0, place.column0);
    __syncthreads();
    float part[per_thread][per_thread] = {};
#pragma unroll 8
    for (int i = 0; i < depth; ++i) {
      float x[per_thread], y[per_thread];
#pragma unroll
      for (int r = 0; r < per_thread; ++r) {
        x[r] = a_panel[i][place.y + r * threads_of_side];
        y[r] = b_panel[i][place.x + r * threads_of_side];
      }
#pragma unroll
      for (int r = 0; r < per_thread; ++r) {
#pragma unroll
        for (int c = 0; c < per_thread; ++c) part[r][c] = fmaf(x[r], y[c], part[r][c]);
      }
    }
#pragma unroll
    for (int r = 0; r < per_thread; ++r) {
#pragma unroll
      for (int c = 0; c < per_thread; ++c) sum[r][c] += part[r][c];
    }
    __syncthreads();
  }
}

// ---- rows in groups

struct ByRows {
  InRows x, weight;  // weight's stride is that of a group
  const int32_t* starts;
  int groups;
  int64_t first_row, end_row, n, k;
  int64_t weight_n, weight_k;  // strides
  ScalesOfCodes x_scales, weight_scales;
  int64_t scales_of_group;
};

// Values of a tile of rows, and the end of the rows that are there; false without any.
__device__ bool multiply_rows(const ByRows& p, const Place& place, int64_t& end,
                              float (&sum)[per_thread][per_thread]) {
  end = min(static_cast<int64_t>(p.starts[p.groups]), p.end_row);
  if (place.row0 >= end) return false;
  const int group = fused::group_of(p.starts, p.groups, static_cast<int>(place.row0));
  const Operand a = {p.x, 0, 1, p.x.stride, p.k, end, p.x_scales};
  Operand b = {p.weight, group * p.weight.stride, p.weight_k, p.weight_n, p.k,
               p.n,      p.weight_scales};
  if (b.scales.data != nullptr) b.scales.data += group * p.scales_of_group;
  multiply(a, b, place, sum);
  return true;
}

__global__ void __launch_bounds__(threads_of_tile) rows_kernel(ByRows p, OutRows y) {
  const Place place = {p.first_row + static_cast<int64_t>(blockIdx.x) * side,
                       static_cast<int64_t>(blockIdx.y) * side};
  float sum[per_thread][per_thread] = {};
  int64_t end = 0;
  if (!multiply_rows(p, place, end, sum)) return;
  for (int r = 0; r < per_thread; ++r) {
    for (int c = 0; c < per_thread; ++c) {
      if (place.row(r) < end && place.column(c) < p.n) {
        y.set(place.row(r), place.column(c), sum[r][c]);
      }
    }
  }
}

struct SwigluGrad {
  InRows gate_up;
  const float* row_weight;
  OutRows dgate_up, act;
  RowSums sums;
};

__global__ void __launch_bounds__(threads_of_tile) swiglu_grad_kernel(ByRows p, SwigluGrad g) {
  const Place place = {p.first_row + static_cast<int64_t>(blockIdx.x) * side,
                       static_cast<int64_t>(blockIdx.y) * side};
  float value[per_thread][per_thread] = {};
  int64_t end = 0;
  if (!multiply_rows(p, place, end, value)) return;
  for (int r = 0; r < per_thread; ++r) {
    const int64_t row = place.row(r);
    float sum = 0;
    if (row < end) {
      const float weight = g.row_weight[row];
      for (int c = 0; c < per_thread; ++c) {
        const int64_t column = place.column(c);
        if (column >= p.n) continue;
        const float up = g.gate_up.get(row, p.n + column), v = weight * value[r][c];
        const Silu s = silu(g.gate_up.get(row, column));
        const float act = s.value * up;
        sum = fmaf(value[r][c], act, sum);
        g.dgate_up.set(row, column, v * up * s.derivative);
        g.dgate_up.set(row, p.n + column, v * s.value);
        if (g.act.data != nullptr) g.act.set(row, column, act * weight);
      }
    }
#pragma unroll
    for (int offset = threads_of_side / 2; offset > 0; offset /= 2) {
      sum += __shfl_xor_sync(0xffffffffU, sum, offset);
    }
    if (place.x == 0 && row < end) {
      g.sums.partials[blockIdx.y * g.sums.rows + row - p.first_row] = sum;
    }
  }
}

// ---- weight gradients

struct Gradient {
  InRows dy, x;
  const int32_t* starts;
  int64_t n, width;
  OutRows d;  // its stride is that of a group
  bool adds;
  ScalesOfCodes dy_scales, x_scales;
};

// Rows of a group, [k, side]; codes are transposed.
__device__ Operand operand_of_group(const InRows& x, const ScalesOfCodes& scales, int64_t first,
                                    int64_t rows, int64_t columns) {
  if (scales.data == nullptr) {
    return {x, first * x.stride, x.stride, 1, rows, columns, scales};
  }
  ScalesOfCodes own = scales;
  own.data += first / spec::scale_block * scales.k_stride;
  return {x, first, 1, x.stride, rows, columns, own};
}

__global__ void __launch_bounds__(threads_of_tile) gradient_kernel(Gradient p) {
  const Place place = {static_cast<int64_t>(blockIdx.x) * side,
                       static_cast<int64_t>(blockIdx.y) * side};
  const int group = static_cast<int>(blockIdx.z);
  const int64_t first = p.starts[group], rows = p.starts[group + 1] - first;
  float sum[per_thread][per_thread] = {};
  multiply(operand_of_group(p.dy, p.dy_scales, first, rows, p.n),
           operand_of_group(p.x, p.x_scales, first, rows, p.width), place, sum);
  for (int r = 0; r < per_thread; ++r) {
    for (int c = 0; c < per_thread; ++c) {
      if (place.row(r) >= p.n || place.column(c) >= p.width) continue;
      const int64_t at = place.row(r) * p.width + place.column(c);
      p.d.set(group, at, p.adds ? sum[r][c] + p.d.get(group, at) : sum[r][c]);
    }
  }
}

// ---- host side

// Rows of any type.
InRows any_rows(const ConstTensor& t) {
  return base::is_float8(t.dtype) ? InRows{t.data, t.row_stride, t.dtype} : in_rows(t);
}

ScalesOfCodes scales_of_codes(const ConstTensor& codes, const ConstTensor& scale,
                              ScaleShape shape) {
  if (!scale) return {};
  const bool has_rows = shape == ScaleShape::row_128;
  return {.data = data<float>(scale),
          .k_stride = has_rows ? scale.row_stride : 0,
          .c_stride = has_rows ? 1 : 0,
          .together = 1,
          .format = codes.dtype == base::DType::f8e4m3 ? __NV_E4M3 : __NV_E5M2};
}

ByRows by_rows(const ConstTensor& x, const ConstTensor& weight, bool is_backward,
               const ConstTensor& starts, const GroupedScales& scales = {}) {
  const int64_t width = weight.shape[2];
  ScalesOfCodes of_weight = scales_of_codes(weight, scales.b, scales.shape_b);
  const base::Shape one = spec::scale_spec(scales.shape_b, weight.shape[1], width).shape;
  if (scales.shape_b == ScaleShape::block_128) {
    of_weight.k_stride = 1;
    of_weight.c_stride = one[1];
    of_weight.together = static_cast<int>(spec::scale_block);
  }
  return {.x = any_rows(x),
          .weight = any_rows(weight),
          .starts = data<int32_t>(starts),
          .groups = static_cast<int>(weight.shape[0]),
          .first_row = 0,
          .end_row = x.rows(),
          .n = weight.shape[is_backward ? 2 : 1],
          .k = weight.shape[is_backward ? 1 : 2],
          .weight_n = is_backward ? 1 : width,
          .weight_k = is_backward ? width : 1,
          .x_scales = scales_of_codes(x, scales.a, scales.shape_a),
          .weight_scales = of_weight,
          .scales_of_group = one.elements()};
}

dim3 grid_of_tiles(int64_t rows, int64_t columns, int64_t groups = 1) {
  const int64_t high = ceil_div(columns, side);
  TRIREME_CHECK(high <= 65535 && groups <= 65535, "a product of {} columns in {} groups", columns,
                groups);
  return {grid_of(ceil_div(rows, side)), static_cast<unsigned>(high),
          static_cast<unsigned>(groups)};
}

void queue_rows(CudaStream& stream, const ByRows& p, const Tensor& y) {
  rows_kernel<<<grid_of_tiles(p.end_row, p.n), threads_of_tile, 0, stream.handle()>>>(p,
                                                                                      out_rows(y));
  check_launch("general grouped product");
}

}  // namespace

void general_grouped_forward(CudaStream& stream, const GroupedForwardArgs& args) {
  queue_rows(stream, by_rows(args.x, args.weight, false, args.starts, args.scales), args.y);
}

void general_grouped_backward_input(CudaStream& stream, const GroupedBackwardInputArgs& args) {
  queue_rows(stream, by_rows(args.dy, args.weight, true, args.starts), args.dx);
}

void general_grouped_swiglu_backward(CudaStream& stream, const GroupedSwigluBackwardArgs& args) {
  ByRows p = by_rows(args.dy, args.weight, true, args.starts);
  const RowSums sums = row_sums(stream, args.dy.rows(), ceil_div(p.n, side), side);
  const SwigluGrad g = {in_rows(args.gate_up), data<float>(args.row_weight),
                        out_rows(args.dgate_up), out_rows(args.act), sums};
  for (int64_t first = 0; first < args.dy.rows(); first += sums.rows) {
    p.first_row = first;
    p.end_row = std::min(first + sums.rows, args.dy.rows());
    swiglu_grad_kernel<<<grid_of_tiles(sums.rows, p.n), threads_of_tile, 0, stream.handle()>>>(p,
                                                                                               g);
    check_launch("general grouped swiglu_backward");
    sum_rows(stream, sums, first, args.starts, args.dweight);
  }
}

void general_grouped_backward_weight(CudaStream& stream, const GroupedBackwardWeightArgs& args) {
  const GroupedScales& scales = args.scales;
  const Gradient p = {.dy = any_rows(args.dy),
                      .x = any_rows(args.x),
                      .starts = data<int32_t>(args.starts),
                      .n = args.dweight.shape[1],
                      .width = args.dweight.shape[2],
                      .d = out_rows(args.dweight),
                      .adds = args.adds,
                      .dy_scales = scales_of_codes(args.dy, scales.a, scales.shape_a),
                      .x_scales = scales_of_codes(args.x, scales.b, scales.shape_b)};
  gradient_kernel<<<grid_of_tiles(p.n, p.width, args.dweight.shape[0]), threads_of_tile, 0,
                    stream.handle()>>>(p);
  check_launch("general grouped weight gradient");
}

}  // namespace trireme::kernels::cuda
