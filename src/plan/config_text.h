// SPDX-License-Identifier: Apache-2.0
// A layout as the configuration that `trireme train` runs.
#pragma once

#include <string>

#include "plan/job.h"

namespace trireme::plan {

struct ConfigChoice {
  std::string model;                           // as model.name in a configuration
  std::string comment;                         // lines of its head, without #
  bool bf16_grads = false, bf16_sums = false;  // training.grad_dtype, parallelism.reduce_dtype
  bool half_masters = false;                   // optimizer.master_dtype
};
// REQUIRES: the engine can run the layout.
std::string config_text(const Job&, const Layout&, const ConfigChoice&);

}  // namespace trireme::plan
