// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "spec/machine.h"

namespace trireme::plan {

// Copies from `like` to `machine`, with the sources, what measurements on one GPU cannot show:
// links, network, fp8 and fp4, reserved memory, and the factor of FlashAttention-2.
void take_unmeasured(const spec::Machine& like, spec::Machine& machine);

}  // namespace trireme::plan
