// SPDX-License-Identifier: Apache-2.0
// The engine's own stack, and the number formats of a stack. Stacks of other programs are files
// (stacks/), which callers of this folder find by name.
#pragma once

#include <functional>
#include <string>

#include "plan/job.h"
#include "spec/recipe.h"
#include "spec/stack.h"

namespace trireme::plan {

using spec::Stack;

// Returns the stack with a name as in stacks/; throws ConfigError if none has it.
using FindStack = std::function<Stack(const std::string& name)>;

// Returns Trireme's stack; stacks/trireme.toml holds the same numbers.
const Stack& trireme_stack();
// Number formats under a stack. The engine takes them from the layout, another program from its
// stack.
base::DType master_of(const Stack&, const Layout&);
double grad_bytes(const Stack&, const Layout&);       // per element, as gradients are accumulated
double reduce_bytes(const Stack&, const Layout&);     // per element, as data ranks reduce it
double optimizer_bytes(const Stack&, const Layout&);  // per parameter, without weight and gradient
// Whether sums over ranks are the engine's, in its fixed order; other programs have a library's.
inline bool sums_in_fixed_order(const Job& job, const Stack& stack) {
  return stack.is_engine() && job.fixed_order;
}
// Returns the formats that the layers compute with; no block of an fp8 recipe stays in bf16. What
// the engine does not have, and 8 bits of other programs, are bf16 here: op_sum.h prices them.
spec::Recipe recipe_of(const Stack&, Precision, base::DType grad_dtype);

}  // namespace trireme::plan
