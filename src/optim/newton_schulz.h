// SPDX-License-Identifier: Apache-2.0
// Newton-Schulz iterations: they bring the singular values of a matrix near 1 and keep its singular
// vectors, which is Muon's direction. With X = G / |G| (Frobenius norm), each iteration is
//
//   A = X X^T;  B = b A + c A A;  X = a X + B X      (rows <= cols; otherwise A = X^T X, X = a X +
//   X B)
//
// with a = 3.4445, b = -4.7750, c = 2.0315 (Keller Jordan,
// https://kellerjordan.github.io/posts/muon). Per iteration: 4 s^2 l + 2 s^3 FLOPs for sides s <=
// l.
#pragma once

#include <cstdint>

#include "device/device.h"
#include "device/tensor.h"

namespace trireme::optim {

struct MuonOptions {
  float momentum = 0.95F;
  bool nesterov = true;
  int ns_steps = 5;
};

// Buffers of spec::muon_scratch(), flat, for matrices of at most their sizes.
struct NewtonSchulzMemory {
  device::Tensor x, next;  // [rows * cols] f32
  device::Tensor a, b;     // [s * s] f32
  device::Tensor squares;  // one kernels::WideSum
};

// Replaces the matrix in memory.x ([rows, cols], row-major) by its direction, which is returned as
// a view of memory.x or memory.next. All sums are fixed by the shape: equal matrices give equal
// bits.
device::Tensor newton_schulz(device::Stream&, const NewtonSchulzMemory&, int64_t rows, int64_t cols,
                             int steps);

// Returns the factor by which an update of this shape has the root mean square of AdamW's, 0.2
// (Moonlight, arXiv:2502.16982), so that AdamW's learning rate and weight decay serve.
float muon_factor(int64_t rows, int64_t cols);

}  // namespace trireme::optim
