// SPDX-License-Identifier: Apache-2.0
// The kinds of a job's blocks. The planner prices at most two: blocks with experts and those
// without; or, if all blocks of the model are equal, those whose products are in 8 bits and those
// that stay in bf16. In a model that has both differences, all blocks are priced in 8 bits.
#pragma once

#include <vector>

#include "plan/job.h"
#include "plan/stack.h"

namespace trireme::plan {

struct BlockKind {
  int layer = 0;            // a layer of this kind; 0: there is none
  bool has_float8 = false;  // the engine computes its products in 8 bits
};

struct BlockKinds {
  BlockKind main, other;
  std::vector<bool> is_other;  // by block; empty if all blocks are of the first kind
};
BlockKinds block_kinds(const Job&, const Stack&, const Layout&);

}  // namespace trireme::plan
