// SPDX-License-Identifier: Apache-2.0
// What the transfers of a rank without its peers cost beside its compute: local copies, no link.
#pragma once

#include <cstdint>

#include "engine/engine.h"
#include "train/measure/lone_rank/lone_rank.h"

namespace trireme::train {

// Seconds in a step.
struct LoneTransfers {
  double seconds = 0;             // all transfers, each on its stream
  double exposed_seconds = 0;     // the part of them in which no op ran on compute
  double op_seconds = 0;          // the ops on compute
  double op_seconds_alone = 0;    // the same in steps without transfers
  double step_seconds_alone = 0;  // a whole step without transfers, not traced

  // How much longer ops take beside transfers, which use the same memory and multiprocessors.
  double slow_down() const { return op_seconds_alone > 0 ? op_seconds / op_seconds_alone : 1; }
};

// Traces `steps` further steps, and as many without transfers, none of them captured; then times
// steps without transfers, captured as usual. Transfers stay off afterwards.
LoneTransfers measure_transfers(engine::Engine&, engine::MicrobatchSource&, LoneRank&,
                                int64_t steps);

}  // namespace trireme::train
