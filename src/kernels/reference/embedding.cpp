// SPDX-License-Identifier: Apache-2.0
// y[t] = table[tokens[t] - first_row] + position_table[positions[t]], and the adjoint. A token
// outside the table adds nothing.
#include "kernels/reference/matrix.h"
#include "kernels/reference/table_ops.h"

namespace trireme::kernels::reference {
namespace {

bool in_table(int64_t row, const Matrix& table) { return row >= 0 && row < table.rows; }

void forward(const EmbeddingForwardArgs& args) {
  const Matrix table = read(args.table), position_table = read(args.position_table);
  Matrix y(args.y.rows(), args.y.cols());
  for (int64_t t = 0; t < y.rows; ++t) {
    const int64_t row = read_index(args.tokens, t) - args.first_row;
    for (int64_t d = 0; d < y.cols; ++d) {
      if (in_table(row, table)) y(t, d) += table(row, d);
      if (args.position_table) y(t, d) += position_table(read_index(args.positions, t), d);
    }
  }
  write(args.y, y);
}

void backward(const EmbeddingBackwardArgs& args) {
  const Matrix dy = read(args.dy);
  Matrix dtable = read(args.dtable), dposition_table = read(args.dposition_table);
  for (int64_t t = 0; t < dy.rows; ++t) {
    const int64_t row = read_index(args.tokens, t) - args.first_row;
    for (int64_t d = 0; d < dy.cols; ++d) {
      if (in_table(row, dtable)) dtable(row, d) += dy(t, d);
      if (args.dposition_table) dposition_table(read_index(args.positions, t), d) += dy(t, d);
    }
  }
  write(args.dtable, dtable);
  write(args.dposition_table, dposition_table);
}

}  // namespace

void embedding_forward(Stream& stream, const EmbeddingForwardArgs& args) {
  run_on(stream, [args] { forward(args); });
}

void embedding_backward(Stream& stream, const EmbeddingBackwardArgs& args) {
  run_on(stream, [args] { backward(args); });
}

}  // namespace trireme::kernels::reference
