// SPDX-License-Identifier: Apache-2.0
// y[t] = table[tokens[t] - first_row] + position_table[positions[t]], and the adjoint.
//
// Backward is shared by columns: a task takes all tokens in their order for its columns, so no two
// tasks touch the same element and every sum has one order.
#include <vector>

#include "kernels/cpu/segment.h"
#include "kernels/cpu/table_ops.h"

namespace trireme::kernels::cpu {
namespace {

constexpr int64_t columns_per_task = 32;

bool has_row(const ConstTensor& table, int64_t row) { return row >= 0 && row < table.rows(); }

void forward_segment(const EmbeddingForwardArgs& args, const Segment& s) {
  SegmentBuffer tables, positions, sums;
  float* y = place_for(args.y, s, sums);
  const int64_t row = index_at(args.tokens, s.row) - args.first_row;
  if (has_row(args.table, row)) {
    std::copy_n(values_of(args.table, {row, s.first, s.count}, tables), s.count, y);
  } else {
    std::fill_n(y, s.count, 0.0F);
  }
  if (args.position_table) {
    const Segment at = {index_at(args.positions, s.row), s.first, s.count};
    const float* position = values_of(args.position_table, at, positions);
#pragma omp simd
    for (int64_t i = 0; i < s.count; ++i) y[i] += position[i];
  }
  store(args.y, s, y);
}

// d[row] += dy for many rows, in some columns, of a table in fp32.
void add_row(const Tensor& d, const Segment& s, const float* dy) {
  float* to = floats_at(d, s.row) + s.first;
#pragma omp simd
  for (int64_t i = 0; i < s.count; ++i) to[i] += dy[i];
}

// A table that is not fp32 is rounded once: its rows are held in fp32 from their first token until
// all tokens are added. One object per thread serves all tasks, so that its memory is reused.
class HeldRows {
 public:
  void begin(const Tensor& d, int64_t first, int64_t count) {
    d_ = d;
    first_ = first;
    count_ = count;
    place_.assign(static_cast<size_t>(d.rows()), -1);
    rows_.clear();
    values_.clear();
  }

  void add(int64_t row, const float* dy) {
    int32_t& place = place_[static_cast<size_t>(row)];
    if (place < 0) {
      place = static_cast<int32_t>(rows_.size());
      rows_.push_back(row);
      values_.resize(rows_.size() * columns_per_task);
      values_of(d_, {row, first_, count_}, at(place));
    }
    float* to = at(place);
    for (int64_t i = 0; i < count_; ++i) to[i] += dy[i];
  }

  void store_all() {
    for (size_t place = 0; place < rows_.size(); ++place) {
      store(d_, {rows_[place], first_, count_}, at(static_cast<int32_t>(place)));
    }
  }

 private:
  float* at(int32_t place) { return values_.data() + int64_t{place} * columns_per_task; }

  Tensor d_;
  int64_t first_ = 0, count_ = 0;  // columns
  std::vector<int32_t> place_;     // of a table row in rows_, or -1
  std::vector<int64_t> rows_;
  std::vector<float> values_;
};

// d[row_of(t)] += dy[t] in order, columns [first, first + count); tokens without a row are
// ignored.
template <typename RowOf>
void add_rows(const Tensor& d, const ConstTensor& dy, int64_t first, int64_t count,
              const RowOf& row_of) {
  float buffer[columns_per_task];
  if (d.dtype == base::DType::f32) {
    for (int64_t t = 0; t < dy.rows(); ++t) {
      const int64_t row = row_of(t);
      if (!has_row(d, row)) continue;
      add_row(d, {row, first, count}, values_of(dy, {t, first, count}, buffer));
    }
    return;
  }
  thread_local HeldRows held;
  held.begin(d, first, count);
  for (int64_t t = 0; t < dy.rows(); ++t) {
    const int64_t row = row_of(t);
    if (has_row(d, row)) held.add(row, values_of(dy, {t, first, count}, buffer));
  }
  held.store_all();
}

void backward(base::ThreadPool& pool, const EmbeddingBackwardArgs& args) {
  const int64_t D = args.dy.cols();
  pool.for_each(divide_up(D, columns_per_task), [&](int64_t task) {
    const int64_t first = task * columns_per_task, count = std::min(columns_per_task, D - first);
    add_rows(args.dtable, args.dy, first, count,
             [&](int64_t t) { return index_at(args.tokens, t) - args.first_row; });
    if (!args.dposition_table) return;
    add_rows(args.dposition_table, args.dy, first, count,
             [&](int64_t t) { return int64_t{index_at(args.positions, t)}; });
  });
}

}  // namespace

void embedding_forward(Stream& stream, const EmbeddingForwardArgs& args) {
  run_on(stream, args, [](base::ThreadPool& pool, const EmbeddingForwardArgs& a) {
    for_each_segment(pool, {a.y.rows(), a.y.cols()},
                     [&](const Segment& s) { forward_segment(a, s); });
  });
}

void embedding_backward(Stream& stream, const EmbeddingBackwardArgs& args) {
  run_on(stream, args, backward);
}

}  // namespace trireme::kernels::cpu
