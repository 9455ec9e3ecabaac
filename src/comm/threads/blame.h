// SPDX-License-Identifier: Apache-2.0
// Who is to blame when a deadline passes among thread ranks: from who waits for whom to one
// sentence. Pure. (For processes, of which less is known, see comm/failure/verdict.h.)
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

namespace trireme::comm {

// A rank that waits, and the ranks that it waits for. Ranks are of the world.
struct Wait {
  int rank = 0;
  std::string group;
  std::string call;      // what it waits in: "all_reduce #17", "recv #3 from rank 0"
  std::string expected;  // what the others should come to: "all_reduce #17", "send #3 to rank 1"
  std::vector<int> missing;  // who has not come
  // Hosts wait for hosts. Else a message, which the other end's streams may bring while its host
  // waits elsewhere; a rank may then have several waits.
  bool is_collective = true;
};

// `noticed` is the wait whose deadline passed. A missing rank that itself waits for others is not
// to blame: the blame goes on to those, until a rank is found that waits for nobody, or ranks that
// wait for each other. `last_of` names what a rank finished last ("all_gather #16 of 'zero'"; empty
// if nothing).
std::string blame(std::span<const Wait> waits, size_t noticed, double deadline_s,
                  const std::function<std::string(int rank)>& last_of);

// "ranks wait for each other: ..." if the wait `through` is part of a circle of collectives, which
// no deadline is needed to see; else empty.
std::string cycle_through(std::span<const Wait> waits, size_t through);

}  // namespace trireme::comm
