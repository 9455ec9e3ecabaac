// SPDX-License-Identifier: Apache-2.0
// Whether a run keeps copies of its state in memory that outlives its processes (elastic.peer).
#pragma once

#include <string>

#include "config/config.h"
#include "spec/model.h"
#include "spec/plan.h"
#include "train/setup/ranks.h"

namespace trireme::train {

struct CopyChoice {
  bool is_on = false;
  std::string why_not;  // off, although processes could keep copies; may be empty
};
// The same on all ranks if all have a descriptor, or none. Throws ConfigError if copies are asked
// for (elastic.peer = "true") and cannot be kept.
CopyChoice choose_copies(const config::Config&, const RankStart&, const spec::ModelSpec&,
                         const spec::Plan&);

}  // namespace trireme::train
