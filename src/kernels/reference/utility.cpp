// SPDX-License-Identifier: Apache-2.0
// Ops that move, set or add elements: fill, copy, accumulate, init_normal.
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/rng.h"
#include "kernels/reference/matrix.h"
#include "kernels/reference/table_ops.h"

namespace trireme::kernels::reference {
namespace {

bool is_number(base::DType dtype) { return base::is_real(dtype) || dtype == base::DType::f64; }

std::byte* row_of(const Tensor& tensor, int64_t row) {
  return tensor.data + row * tensor.row_stride * base::size_of(tensor.dtype);
}

size_t row_bytes(const Tensor& tensor) {
  return static_cast<size_t>(tensor.cols() * base::size_of(tensor.dtype));
}

void fill_all(const FillArgs& args) {
  if (is_number(args.d.dtype)) {
    Matrix d(args.d.rows(), args.d.cols());
    for (double& value : d.values) value = static_cast<double>(args.value);
    write(args.d, d);
    return;
  }
  TRIREME_CHECK(args.value == 0, "{} filled with {}", name_of(args.d.dtype), args.value);
  for (int64_t r = 0; r < args.d.rows(); ++r) std::memset(row_of(args.d, r), 0, row_bytes(args.d));
}

// Tensors of equal type are copied as bytes, so that every NaN and integer keeps its bits.
void copy_all(const CopyArgs& args) {
  if (args.low) return write_split(args.d, args.low, read(args.x));
  if (args.x.dtype != args.d.dtype) return write(args.d, read(args.x));
  for (int64_t r = 0; r < args.d.rows(); ++r) {
    const std::byte* from = args.x.data + r * args.x.row_stride * base::size_of(args.x.dtype);
    std::memmove(row_of(args.d, r), from, row_bytes(args.d));
  }
}

void accumulate_all(const AccumulateArgs& args) {
  const Matrix x = read(args.x);
  Matrix d = read(args.d);
  TRIREME_CHECK(x.values.size() == d.values.size(), "{} added to {}", args.x.shape.to_string(),
                args.d.shape.to_string());
  for (size_t i = 0; i < d.values.size(); ++i) {
    if (!args.is_max) {
      d.values[i] += x.values[i];
    } else if (x.values[i] > d.values[i] || std::isnan(x.values[i])) {
      d.values[i] = x.values[i];
    }
  }
  write(args.d, d);
}

void draw_all(const InitNormalArgs& args) {
  Matrix d(args.d.rows(), args.d.cols());
  for (int64_t r = 0; r < d.rows; ++r) {
    for (int64_t c = 0; c < d.cols; ++c) {
      const uint64_t index =
          args.first + static_cast<uint64_t>(r) * args.global_row_stride + static_cast<uint64_t>(c);
      d(r, c) = static_cast<double>(base::rng_normal(args.key, index, args.std_dev));
    }
  }
  write(args.d, d);
}

}  // namespace

void fill(Stream& stream, const FillArgs& args) {
  run_on(stream, [args] { fill_all(args); });
}

void copy(Stream& stream, const CopyArgs& args) {
  run_on(stream, [args] { copy_all(args); });
}

void accumulate(Stream& stream, const AccumulateArgs& args) {
  run_on(stream, [args] { accumulate_all(args); });
}

void init_normal(Stream& stream, const InitNormalArgs& args) {
  run_on(stream, [args] { draw_all(args); });
}

}  // namespace trireme::kernels::reference
