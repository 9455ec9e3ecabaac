// SPDX-License-Identifier: Apache-2.0
#include "nn/linear.h"

#include "base/check.h"
#include "kernels/ops.h"

namespace trireme::nn {
namespace {

using spec::Role;

// Checks that operands are stored in the format of the recipe for both roles; other formats would
// need an op that quantises.
void check_roles(const Pass& pass, Role a, Role b, const ConstTensor& stored) {
  for (const Role role : {a, b}) {
    const base::DType wanted = pass.recipe.gemm[static_cast<size_t>(role)];
    TRIREME_CHECK(wanted == stored.dtype, "recipe '{}' needs {}, the operand is stored as {}",
                  pass.recipe.name, base::name_of(wanted), base::name_of(stored.dtype));
  }
}

}  // namespace

void linear_forward(const Pass& pass, const LinearForward& a) {
  check_roles(pass, Role::x_fwd, Role::w_fwd, a.x);
  const kernels::GemmArgs gemm{
      .a = a.x, .b = a.weight, .d = a.y, .trans_b = true, .epilogue = a.epilogue};
  if (a.swiglu) {
    kernels::ops::gemm_swiglu_forward(pass.stream, gemm, {.gate_up = a.y, .y = a.swiglu});
  } else {
    kernels::ops::gemm(pass.stream, gemm);
  }
}

void linear_backward_input(const Pass& pass, const LinearBackwardInput& a) {
  check_roles(pass, Role::dy_dgrad, Role::w_dgrad, a.dy);
  const kernels::GemmArgs gemm{.a = a.dy, .b = a.weight, .d = a.dx, .epilogue = a.epilogue};
  if (a.swiglu.dy) {
    kernels::ops::gemm_swiglu_backward(pass.stream, gemm, a.swiglu);
  } else {
    kernels::ops::gemm(pass.stream, gemm);
  }
}

void linear_backward_weight(const Pass& pass, const LinearBackwardWeight& a) {
  check_roles(pass, Role::x_wgrad, Role::dy_wgrad, a.dy);
  kernels::GemmArgs gemm{
      .a = a.dy, .b = a.x, .d = a.weight_grad, .trans_a = true, .beta = a.writes ? 0.0F : 1.0F};
  if (a.bias_grad) gemm.epilogue = kernels::BiasGradient{a.bias_grad};
  kernels::ops::gemm(pass.stream, gemm);
}

}  // namespace trireme::nn
