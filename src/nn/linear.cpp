// SPDX-License-Identifier: Apache-2.0
#include "nn/linear.h"

#include "base/check.h"
#include "kernels/ops.h"

namespace trireme::nn {
namespace {

using spec::Role;

// Operands are stored in the format that the recipe wants for both roles; other formats come with a
// quantise row.
void check_roles(const Pass& pass, Role a, Role b, const ConstTensor& stored) {
  for (const Role role : {a, b}) {
    const base::DType wanted = pass.recipe.gemm[static_cast<size_t>(role)];
    TRIREME_CHECK(wanted == stored.dtype, "recipe '{}' wants {} where {} is stored",
                  pass.recipe.name, base::name_of(wanted), base::name_of(stored.dtype));
  }
}

}  // namespace

void linear_forward(const Pass& pass, const LinearForward& a) {
  check_roles(pass, Role::x_fwd, Role::w_fwd, a.x);
  const kernels::GemmArgs gemm{.a = a.x,
                               .b = a.weight,
                               .d = a.y,
                               .trans_b = true,
                               .bias = a.bias,
                               .residual = a.residual,
                               .gelu_input = a.gelu_input,
                               .gelu_slope = a.gelu_slope};
  if (a.swiglu) {
    kernels::ops::gemm_swiglu_forward(pass.stream, gemm, {.gate_up = a.y, .y = a.swiglu});
  } else {
    kernels::ops::gemm(pass.stream, gemm);
  }
}

void linear_backward_input(const Pass& pass, const LinearBackwardInput& a) {
  check_roles(pass, Role::dy_dgrad, Role::w_dgrad, a.dy);
  const kernels::GemmArgs gemm{.a = a.dy,
                               .b = a.weight,
                               .d = a.dx,
                               .gelu_grad_of = a.gelu_grad_of,
                               .factor = a.factor,
                               .d_sum = a.dx_sum,
                               .gelu_again = a.gelu_again};
  if (a.swiglu.dy) {
    kernels::ops::gemm_swiglu_backward(pass.stream, gemm, a.swiglu);
  } else {
    kernels::ops::gemm(pass.stream, gemm);
  }
}

void linear_backward_weight(const Pass& pass, const LinearBackwardWeight& a) {
  check_roles(pass, Role::x_wgrad, Role::dy_wgrad, a.dy);
  kernels::ops::gemm(pass.stream, {.a = a.dy,
                                   .b = a.x,
                                   .d = a.weight_grad,
                                   .trans_a = true,
                                   .beta = a.writes ? 0.0F : 1.0F,
                                   .a_sum = a.bias_grad});
}

}  // namespace trireme::nn
