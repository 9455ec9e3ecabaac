// SPDX-License-Identifier: Apache-2.0
// y = x weight^T + bias + residual for few rows of x, limited by the time to read the weight once.
//
// An element of y is the sum of four partial sums, which take every fourth product (16 bits: the
// same in another order) as the inner index grows. A task computes some columns of y; the rows of
// the weight are read from memory once and are in cache for the other rows of x.
#include "kernels/cpu/block_product.h"
#include "kernels/cpu/segment.h"
#include "kernels/cpu/table_ops.h"

namespace trireme::kernels::cpu {
namespace {

constexpr int64_t step = 8;  // elements of a row that are multiplied at once
// Rows of the weight and of x: the sums of 3 x 4 elements and the operands are 16 vectors, as many
// as there are registers.
constexpr int64_t weights_at_once = 3;
constexpr int64_t max_rows_at_once = 4;
constexpr int64_t task_weights = 64 << 10;  // elements

struct RowValues;  // tag of thread_floats()

using Words = uint32_t __attribute__((vector_size(16)));
using WordsInMemory = uint32_t __attribute__((vector_size(16), aligned(2), may_alias));

// Eight elements of a row, as two vectors. Those of 16 bits are the even and the odd elements: a
// word of memory has one of each, and a bf16 has the high half of a float.
struct Eight {
  Lanes first, second;
};
inline Eight load_eight(const float* from) { return {load_lanes(from), load_lanes(from + 4)}; }
inline Eight load_eight(const base::Bf16* from) {
  const Words words = *reinterpret_cast<const WordsInMemory*>(from);
  return {reinterpret_cast<Lanes>(words << 16), reinterpret_cast<Lanes>(words & 0xffff0000U)};
}
inline Eight load_eight(const base::F16* from) {
  Eight eight;
  for (int i = 0; i < 4; ++i) {
    eight.first[i] = static_cast<float>(from[2 * i]);
    eight.second[i] = static_cast<float>(from[2 * i + 1]);
  }
  return eight;
}

inline float sum_of(const Lanes& x) { return (x[0] + x[1]) + (x[2] + x[3]); }

// The rows of x as floats, with each eight elements in the order of load_eight<T>().
struct Inputs {
  const float* data;
  int64_t stride;
};

// The products of `X` rows of x with `W` rows of the weight.
template <int X, int W, typename T>
[[gnu::noinline]] void multiply(const Inputs& x, const T* weight, int64_t weight_stride,
                                int64_t depth, float (&out)[max_rows_at_once][weights_at_once]) {
  Lanes sums[X][W] = {};
  const int64_t whole = depth / step * step;
  for (int64_t k = 0; k < whole; k += step) {
    Eight b[W];
#pragma GCC unroll 4
    for (int j = 0; j < W; ++j) b[j] = load_eight(weight + j * weight_stride + k);
#pragma GCC unroll 4
    for (int i = 0; i < X; ++i) {
      const Lanes a = load_lanes(x.data + i * x.stride + k);
#pragma GCC unroll 4
      for (int j = 0; j < W; ++j) sums[i][j] += a * b[j].first;
    }
#pragma GCC unroll 4
    for (int i = 0; i < X; ++i) {
      const Lanes a = load_lanes(x.data + i * x.stride + k + step / 2);
#pragma GCC unroll 4
      for (int j = 0; j < W; ++j) sums[i][j] += a * b[j].second;
    }
  }
  for (int i = 0; i < X; ++i) {
    for (int j = 0; j < W; ++j) {
      float sum = sum_of(sums[i][j]);
      for (int64_t k = whole; k < depth; ++k) {
        sum += x.data[i * x.stride + k] * static_cast<float>(weight[j * weight_stride + k]);
      }
      out[i][j] = sum;
    }
  }
}

// Columns [c0, c0 + count) of rows [r0, r0 + rows) of y, from their products.
void finish(const RowProductArgs& args, int64_t r0, int64_t rows, int64_t c0, int64_t count,
            const float (&products)[max_rows_at_once][weights_at_once]) {
  for (int64_t r = 0; r < rows; ++r) {
    float values[weights_at_once], buffer[weights_at_once] = {};
    std::copy_n(products[r], count, values);
    if (args.bias) {
      const float* bias = values_of(args.bias, {0, c0, count}, buffer);
      for (int64_t i = 0; i < count; ++i) values[i] += bias[i];
    }
    if (args.residual) {
      const float* residual = values_of(args.residual, {r0 + r, c0, count}, buffer);
      for (int64_t i = 0; i < count; ++i) values[i] += residual[i];
    }
    store(args.y, {r0 + r, c0, count}, values);
  }
}

template <typename T>
void multiply_columns(const RowProductArgs& args, const Inputs& x, int64_t begin, int64_t end) {
  const int64_t rows = args.x.rows(), depth = args.x.cols(), stride = args.weight.row_stride;
  const T* weights = reinterpret_cast<const T*>(args.weight.data);
  for (int64_t c = begin; c < end; c += weights_at_once) {
    const int64_t count = std::min(weights_at_once, end - c);
    const T* weight = weights + c * stride;
    for (int64_t r = 0; r < rows; r += max_rows_at_once) {
      const int64_t here = std::min(max_rows_at_once, rows - r);
      const Inputs from = {x.data + r * x.stride, x.stride};
      float products[max_rows_at_once][weights_at_once] = {};
      if (count < weights_at_once) {
        for (int64_t i = 0; i < here; ++i) {
          for (int64_t j = 0; j < count; ++j) {
            float one[max_rows_at_once][weights_at_once] = {};
            multiply<1, 1>({from.data + i * x.stride, x.stride}, weight + j * stride, stride, depth,
                           one);
            products[i][j] = one[0][0];
          }
        }
      } else if (here == max_rows_at_once) {
        multiply<max_rows_at_once, weights_at_once>(from, weight, stride, depth, products);
      } else if (here == 3) {
        multiply<3, weights_at_once>(from, weight, stride, depth, products);
      } else if (here == 2) {
        multiply<2, weights_at_once>(from, weight, stride, depth, products);
      } else {
        multiply<1, weights_at_once>(from, weight, stride, depth, products);
      }
      finish(args, r, here, c, count, products);
    }
  }
}

// 16-bit rows as floats: the even elements of each eight, then the odd ones.
template <typename T>
void split_eights(const T* from, int64_t count, float* to) {
  const int64_t whole = count / step * step;
  for (int64_t k = 0; k < whole; k += step) {
    for (int64_t i = 0; i < step / 2; ++i) {
      to[k + i] = static_cast<float>(from[k + 2 * i]);
      to[k + step / 2 + i] = static_cast<float>(from[k + 2 * i + 1]);
    }
  }
  for (int64_t k = whole; k < count; ++k) to[k] = static_cast<float>(from[k]);
}

void multiply_all(base::ThreadPool& pool, const RowProductArgs& args) {
  const int64_t depth = args.x.cols(), cols = args.weight.rows();
  const bool is_f32 = args.x.dtype == base::DType::f32;
  Inputs x = {is_f32 ? floats_at(args.x, 0) : nullptr, args.x.row_stride};
  if (!is_f32) {
    float* memory = thread_floats<RowValues>(args.x.rows() * depth);
    with_half_type(args.x.dtype, [&]<typename T>(T*) {
      for (int64_t r = 0; r < args.x.rows(); ++r) {
        split_eights(reinterpret_cast<const T*>(args.x.data) + r * args.x.row_stride, depth,
                     memory + r * depth);
      }
    });
    x = {memory, depth};
  }
  const int64_t cols_per_task = base::round_up(
      std::max<int64_t>(1, task_weights / std::max<int64_t>(1, depth)), weights_at_once);
  pool.for_each(divide_up(cols, cols_per_task), [&](int64_t task) {
    const int64_t begin = task * cols_per_task, end = std::min(cols, begin + cols_per_task);
    if (is_f32) return multiply_columns<float>(args, x, begin, end);
    with_half_type(args.x.dtype, [&]<typename T>(T*) { multiply_columns<T>(args, x, begin, end); });
  });
}

}  // namespace

void row_product(Stream& stream, const RowProductArgs& args) { run_on(stream, args, multiply_all); }

}  // namespace trireme::kernels::cpu
