// SPDX-License-Identifier: Apache-2.0
// Finds the ranks to blame when a deadline passes among thread ranks, from the waits of all ranks,
// and describes them in one sentence. Pure. (comm/failure/verdict.h does this for processes, of
// which less is known.)
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

namespace trireme::comm {

// A rank that waits, and the ranks that it waits for. Ranks are world ranks.
struct Wait {
  int rank = 0;
  std::string group;
  std::string call;      // the call it waits in: "all_reduce #17", "recv #3 from rank 0"
  std::string expected;  // the call the others should enter: "all_reduce #17", "send #3 to rank 1"
  std::vector<int> missing;  // the ranks that have not entered it
  // In a collective, host threads wait for host threads. In a message (false), the peer's streams
  // may deliver it while the peer's host waits elsewhere, so a rank may have several such waits.
  bool is_collective = true;
};

// `noticed` is the wait whose deadline passed. A missing rank that itself waits for others is not
// to blame: the search follows its wait until it finds a rank that does not wait, or a cycle of
// ranks that wait for each other. `last_of` returns the call that a rank finished last ("all_gather
// #16 of 'zero'"; empty if none).
std::string blame(std::span<const Wait> waits, size_t noticed, double deadline_s,
                  const std::function<std::string(int rank)>& last_of);

// Returns "ranks wait for each other: ..." if the wait `through` is part of a cycle of collectives,
// which can be reported before any deadline passes; otherwise empty.
std::string cycle_through(std::span<const Wait> waits, size_t through);

}  // namespace trireme::comm
