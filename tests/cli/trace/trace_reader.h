// SPDX-License-Identifier: Apache-2.0
// A strict reader of Chrome traces: it expects the rules of the format that viewers rely on, and
// returns the slices. Problems are failures of the running test.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/text/json.h"

namespace trireme::tests {

struct ReadSlice {
  int rank = 0, track = 0;  // pid, tid
  int64_t begin_ns = 0, end_ns = 0;
  std::string name, category;
  base::Json args;
};

struct ReadTrace {
  std::map<int, std::string> ranks;                   // names by pid
  std::map<std::pair<int, int>, std::string> tracks;  // names by pid and tid
  std::vector<ReadSlice> slices;
  std::map<std::string, int> flows;  // pairs by category
  base::Json other_data;

  std::vector<ReadSlice> of_category(const std::string& category) const;
};

// Expects: processes and threads have names; slices of a thread nest or are apart, in whole
// nanoseconds and as doubles; every flow has one begin and one end, in this order, each inside of a
// slice; messages lead from a send to the receive of the same group and sequence.
ReadTrace read_trace(const std::string& text);

// Expects that all ranks of a group have made the same collectives, one after the other without a
// gap, and that as many messages were received as sent.
void expect_complete_communication(const ReadTrace&);

}  // namespace trireme::tests
