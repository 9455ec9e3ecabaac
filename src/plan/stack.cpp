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
  // Measured on one GPU; the overlap on several GPUs is assumed to be that of FSDP.
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

base::DType master_of(const Stack& stack, const Layout& l) {
  return stack.is_engine() && l.precision != Precision::fp32 ? l.master_dtype : base::DType::f32;
}

double grad_bytes(const Stack& stack, const Layout& l) {
  return stack.is_engine() ? static_cast<double>(base::size_of(l.grad_dtype)) : stack.grad_bytes;
}

double reduce_bytes(const Stack& stack, const Layout& l) {
  if (!stack.is_engine()) return stack.reduce_bytes;
  return static_cast<double>(std::min(base::size_of(l.grad_dtype), base::size_of(l.reduce_dtype)));
}

double optimizer_bytes(const Stack& stack, const Layout& l) {
  constexpr double moments = 2 * 4;
  if (l.precision == Precision::fp32) return moments;
  return stack.is_engine() ? moments + static_cast<double>(base::size_of(l.master_dtype))
                           : stack.optimizer_bytes;
}

spec::Recipe recipe_of(const Stack& stack, Precision precision, base::DType grad_dtype) {
  const bool is_fp32 = precision == Precision::fp32;
  if (!stack.is_engine()) {
    spec::Recipe recipe = spec::recipe_of(is_fp32 ? Precision::fp32 : Precision::bf16);
    if (stack.grad_bytes < 4 && !is_fp32) recipe.grad = base::DType::bf16;
    return recipe;
  }
  const bool is_missing = precision == Precision::fp4;
  spec::Recipe recipe = spec::recipe_of(is_missing ? Precision::bf16 : precision);
  recipe.grad = grad_dtype;
  return recipe;
}

}  // namespace trireme::plan
