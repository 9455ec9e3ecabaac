// SPDX-License-Identifier: Apache-2.0
// How reference ops access tensors: each is read completely into doubles before anything is
// written, and written completely with one rounding at the end. So aliasing of arguments has no
// effect.
//
// f64 tensors are accepted like f32, bf16 and f16. The functions of ops.h do not admit them; tests
// pass them to the table, for finite differences of an op in double precision.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "device/cpu/cpu_device.h"
#include "device/tensor.h"
#include "kernels/table.h"

namespace trireme::kernels::reference {

// A matrix of doubles; a vector is a matrix with one column. An absent tensor has no rows.
struct Matrix {
  int64_t rows = 0, cols = 0;
  std::vector<double> values;

  Matrix() = default;
  Matrix(int64_t row_count, int64_t col_count)
      : rows(row_count), cols(col_count), values(static_cast<size_t>(row_count * col_count)) {}
  double& operator()(int64_t row, int64_t col = 0) {
    return values[static_cast<size_t>(row * cols + col)];
  }
  double operator()(int64_t row, int64_t col = 0) const {
    return values[static_cast<size_t>(row * cols + col)];
  }
};

// All elements of an f32, bf16, f16 or f64 tensor; dimensions after the first are joined.
Matrix read(const ConstTensor& tensor);
// REQUIRES: the matrix has as many rows and columns as the tensor. An absent tensor is ignored.
void write(const Tensor& tensor, const Matrix& values);

// The fp32 values whose high and low parts (base/split_float.h) are in two flat tensors.
Matrix read_split(const ConstTensor& high, const ConstTensor& low);
void write_split(const Tensor& high, const Tensor& low, const Matrix& values);

// `value` rounded as a store into a tensor of this type rounds it.
double rounded_to(base::DType dtype, double value);

inline int32_t read_index(const ConstTensor& indices, int64_t row) {
  return reinterpret_cast<const int32_t*>(indices.data)[row * indices.row_stride];
}

template <typename Work>
void run_on(Stream& stream, Work&& work) {
  static_cast<device::CpuStream&>(stream).enqueue(std::forward<Work>(work));
}

}  // namespace trireme::kernels::reference
