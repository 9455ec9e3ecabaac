// SPDX-License-Identifier: Apache-2.0
// The engine's own stack, and what numbers a stack computes with. Stacks of other programs are
// files (stacks/), which callers of this folder find by name.
#pragma once

#include <functional>
#include <string>

#include "plan/job.h"
#include "spec/recipe.h"
#include "spec/stack.h"

namespace trireme::plan {

using spec::Stack;

// Returns the stack of a name as in stacks/; throws ConfigError if there is none.
using FindStack = std::function<Stack(const std::string& name)>;

// That of this program; stacks/trireme.toml holds the same numbers.
const Stack& trireme_stack();
// Sets the types of gradients: as they are added up, and as they are summed over dp where that is
// shorter.
void keep_grads(Stack&, base::DType grad, base::DType reduce);
// Sets the type of master weights (spec::OptimizerTypes).
void keep_master(Stack&, base::DType master);
base::DType master_of(const Stack&, Precision);
// What the layers of a step compute with.
spec::Recipe recipe_of(const Stack&, Precision);

}  // namespace trireme::plan
