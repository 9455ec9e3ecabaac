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
// Types and sizes that a layout has under a stack: the engine's are those of the layout, another
// program's those of its stack.
base::DType master_of(const Stack&, const Layout&);
double grad_bytes(const Stack&, const Layout&);    // of an element, as gradients are added up
double reduce_bytes(const Stack&, const Layout&);  // of an element that is summed over data ranks
double optimizer_bytes(const Stack&, const Layout&);  // of a parameter, besides weight and gradient
// What the layers of a step compute with.
spec::Recipe recipe_of(const Stack&, Precision, base::DType grad_dtype);

}  // namespace trireme::plan
