// SPDX-License-Identifier: Apache-2.0
// Whether a run keeps copies of its state in memory that outlives its processes (elastic.peer).
#pragma once

#include <span>
#include <string>

#include "config/config.h"
#include "spec/model.h"
#include "spec/plan.h"
#include "train/setup/ranks.h"

namespace trireme::train {

struct CopyChoice {
  bool is_on = false;
  bool is_sent = false;      // each rank's copy also goes to a rank on another node, which keeps it
  bool may_exist = false;    // an earlier epoch of the run may have left copies
  std::string why_not;       // off, although processes could keep copies; may be empty
  std::string why_not_sent;  // on, although there are several nodes; may be empty
};
// The same on all ranks if all have descriptors, or none. `nodes`: Rank::nodes(). Throws
// ConfigError if copies are asked for (elastic.peer = "true") and cannot be kept.
CopyChoice choose_copies(const config::Config&, const RankStart&, const spec::ModelSpec&,
                         const spec::Plan&, std::span<const int> nodes);

}  // namespace trireme::train
