// SPDX-License-Identifier: Apache-2.0
// Conversion to 8-bit floats, as kernels/quantize_args.h states. In contrast to other reference ops
// the arithmetic is fp32: the contract fixes every bit.
#include <bit>
#include <cmath>
#include <functional>
#include <limits>

#include "base/float8.h"
#include "kernels/reference/amax.h"
#include "kernels/reference/matrix.h"
#include "kernels/reference/table_ops.h"

namespace trireme::kernels::reference {
namespace {

using base::DType;
using spec::scale_block;

float* floats(const Tensor& t) { return reinterpret_cast<float*>(t.data); }
const float* floats(const ConstTensor& t) { return reinterpret_cast<const float*>(t.data); }

void raise(uint32_t& bits, uint32_t other) { bits = std::max(bits, other); }
void raise(float& amax, float value) {
  amax = std::bit_cast<float>(std::max(magnitude_bits(amax), magnitude_bits(value)));
}

// Up and down: values are multiplied by `up`, codes by `scale`.
struct Scale {
  float up = 1, scale = 1;
};

Scale scale_of(float amax, DType format, ScaleShape shape) {
  const float largest = format == DType::f8e4m3 ? base::E4m3::largest() : base::E5m2::largest();
  Scale s;
  if (amax != 0 && std::isfinite(amax)) s.up = largest / amax;
  if (std::isinf(s.up)) s.up = std::numeric_limits<float>::max();
  if (shape == ScaleShape::row_128) s.up = std::ldexp(1.0F, std::ilogb(s.up));
  s.scale = 1.0F / s.up;
  return s;
}

constexpr uint8_t nan_code = 0x7f;

struct Code {
  uint8_t bits = 0;
  float value = 0;         // of the code alone
  bool is_beyond = false;  // finite, and saturated
};

Code code_of(float value, float up, DType format) {
  const float scaled = value * up;
  const auto convert = [&](auto converted, float largest) {
    const auto back = static_cast<float>(converted);
    // Half a step above the largest value rounds to it.
    const float step = largest / (format == DType::f8e4m3 ? 14.0F : 7.0F);
    return Code{std::isnan(value) ? nan_code : converted.bits, back,
                std::isfinite(value) && std::abs(scaled) > largest + step / 2};
  };
  return format == DType::f8e4m3 ? convert(base::E4m3(scaled), base::E4m3::largest())
                                 : convert(base::E5m2(scaled), base::E5m2::largest());
}

void count(QuantizeCounts& counts, float value, const Code& code, float scale) {
  ++counts.values;
  counts.flushed += value != 0 && code.value == 0 ? 1 : 0;
  counts.saturated += code.is_beyond ? 1 : 0;
  const auto exact = static_cast<double>(value);
  const double error = exact - static_cast<double>(code.value * scale);
  counts.signal += exact * exact;
  counts.noise += error * error;
}

// Quantises a [rows, cols] matrix by rows.
struct Job {
  int64_t rows, cols;
  std::function<float(int64_t, int64_t)> value;
  Tensor codes, scale;
  ScaleShape shape;
  float amax;  // with ScaleShape::tensor
  QuantizeCounts* counts;
};

void quantize_rows(const Job& job) {
  const DType format = job.codes.dtype;
  const auto put = [&](int64_t r, int64_t c, const Scale& s) {
    const float value = job.value(r, c);
    const Code code = code_of(value, s.up, format);
    reinterpret_cast<uint8_t*>(job.codes.data)[r * job.codes.row_stride + c] = code.bits;
    if (job.counts != nullptr) count(*job.counts, value, code, s.scale);
  };
  if (job.shape == ScaleShape::tensor) {
    const Scale s = scale_of(job.amax, format, job.shape);
    floats(job.scale)[0] = s.scale;
    for (int64_t r = 0; r < job.rows; ++r) {
      for (int64_t c = 0; c < job.cols; ++c) put(r, c, s);
    }
    return;
  }
  for (int64_t r = 0; r < job.rows; ++r) {
    for (int64_t begin = 0; begin < job.cols; begin += scale_block) {
      const int64_t end = std::min(job.cols, begin + scale_block);
      float amax = 0;
      for (int64_t c = begin; c < end; ++c) raise(amax, job.value(r, c));
      const Scale s = scale_of(amax, format, job.shape);
      floats(job.scale)[begin / scale_block * job.scale.row_stride + r] = s.scale;
      for (int64_t c = begin; c < end; ++c) put(r, c, s);
    }
  }
}

// The rows of x below `end`, if it is present.
ConstTensor used_rows(const ConstTensor& x, const ConstTensor& end) {
  if (!end) return x;
  return x.slice_rows(0, read_index(end, 0));
}

QuantizeCounts* counts_of(const Tensor& t) { return reinterpret_cast<QuantizeCounts*>(t.data); }

// Returns the index of an element's scale among those of all matrices.
template <typename Args>
int64_t scale_index(const Args& a, int64_t element) {
  const int64_t matrix = element / (a.rows * a.cols), rest = element % (a.rows * a.cols);
  if (a.shape == ScaleShape::tensor) return matrix;
  const base::Shape one = spec::scale_spec(a.shape, a.rows, a.cols).shape;
  return matrix * one.elements() + rest / a.cols / scale_block * one[1] +
         rest % a.cols / scale_block;
}

}  // namespace

void amax(Stream& stream, const AmaxArgs& args) {
  run_on(stream, [args] { raise_by(args.amax, used_rows(args.x, args.end)); });
}

void quantize(Stream& stream, const QuantizeArgs& args) {
  run_on(stream, [args] {
    const ConstTensor x = used_rows(args.x, args.end);
    const int64_t rows = x.rows(), cols = x.cols();
    const float amax = args.amax ? floats(args.amax)[0] : 0.0F;
    if (args.counts) {
      uint32_t& bits = counts_of(args.counts)->amax_bits;
      if (args.amax && !args.is_delayed) {
        raise(bits, magnitude_bits(amax));
      } else {
        raise(bits, amax_bits(x));
      }
    }
    QuantizeCounts* counts = args.measures ? counts_of(args.counts) : nullptr;
    if (args.rows) {
      quantize_rows({rows, cols, [&](int64_t r, int64_t c) { return float_at(x, r, c); }, args.rows,
                     args.rows_scale, args.shape, amax, counts});
    }
    if (args.columns) {
      quantize_rows({cols, rows, [&](int64_t r, int64_t c) { return float_at(x, c, r); },
                     args.columns, args.columns_scale, args.shape, amax,
                     args.rows ? nullptr : counts});
    }
  });
}

void weight_amax(Stream& stream, const WeightAmaxArgs& args) {
  run_on(stream, [args] {
    for (int64_t i = 0; i < args.weights.elements(); ++i) {
      raise(floats(args.amax)[scale_index(args, args.first + i)], floats(args.weights)[i]);
    }
  });
}

void weight_quantize(Stream& stream, const WeightQuantizeArgs& args) {
  run_on(stream, [args] {
    const DType format = args.codes.dtype;
    QuantizeCounts* counts = args.measures ? counts_of(args.counts) : nullptr;
    for (int64_t i = 0; i < args.amax.elements(); ++i) {
      const float amax = floats(args.amax)[i];
      floats(args.scale)[i] = scale_of(amax, format, args.shape).scale;
      if (args.counts) raise(counts_of(args.counts)->amax_bits, magnitude_bits(amax));
    }
    for (int64_t i = 0; i < args.weights.elements(); ++i) {
      const float value = floats(args.weights)[i];
      const float amax = floats(args.amax)[scale_index(args, args.first + i)];
      const Scale s = scale_of(amax, format, args.shape);
      const Code code = code_of(value, s.up, format);
      reinterpret_cast<uint8_t*>(args.codes.data)[i] = code.bits;
      if (counts != nullptr) count(*counts, value, code, s.scale);
    }
  });
}

void transpose(Stream& stream, const TransposeArgs& args) {
  run_on(stream, [args] {
    const int64_t rows = args.x.rows() / args.count, cols = args.x.cols();
    const int64_t bytes = base::size_of(args.x.dtype);
    for (int64_t i = 0; i < args.count; ++i) {
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < cols; ++c) {
          const std::byte* from = args.x.data + ((i * rows + r) * args.x.row_stride + c) * bytes;
          std::copy_n(from, bytes, args.d.data + ((i * cols + c) * args.d.row_stride + r) * bytes);
        }
      }
    }
  });
}

}  // namespace trireme::kernels::reference
