// SPDX-License-Identifier: Apache-2.0
// LauncherWatch: which launchers of other nodes are lost, from what the store has of them. One that
// ended may be started again by its guardian, and joins again within the grace time; one whose
// announcements have stopped is cut off, or its host has ended. Pure: times are arguments.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "comm/store/membership.h"

namespace trireme::agent {

class LauncherWatch {
 public:
  // `grace_s`: from the end of a launcher until it is lost. `silence_s`: without announcements.
  LauncherWatch(double grace_s, double silence_s) : grace_s_(grace_s), silence_s_(silence_s) {}

  // Returns which of the launchers are lost now, as places in `launchers`; `judges_silence`: this
  // process has been attentive, and so has the store.
  std::vector<size_t> lost(std::span<const comm::MemberFacts> launchers, double now,
                           bool judges_silence);

 private:
  double grace_s_, silence_s_;
  std::map<std::string, double> ended_at_;  // when that was seen first, by name
};

}  // namespace trireme::agent
