// SPDX-License-Identifier: Apache-2.0
// Conversion of activations and gradients to 8-bit floats, as kernels/quantize_args.h states. A
// task converts one tile of 128 x 128 values by rows and by columns: both kinds of scales are those
// of values within the tile, or one for the tensor.
#include "kernels/cpu/quantize/counts.h"
#include "kernels/cpu/segment.h"
#include "kernels/cpu/table_ops.h"

namespace trireme::kernels::cpu {
namespace {

constexpr int64_t side = spec::scale_block;

struct TileMemory;  // tag of thread_floats()

// Scales of the columns of a tile, or of one row of it.
struct TileScales {
  float up[side], scale[side];

  void set(int64_t i, const Scale& s) {
    up[i] = s.up;
    scale[i] = s.scale;
  }
  void set_all(const Scale& s) {
    std::fill_n(up, side, s.up);
    std::fill_n(scale, side, s.scale);
  }
};

// The rows of x below `end`, if it is present.
ConstTensor used_rows(const ConstTensor& x, const ConstTensor& end) {
  if (!end) return x;
  return x.slice_rows(0, index_at(end, 0));
}

// Part of x as fp32.
struct Tile {
  int64_t r0, c0, rows, cols;
  const float* row[side];

  Tile(const ConstTensor& x, int64_t first_row, int64_t first_col)
      : r0(first_row),
        c0(first_col),
        rows(std::min(side, x.rows() - first_row)),
        cols(std::min(side, x.cols() - first_col)) {
    float* memory = thread_floats<TileMemory>(side * side);
    for (int64_t r = 0; r < rows; ++r) {
      row[r] = values_of(x, {r0 + r, c0, cols}, memory + r * side);
    }
  }
};

uint32_t amax_of(const Tile& tile) {
  uint32_t largest = 0;
  for (int64_t r = 0; r < tile.rows; ++r) {
    largest = std::max(largest, amax_bits(tile.row[r], tile.cols));
  }
  return largest;
}

// One task of quantize().
template <typename Float8>
class TileTask {
 public:
  // `counts` may be null.
  TileTask(const QuantizeArgs& args, const Tile& tile, QuantizeCounts* counts)
      : args_(args), tile_(tile), counts_(counts) {}

  void one_scale() {
    TileScales scales;
    scales.set_all(scale_of<Float8>(magnitude_at(args_.amax, 0)));
    for (int64_t r = 0; r < tile_.rows; ++r) {
      convert(r, scales, codes_ + r * side, counts_);
      if (args_.rows) std::copy_n(codes_ + r * side, tile_.cols, row_codes(r));
    }
    if (args_.columns) write_columns();
  }

  void scales_by_rows() {
    TileScales scales;
    for (int64_t r = 0; r < tile_.rows; ++r) {
      const Scale s = scale_of_row<Float8>(amax_bits(tile_.row[r], tile_.cols));
      floats_at(args_.rows_scale, tile_.c0 / side)[tile_.r0 + r] = s.scale;
      scales.set_all(s);
      convert(r, scales, row_codes(r), counts_);
    }
  }

  void scales_by_columns() {
    uint32_t largest[side] = {};
    for (int64_t r = 0; r < tile_.rows; ++r) {
      const float* x = tile_.row[r];
#pragma omp simd
      for (int64_t c = 0; c < tile_.cols; ++c) {
        largest[c] = std::max(largest[c], std::bit_cast<uint32_t>(x[c]) & 0x7fffffffU);
      }
    }
    TileScales scales;
    float* stored = floats_at(args_.columns_scale, tile_.r0 / side) + tile_.c0;
    for (int64_t c = 0; c < tile_.cols; ++c) {
      scales.set(c, scale_of_row<Float8>(largest[c]));
      stored[c] = scales.scale[c];
    }
    QuantizeCounts* counts = args_.rows ? nullptr : counts_;
    for (int64_t r = 0; r < tile_.rows; ++r) convert(r, scales, codes_ + r * side, counts);
    write_columns();
  }

 private:
  uint8_t* row_codes(int64_t r) const { return bytes_at(args_.rows, tile_.r0 + r) + tile_.c0; }

  void convert(int64_t r, const TileScales& scales, uint8_t* codes, QuantizeCounts* counts) const {
    encode<Float8>(tile_.row[r], scales.up, tile_.cols, codes);
    if (counts == nullptr) return;
    measure<Float8>({tile_.row[r], codes, scales.up, scales.scale, tile_.cols}, *counts);
  }

  void write_columns() const {
    for (int64_t c = 0; c < tile_.cols; ++c) {
      uint8_t* column = bytes_at(args_.columns, tile_.c0 + c) + tile_.r0;
      for (int64_t r = 0; r < tile_.rows; ++r) column[r] = codes_[r * side + c];
    }
  }

  const QuantizeArgs& args_;
  const Tile& tile_;
  QuantizeCounts* counts_;
  uint8_t codes_[side * side];
};

template <typename Float8>
void convert_tile(const QuantizeArgs& args, const Tile& tile, QuantizeCounts* counts) {
  TileTask<Float8> task(args, tile, counts);
  if (args.shape == ScaleShape::tensor) {
    task.one_scale();
    return;
  }
  if (args.rows) task.scales_by_rows();
  if (args.columns) task.scales_by_columns();
}

void convert_all(base::ThreadPool& pool, const QuantizeArgs& args) {
  const base::DType format = args.rows ? args.rows.dtype : args.columns.dtype;
  const bool is_tensor = args.shape == ScaleShape::tensor;
  const bool reads_amax = args.counts && (!is_tensor || args.is_delayed);
  if (is_tensor) {
    const uint32_t bits = magnitude_at(args.amax, 0);
    if (args.counts && !args.is_delayed) raise(counts_of(args.counts).amax_bits, bits);
    with_format(format, [&]<typename Float8>(Float8) {
      const float scale = scale_of<Float8>(bits).scale;
      if (args.rows) *floats_at(args.rows_scale, 0) = scale;
      if (args.columns) *floats_at(args.columns_scale, 0) = scale;
    });
  }
  const ConstTensor x = used_rows(args.x, args.end);
  const int64_t tiles_along = divide_up(x.cols(), side);
  const int64_t tiles = divide_up(x.rows(), side) * tiles_along;
  std::vector<QuantizeCounts> parts(static_cast<size_t>(args.measures ? tiles : 0));
  pool.for_each(tiles, [&](int64_t task) {
    const Tile tile(x, task / tiles_along * side, task % tiles_along * side);
    if (reads_amax) raise(counts_of(args.counts).amax_bits, amax_of(tile));
    QuantizeCounts* counts = args.measures ? &parts[static_cast<size_t>(task)] : nullptr;
    with_format(format, [&]<typename Float8>(Float8) { convert_tile<Float8>(args, tile, counts); });
  });
  if (args.measures) add_counts(parts, counts_of(args.counts));
}

void raise_by_all(base::ThreadPool& pool, const AmaxArgs& args) {
  const ConstTensor x = used_rows(args.x, args.end);
  for_each_segment(pool, common_extent(x, x), [&](const Segment& s) { raise_by(args.amax, x, s); });
}

}  // namespace

void amax(Stream& stream, const AmaxArgs& args) { run_on(stream, args, raise_by_all); }
void quantize(Stream& stream, const QuantizeArgs& args) { run_on(stream, args, convert_all); }

}  // namespace trireme::kernels::cpu
