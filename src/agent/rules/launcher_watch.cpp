// SPDX-License-Identifier: Apache-2.0
#include "agent/rules/launcher_watch.h"

#include <string>

namespace trireme::agent {

std::vector<size_t> LauncherWatch::lost(std::span<const comm::MemberFacts> launchers, double now,
                                        bool judges_silence) {
  std::vector<size_t> found;
  for (size_t i = 0; i < launchers.size(); ++i) {
    const comm::MemberFacts& facts = launchers[i];
    if (!facts.departure) {
      ended_at_.erase(facts.name);
      const bool is_silent = facts.state && now - facts.seen_at > silence_s_;
      if (is_silent && judges_silence) found.push_back(i);
      continue;
    }
    const double ended_at = ended_at_.try_emplace(facts.name, now).first->second;
    if (now - ended_at >= grace_s_) found.push_back(i);
  }
  return found;
}

}  // namespace trireme::agent
