// SPDX-License-Identifier: Apache-2.0
// y = silu(gate) up and its gradient; y = gelu(x); limits and their gradient.
#include "kernels/reference/activation.h"
#include "kernels/reference/amax.h"
#include "kernels/reference/matrix.h"
#include "kernels/reference/table_ops.h"

namespace trireme::kernels::reference {

void swiglu_forward(Stream& stream, const SwigluForwardArgs& args) {
  run_on(stream, [args] {
    const Matrix gate_up = read(args.gate_up);
    const int64_t F = gate_up.cols / 2;
    Matrix y(gate_up.rows, F);
    for (int64_t t = 0; t < y.rows; ++t) {
      for (int64_t f = 0; f < F; ++f) {
        const double gate = gate_up(t, f), up = gate_up(t, F + f);
        y(t, f) = gate * sigmoid(gate) * up;
      }
    }
    write(args.y, y);
    raise_by(args.amax, args.y);
  });
}

// silu'(x) = s (1 + x (1 - s)), s = sigmoid(x).
void swiglu_backward(Stream& stream, const SwigluBackwardArgs& args) {
  run_on(stream, [args] {
    const Matrix gate_up = read(args.gate_up), dy = read(args.dy);
    const int64_t F = dy.cols;
    Matrix dgate_up(gate_up.rows, gate_up.cols), y(dy.rows, F);
    for (int64_t t = 0; t < dy.rows; ++t) {
      for (int64_t f = 0; f < F; ++f) {
        const double gate = gate_up(t, f), up = gate_up(t, F + f), s = sigmoid(gate);
        dgate_up(t, f) = dy(t, f) * up * s * (1 + gate * (1 - s));
        dgate_up(t, F + f) = dy(t, f) * gate * s;
        y(t, f) = gate * s * up;
      }
    }
    write(args.dgate_up, dgate_up);
    write(args.y, y);
    raise_by(args.amax, args.dgate_up);
  });
}

void gelu_forward(Stream& stream, const GeluForwardArgs& args) {
  run_on(stream, [args] {
    Matrix y = read(args.x);
    for (double& value : y.values) value = gelu(value);
    write(args.y, y);
    raise_by(args.amax, args.y);
  });
}

void clamp(Stream& stream, const ClampArgs& args) {
  run_on(stream, [args] {
    Matrix x = read(args.x), dy = args.dy ? read(args.dy) : Matrix(0, 0);
    const double limit = args.limit;
    for (size_t i = 0; i < x.values.size(); ++i) {
      double& value = x.values[i];
      if (args.dy) {
        value = value >= -limit && value <= limit ? dy.values[i] : 0;
      } else {
        value = value < -limit ? -limit : value > limit ? limit : value;
      }
    }
    write(args.y, x);
  });
}

}  // namespace trireme::kernels::reference
