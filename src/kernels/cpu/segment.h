// SPDX-License-Identifier: Apache-2.0
// Parts of rows as fp32. Every kernel computes in fp32 (or wider); elements of another type pass
// through a small buffer on their way in and out; fp32 elements are used in place.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/check.h"
#include "base/dtype.h"
#include "base/float16.h"
#include "device/tensor.h"
#include "kernels/cpu/run.h"

namespace trireme::kernels::cpu {

// Elements [first, first + count) of one row.
struct Segment {
  int64_t row = 0;
  int64_t first = 0;
  int64_t count = 0;
};

// The maximum length of a segment of for_each_segment(), and the size of a buffer.
constexpr int64_t max_segment = 1024;
using SegmentBuffer = float[max_segment];

inline const float* floats_at(const ConstTensor& x, int64_t row) {
  return reinterpret_cast<const float*>(x.data) + row * x.row_stride;
}
inline float* floats_at(const Tensor& x, int64_t row) {
  return reinterpret_cast<float*>(x.data) + row * x.row_stride;
}

// Calls f(static_cast<T*>(nullptr)), where T is Bf16 or F16: the pointer carries the type only.
template <typename F>
void with_half_type(base::DType dtype, const F& f) {
  if (dtype == base::DType::f16) return f(static_cast<base::F16*>(nullptr));
  TRIREME_CHECK(dtype == base::DType::bf16,
                "the cpu back end computes in f32, bf16 and f16, not in {}", base::name_of(dtype));
  f(static_cast<base::Bf16*>(nullptr));
}
// The elements of a flat tensor of high or low parts of split floats (base/split_float.h).
inline uint16_t* u16_at(const Tensor& x, const Segment& s) {
  return reinterpret_cast<uint16_t*>(x.data) + s.first;
}
inline int32_t index_at(const ConstTensor& x, int64_t row) {
  return reinterpret_cast<const int32_t*>(x.data)[row * x.row_stride];
}

// Returns the values of a segment: in the tensor itself if it is f32, otherwise converted into
// `buffer`.
inline const float* values_of(const ConstTensor& x, const Segment& s, float* buffer) {
  if (x.dtype == base::DType::f32) return floats_at(x, s.row) + s.first;
  with_half_type(x.dtype, [&]<typename T>(T*) {
    const T* from = reinterpret_cast<const T*>(x.data) + s.row * x.row_stride + s.first;
#pragma omp simd
    for (int64_t i = 0; i < s.count; ++i) buffer[i] = static_cast<float>(from[i]);
  });
  return buffer;
}

// Returns where to write the values of a segment before store(): in the tensor itself if it is f32,
// otherwise in `buffer`.
inline float* place_for(const Tensor& d, const Segment& s, float* buffer) {
  return d.dtype == base::DType::f32 ? floats_at(d, s.row) + s.first : buffer;
}

// Stores `values`, rounded to the type of d, in the segment. Does nothing if they are in
// place_for() of an f32 tensor.
inline void store(const Tensor& d, const Segment& s, const float* values) {
  if (d.dtype == base::DType::f32) {
    float* to = floats_at(d, s.row) + s.first;
    if (to != values) std::copy_n(values, s.count, to);
    return;
  }
  with_half_type(d.dtype, [&]<typename T>(T*) {
    T* to = reinterpret_cast<T*>(d.data) + s.row * d.row_stride + s.first;
#pragma omp simd
    for (int64_t i = 0; i < s.count; ++i) to[i] = T(values[i]);
  });
}

struct Extent {
  int64_t rows = 0, cols = 0;
};

// The extent to traverse two tensors of equal shape together: one long row if neither has gaps.
inline Extent common_extent(const ConstTensor& a, const ConstTensor& b) {
  if (a.is_contiguous() && b.is_contiguous()) return {1, a.elements()};
  return {a.rows(), a.cols()};
}

// Calls body(segment) for segments that cover the extent.
template <typename Body>
void for_each_segment(base::ThreadPool& pool, const Extent& extent, const Body& body) {
  const int64_t cols = extent.cols;
  if (cols >= task_elements) {
    const int64_t tasks_per_row = divide_up(cols, task_elements);
    pool.for_each(extent.rows * tasks_per_row, [&](int64_t task) {
      const int64_t begin = task % tasks_per_row * task_elements;
      const int64_t end = std::min(cols, begin + task_elements);
      for (int64_t first = begin; first < end; first += max_segment) {
        body(Segment{task / tasks_per_row, first, std::min(max_segment, end - first)});
      }
    });
    return;
  }
  for_each_row(pool, extent.rows, cols, [&](int64_t row) {
    for (int64_t first = 0; first < cols; first += max_segment) {
      body(Segment{row, first, std::min(max_segment, cols - first)});
    }
  });
}

}  // namespace trireme::kernels::cpu
