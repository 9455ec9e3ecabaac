// SPDX-License-Identifier: Apache-2.0
#include "agent/job.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>

#include "agent/exit_codes.h"

namespace trireme::agent {

std::string JobOptions::token_of_epoch(const std::string& job_token) const {
  return epoch == 0 ? job_token : fmt::format("{}/{}", job_token, epoch);
}

bool JobResult::is_good() const {
  return !verdict && std::all_of(ranks.begin(), ranks.end(), [](const RankProcesses::State& state) {
    return state.ending && state.ending->is_good();
  });
}

int JobResult::node_exit_code() const {
  if (is_fenced) return exit_taken_over;
  if (is_good() && !has_lost_store) return exit_done;
  const auto any = [this](int code) {
    return std::any_of(ranks.begin(), ranks.end(), [code](const RankProcesses::State& state) {
      return state.ending && state.ending->signal == 0 && state.ending->exit_code == code;
    });
  };
  if (any(exit_taken_over)) return exit_taken_over;
  if (has_lost_store) return exit_stopped;
  // Ranks that the signal killed before their handlers were installed had nothing to save.
  const bool all_stopped =
      !verdict &&
      std::all_of(ranks.begin(), ranks.end(), [this](const RankProcesses::State& state) {
        if (!state.ending) return false;
        if (state.ending->signal != 0) {
          return stopped_by != 0 &&
                 (state.ending->signal == SIGTERM || state.ending->signal == SIGINT);
        }
        return state.ending->exit_code == exit_stopped || state.ending->exit_code == exit_done;
      });
  if (all_stopped) return exit_stopped;
  return any(exit_bad_call) ? exit_bad_call : exit_failed;
}

}  // namespace trireme::agent
