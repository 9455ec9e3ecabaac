// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/matrix.h"

#include <bit>

#include "base/check.h"
#include "base/float16.h"
#include "base/float8.h"
#include "base/split_float.h"

namespace trireme::kernels::reference {

using base::Bf16;
using base::DType;
using base::F16;

Matrix read(const ConstTensor& tensor) {
  if (!tensor) return {};
  Matrix values(tensor.rows(), tensor.cols());
  for (int64_t r = 0; r < values.rows; ++r) {
    for (int64_t c = 0; c < values.cols; ++c) {
      const int64_t at = r * tensor.row_stride + c;
      switch (tensor.dtype) {
        case DType::f32:
          values(r, c) = static_cast<double>(reinterpret_cast<const float*>(tensor.data)[at]);
          break;
        case DType::bf16:
          values(r, c) = static_cast<double>(
              static_cast<float>(reinterpret_cast<const Bf16*>(tensor.data)[at]));
          break;
        case DType::f16:
          values(r, c) = static_cast<double>(
              static_cast<float>(reinterpret_cast<const F16*>(tensor.data)[at]));
          break;
        case DType::f64:
          values(r, c) = reinterpret_cast<const double*>(tensor.data)[at];
          break;
        case DType::f8e4m3:
          values(r, c) = static_cast<double>(
              static_cast<float>(reinterpret_cast<const base::E4m3*>(tensor.data)[at]));
          break;
        case DType::f8e5m2:
          values(r, c) = static_cast<double>(
              static_cast<float>(reinterpret_cast<const base::E5m2*>(tensor.data)[at]));
          break;
        default:
          TRIREME_CHECK(false, "the reference does not read {}", name_of(tensor.dtype));
      }
    }
  }
  return values;
}

void write(const Tensor& tensor, const Matrix& values) {
  if (!tensor) return;
  TRIREME_CHECK(values.rows == tensor.rows() && values.cols == tensor.cols(), "{} x {} into {}",
                values.rows, values.cols, tensor.shape.to_string());
  for (int64_t r = 0; r < values.rows; ++r) {
    for (int64_t c = 0; c < values.cols; ++c) {
      const int64_t at = r * tensor.row_stride + c;
      switch (tensor.dtype) {
        case DType::f32:
          reinterpret_cast<float*>(tensor.data)[at] = static_cast<float>(values(r, c));
          break;
        case DType::bf16:
          reinterpret_cast<Bf16*>(tensor.data)[at] = Bf16(static_cast<float>(values(r, c)));
          break;
        case DType::f16:
          reinterpret_cast<F16*>(tensor.data)[at] = F16(static_cast<float>(values(r, c)));
          break;
        case DType::f64:
          reinterpret_cast<double*>(tensor.data)[at] = values(r, c);
          break;
        default:
          TRIREME_CHECK(false, "the reference does not write {}", name_of(tensor.dtype));
      }
    }
  }
}

Matrix read_split(const ConstTensor& high, const ConstTensor& low) {
  Matrix values(low.elements(), 1);
  for (int64_t i = 0; i < values.rows; ++i) {
    const uint32_t packed = static_cast<uint32_t>(reinterpret_cast<const Bf16*>(high.data)[i].bits)
                                << 16U |
                            reinterpret_cast<const uint16_t*>(low.data)[i];
    values(i) = static_cast<double>(std::bit_cast<float>(base::joined_bits(packed)));
  }
  return values;
}

void write_split(const Tensor& high, const Tensor& low, const Matrix& values) {
  for (int64_t i = 0; i < values.rows; ++i) {
    const uint32_t packed =
        base::split_bits(std::bit_cast<uint32_t>(static_cast<float>(values(i))));
    reinterpret_cast<Bf16*>(high.data)[i].bits = static_cast<uint16_t>(packed >> 16U);
    reinterpret_cast<uint16_t*>(low.data)[i] = static_cast<uint16_t>(packed);
  }
}

double rounded_to(DType dtype, double value) {
  if (dtype == DType::f64) return value;
  const auto single = static_cast<float>(value);
  return static_cast<double>(dtype == DType::bf16  ? static_cast<float>(Bf16(single))
                             : dtype == DType::f16 ? static_cast<float>(F16(single))
                                                   : single);
}

}  // namespace trireme::kernels::reference
