// SPDX-License-Identifier: Apache-2.0
#include "plan/job.h"

namespace trireme::plan {

spec::Backend backend_for(const spec::Machine& machine, bool deterministic) {
  const bool is_gpu = machine.processor.bf16_flops > machine.processor.fp32_flops;
  return is_gpu ? spec::cuda_backend(deterministic) : spec::cpu_backend();
}

}  // namespace trireme::plan
