// SPDX-License-Identifier: Apache-2.0
#include "nn/linear.h"

#include "base/check.h"
#include "kernels/ops.h"

namespace trireme::nn {
namespace {

using spec::Role;

// An operand and the role that it has.
struct Operand {
  Role role;
  const ConstTensor& stored;
};

// Checks that operands are stored in the formats of the recipe, or, without scales, in the storage
// type. The products of layers other than blocks, of blocks in bf16, and of routers and shared
// experts have the storage type.
void check_roles(const Pass& pass, bool has_scales, const Operand& a, const Operand& b) {
  for (const Operand& operand : {a, b}) {
    const base::DType wanted = has_scales ? pass.recipe.format(operand.role) : pass.recipe.storage;
    TRIREME_CHECK(wanted == operand.stored.dtype,
                  "recipe '{}' needs {}, the operand is stored as {}", pass.recipe.name,
                  base::name_of(wanted), base::name_of(operand.stored.dtype));
  }
}

}  // namespace

void linear_forward(const Pass& pass, const LinearForward& a) {
  const bool has_scales = static_cast<bool>(a.x_scale);
  check_roles(pass, has_scales, {Role::x_fwd, a.x}, {Role::w_fwd, a.weight});
  kernels::GemmArgs gemm{
      .a = a.x, .b = a.weight, .d = a.y, .trans_b = true, .epilogue = a.epilogue};
  if (has_scales) {
    gemm.scale_a = a.x_scale;
    gemm.scale_b = a.weight_scale;
    gemm.shape_a = pass.recipe.fp8->rows;
    gemm.shape_b = pass.recipe.fp8->weights;
    gemm.fast_sums = pass.recipe.fp8->fast_forward;
  }
  if (a.swiglu) {
    kernels::ops::gemm_swiglu_forward(pass.stream, gemm, {.gate_up = a.y, .y = a.swiglu});
  } else {
    kernels::ops::gemm(pass.stream, gemm);
  }
}

void linear_backward_input(const Pass& pass, const LinearBackwardInput& a) {
  const bool has_scales = static_cast<bool>(a.dy_scale);
  check_roles(pass, has_scales, {Role::dy_dgrad, a.dy}, {Role::w_dgrad, a.weight});
  kernels::GemmArgs gemm{.a = a.dy, .b = a.weight, .d = a.dx, .epilogue = a.epilogue};
  if (has_scales) {
    gemm.trans_b = true;
    gemm.scale_a = a.dy_scale;
    gemm.scale_b = a.weight_scale;
    gemm.shape_a = pass.recipe.fp8->rows;
    gemm.shape_b = pass.recipe.fp8->weights;
  }
  if (a.swiglu.dy) {
    kernels::ops::gemm_swiglu_backward(pass.stream, gemm, a.swiglu);
  } else {
    kernels::ops::gemm(pass.stream, gemm);
  }
}

void linear_backward_weight(const Pass& pass, const LinearBackwardWeight& a) {
  const bool has_scales = static_cast<bool>(a.dy_scale);
  check_roles(pass, has_scales, {Role::x_wgrad, a.x}, {Role::dy_wgrad, a.dy});
  kernels::GemmArgs gemm{
      .a = a.dy, .b = a.x, .d = a.weight_grad, .trans_a = true, .beta = a.writes ? 0.0F : 1.0F};
  if (has_scales) {
    gemm.trans_a = false;
    gemm.trans_b = true;
    gemm.scale_a = a.dy_scale;
    gemm.scale_b = a.x_scale;
    gemm.shape_a = gemm.shape_b = pass.recipe.fp8->rows;
  }
  if (a.bias_grad) gemm.epilogue = kernels::BiasGradient{a.bias_grad};
  kernels::ops::gemm(pass.stream, gemm);
}

}  // namespace trireme::nn
