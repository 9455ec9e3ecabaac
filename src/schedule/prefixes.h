// SPDX-License-Identifier: Apache-2.0
// The actions that other ranks must have run before one rank can reach a position: they bound what
// a rank may delay without a deadlock.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "schedule/schedule.h"

namespace trireme::schedule {

class Prefixes {
 public:
  // `send_buffers`: messages that may be in flight on each channel. REQUIRES: check() finds no
  // fault with them, and send_buffers >= 1.
  Prefixes(const Schedule&, int send_buffers);

  // Requires `rank` to complete its first `actions`.
  void need(int rank, int actions);
  // Returns how many actions of this rank's program all requirements so far need.
  int of(int rank) const { return needed_[static_cast<size_t>(rank)]; }

 private:
  // From, to, and whether it carries gradients.
  using Channel = std::tuple<int, int, bool>;
  struct Ends {
    std::vector<int> sends, receives;  // positions in the programs
  };

  const Schedule& schedule_;
  const int send_buffers_;
  std::map<Channel, Ends> channels_;
  std::vector<std::vector<int>> message_;  // by rank and action: its number on the channel
  std::vector<int> needed_;
};

}  // namespace trireme::schedule
