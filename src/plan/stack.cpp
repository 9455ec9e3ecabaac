// SPDX-License-Identifier: Apache-2.0
#include "plan/stack.h"

#include <algorithm>

namespace trireme::plan {
namespace {

Stack make_trireme() {
  Stack stack;
  stack.name = "trireme";
  stack.what = "this program";
  stack.engine = true;
  // Measured on one GPU; what overlaps on several is assumed to be as in FSDP.
  stack.dp_overlap = 0.9;
  stack.contention = 0.294;
  stack.jitter = 0.005;
  stack.zero3_overlap = 0.9;
  stack.pp_overlap = 1;
  stack.cp_overlap = 0.9;
  stack.reduces_each = true;
  return stack;
}

}  // namespace

const Stack& trireme_stack() {
  static const Stack stack = make_trireme();
  return stack;
}

void keep_grads(Stack& stack, base::DType grad, base::DType reduce) {
  stack.grad_bytes = static_cast<double>(base::size_of(grad));
  stack.reduce_bytes = std::min(stack.grad_bytes, static_cast<double>(base::size_of(reduce)));
}

void keep_master(Stack& stack, base::DType master) {
  constexpr double moments = 2 * 4;
  stack.optimizer_bytes = moments + static_cast<double>(base::size_of(master));
}

base::DType master_of(const Stack& stack, Precision precision) {
  const bool has_halves = stack.optimizer_bytes < trireme_stack().optimizer_bytes;
  return stack.is_engine() && has_halves && precision != Precision::fp32 ? base::DType::u16
                                                                         : base::DType::f32;
}

spec::Recipe recipe_of(const Stack& stack, Precision precision) {
  spec::Recipe recipe = spec::recipe_from_name(precision == Precision::fp32 ? "fp32" : "bf16");
  const bool may_be_half = stack.is_engine() || precision != Precision::fp32;
  if (stack.grad_bytes < 4 && may_be_half) recipe.grad = base::DType::bf16;
  return recipe;
}

}  // namespace trireme::plan
