// SPDX-License-Identifier: Apache-2.0
// Conversion of a rank's weights to 8-bit floats, and transposition of codes and scales, as
// kernels/quantize_args.h states. A task converts task_elements weights, in runs of elements that
// share a scale.
#include "kernels/cpu/quantize/counts.h"
#include "kernels/cpu/segment.h"
#include "kernels/cpu/table_ops.h"

namespace trireme::kernels::cpu {
namespace {

// The longest run.
constexpr int64_t max_run = max_segment;

// Consecutive elements of a rank, [begin, begin + count), and the index of their scale.
struct Run {
  int64_t begin, count, scale;
};

// Where the scales of elements are. Element 0 is the first of the first matrix.
template <typename Args>
class WeightScales {
 public:
  explicit WeightScales(const Args& args) : args_(args) {
    if (args.shape == ScaleShape::tensor) return;
    const base::Shape one = spec::scale_spec(args.shape, args.rows, args.cols).shape;
    scales_of_matrix_ = one.elements();
    scales_of_row_ = one[1];
  }

  // Calls body(run) for runs that cover the elements [begin, end) of the rank.
  template <typename Body>
  void for_each_run(int64_t begin, int64_t end, const Body& body) const {
    while (begin < end) {
      const Run run = run_at(begin, std::min(max_run, end - begin));
      body(run);
      begin += run.count;
    }
  }

 private:
  Run run_at(int64_t begin, int64_t limit) const {
    const int64_t size = args_.rows * args_.cols, element = args_.first + begin;
    const int64_t matrix = element / size, rest = element % size;
    if (args_.shape == ScaleShape::tensor) return {begin, std::min(limit, size - rest), matrix};
    const int64_t row = rest / args_.cols, col = rest % args_.cols;
    const int64_t block = col / spec::scale_block;
    const int64_t block_end = std::min(args_.cols, (block + 1) * spec::scale_block);
    return {begin, std::min(limit, block_end - col),
            matrix * scales_of_matrix_ + row / spec::scale_block * scales_of_row_ + block};
  }

  const Args& args_;
  int64_t scales_of_matrix_ = 1, scales_of_row_ = 1;
};

// Calls body(task, begin, end) for pieces of a rank's elements.
template <typename Body>
void for_each_piece(base::ThreadPool& pool, int64_t elements, const Body& body) {
  pool.for_each(divide_up(elements, task_elements), [&](int64_t task) {
    body(task, task * task_elements, std::min(elements, (task + 1) * task_elements));
  });
}

void raise_all(base::ThreadPool& pool, const WeightAmaxArgs& args) {
  const WeightScales scales(args);
  const float* weights = floats_at(args.weights, 0);
  for_each_piece(pool, args.weights.elements(), [&](int64_t /*task*/, int64_t begin, int64_t end) {
    scales.for_each_run(begin, end, [&](const Run& run) {
      raise(bits_at(args.amax, run.scale), amax_bits(weights + run.begin, run.count));
    });
  });
}

template <typename Float8>
void convert_run(const WeightQuantizeArgs& args, const Run& run, QuantizeCounts* counts) {
  const float* weights = floats_at(args.weights, 0) + run.begin;
  uint8_t* codes = bytes_at(args.codes, 0) + run.begin;
  const Scale s = scale_of<Float8>(magnitude_at(args.amax, run.scale));
  SegmentBuffer up, scale;
  std::fill_n(up, run.count, s.up);
  encode<Float8>(weights, up, run.count, codes);
  if (counts == nullptr) return;
  std::fill_n(scale, run.count, s.scale);
  measure<Float8>({weights, codes, up, scale, run.count}, *counts);
}

template <typename Float8>
void convert_weights(base::ThreadPool& pool, const WeightQuantizeArgs& args) {
  for (int64_t i = 0; i < args.amax.elements(); ++i) {
    const uint32_t bits = magnitude_at(args.amax, i);
    floats_at(args.scale, 0)[i] = scale_of<Float8>(bits).scale;
    if (args.counts) raise(counts_of(args.counts).amax_bits, bits);
  }
  const WeightScales scales(args);
  const int64_t elements = args.weights.elements();
  const int64_t tasks = divide_up(elements, task_elements);
  std::vector<QuantizeCounts> parts(static_cast<size_t>(args.measures ? tasks : 0));
  for_each_piece(pool, elements, [&](int64_t task, int64_t begin, int64_t end) {
    QuantizeCounts* counts = args.measures ? &parts[static_cast<size_t>(task)] : nullptr;
    scales.for_each_run(begin, end,
                        [&](const Run& run) { convert_run<Float8>(args, run, counts); });
  });
  if (args.measures) add_counts(parts, counts_of(args.counts));
}

constexpr int64_t transpose_side = 64;

template <typename T>
void transpose_all(base::ThreadPool& pool, const TransposeArgs& args) {
  const int64_t rows = args.x.rows() / args.count, cols = args.x.cols();
  const int64_t along = divide_up(cols, transpose_side), down = divide_up(rows, transpose_side);
  const T* x = reinterpret_cast<const T*>(args.x.data);
  T* d = reinterpret_cast<T*>(args.d.data);
  pool.for_each(args.count * down * along, [&](int64_t task) {
    const int64_t matrix = task / (down * along);
    const int64_t r0 = task / along % down * transpose_side, c0 = task % along * transpose_side;
    const int64_t r1 = std::min(rows, r0 + transpose_side),
                  c1 = std::min(cols, c0 + transpose_side);
    for (int64_t c = c0; c < c1; ++c) {
      T* to = d + (matrix * cols + c) * args.d.row_stride;
      for (int64_t r = r0; r < r1; ++r) to[r] = x[(matrix * rows + r) * args.x.row_stride + c];
    }
  });
}

}  // namespace

void weight_amax(Stream& stream, const WeightAmaxArgs& args) { run_on(stream, args, raise_all); }

void weight_quantize(Stream& stream, const WeightQuantizeArgs& args) {
  run_on(stream, args, [](base::ThreadPool& pool, const WeightQuantizeArgs& a) {
    with_format(a.codes.dtype, [&]<typename Float8>(Float8) { convert_weights<Float8>(pool, a); });
  });
}

void transpose(Stream& stream, const TransposeArgs& args) {
  run_on(stream, args, [](base::ThreadPool& pool, const TransposeArgs& a) {
    if (a.x.dtype == base::DType::f32) {
      transpose_all<uint32_t>(pool, a);
    } else {
      transpose_all<uint8_t>(pool, a);
    }
  });
}

}  // namespace trireme::kernels::cpu
