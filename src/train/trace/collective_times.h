// SPDX-License-Identifier: Apache-2.0
// The communication of traced steps by rank, group, op and layer: how often, how long, and how much
// of it compute did not hide. For collectives.json (docs/formats.md).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/text/json_fwd.h"
#include "train/trace/rank_trace.h"

namespace trireme::train {

struct CollectiveTime {
  int rank = 0;
  std::string group, op, layer;
  int64_t calls = 0, bytes = 0;  // bytes of the callers' tensors
  double seconds = 0;            // on the stream, with the wait for other ranks
  // The part of them in which no op ran on compute. A call on compute is exposed altogether; two
  // calls at the same time are each exposed.
  double exposed_seconds = 0;
};

// Ordered by rank, group, op and layer.
std::vector<CollectiveTime> collective_times(const std::vector<RankTrace>&);

// Returns the object of collectives.json.
base::Json collectives_json(const std::vector<RankTrace>&);

}  // namespace trireme::train
