// SPDX-License-Identifier: Apache-2.0
// How far the other ranks must have come before one can get somewhere: what a rank may hold back
// without anybody waiting for ever.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "schedule/schedule.h"

namespace trireme::schedule {

class Prefixes {
 public:
  // With so many messages that may be on their way on each channel. REQUIRES: check() finds no
  // fault with them, and send_buffers >= 1.
  Prefixes(const Schedule&, int send_buffers);

  // `rank` is to get through its first `actions`.
  void need(int rank, int actions);
  // The first actions of this rank's program that all needs so far ask for.
  int of(int rank) const { return needed_[static_cast<size_t>(rank)]; }

 private:
  // From rank to rank; of activations or of gradients.
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
