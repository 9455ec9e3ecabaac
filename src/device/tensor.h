// SPDX-License-Identifier: Apache-2.0
// Tensor: a view of device memory. It owns nothing and is passed by value. Rows, the slices along
// the first dimension, are `row_stride` elements apart; within a row elements are contiguous. So
// the q heads of a fused [T, (H + 2 G) K] projection are the tensor [T, H, K] with row_stride (H +
// 2 G) K, and nothing is copied to split it.
//
// An absent (optional) tensor has the empty shape.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "base/dtype.h"
#include "base/shape.h"

namespace trireme::device {

template <typename Byte>
struct BasicTensor {
  Byte* data = nullptr;
  base::Shape shape;
  int64_t row_stride = 0;
  base::DType dtype = base::DType::f32;

  explicit operator bool() const { return shape.ndim() > 0; }
  int64_t rows() const { return shape[0]; }
  int64_t cols() const { return shape.row_elements(); }  // elements of one row
  int64_t elements() const { return shape.elements(); }
  int64_t bytes() const { return elements() * base::size_of(dtype); }  // without gaps between rows
  bool is_contiguous() const { return rows() <= 1 || row_stride == cols(); }

  // Rows [begin, begin + count).
  BasicTensor slice_rows(int64_t begin, int64_t count) const {
    TRIREME_CHECK(begin >= 0 && count >= 0 && begin + count <= rows(), "rows {}+{} of {}", begin,
                  count, shape.to_string());
    BasicTensor view = *this;
    view.data = data + begin * row_stride * base::size_of(dtype);
    view.shape = with_rows(count);
    return view;
  }
  // `heads` groups of `width` columns from column `first`: [rows, heads, width].
  BasicTensor slice_heads(int64_t first, int64_t heads, int64_t width) const {
    TRIREME_CHECK(first >= 0 && first + heads * width <= cols(), "columns {}+{}x{} of {}", first,
                  heads, width, shape.to_string());
    BasicTensor view = *this;
    view.data = data + first * base::size_of(dtype);
    view.shape = {rows(), heads, width};
    return view;
  }
  // Columns [first, first + count) as a matrix.
  BasicTensor slice_cols(int64_t first, int64_t count) const {
    BasicTensor view = slice_heads(first, 1, count);
    view.shape = {rows(), count};
    return view;
  }
  // The same elements with all dimensions but the first joined: [rows, cols].
  BasicTensor as_matrix() const {
    BasicTensor view = *this;
    view.shape = {rows(), cols()};
    return view;
  }
  // All elements in one row of the given shape. REQUIRES: contiguous, same number of elements.
  BasicTensor reshape(const base::Shape& to) const {
    TRIREME_CHECK(is_contiguous() && to.elements() == elements(), "{} as {}", shape.to_string(),
                  to.to_string());
    return {data, to, to.row_elements(), dtype};
  }

 private:
  base::Shape with_rows(int64_t count) const {
    switch (shape.ndim()) {
      case 1:
        return {count};
      case 2:
        return {count, shape[1]};
      case 3:
        return {count, shape[1], shape[2]};
      default:
        return {count, shape[1], shape[2], shape[3]};
    }
  }
};

using Tensor = BasicTensor<std::byte>;

struct ConstTensor : BasicTensor<const std::byte> {
  ConstTensor() = default;
  ConstTensor(const BasicTensor<const std::byte>& t) : BasicTensor(t) {}  // NOLINT
  ConstTensor(const Tensor& t)                                            // NOLINT
      : BasicTensor{t.data, t.shape, t.row_stride, t.dtype} {}
};

// A contiguous view of `spec` at `data`.
inline Tensor view_of(std::byte* data, const base::TensorSpec& spec) {
  return {data, spec.shape, spec.shape.row_elements(), spec.dtype};
}

}  // namespace trireme::device
