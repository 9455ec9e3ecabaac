// SPDX-License-Identifier: Apache-2.0
#include "analysis/read/run_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "obs/files/signal_events.h"
#include "obs/run_owner.h"

namespace trireme::analysis {
namespace {

// Returns the state that the last event of `attempt` names; none if it names no end.
std::optional<RunState> ended_state(const RunRecord& run, int64_t attempt) {
  for (auto event = run.events.rbegin(); event != run.events.rend(); ++event) {
    if (event->attempt < attempt || event->kind == obs::EventKind::start) break;
    // A process that lost its data names the file and exits, without the end of its record.
    if (obs::is_of_signal(*event) && event->data.contains("exit_code")) return RunState::failed;
    if (event->kind != obs::EventKind::end) continue;
    const auto reason = event->data.find("reason");
    if (reason == event->data.end()) return RunState::failed;
    if (*reason == "done") return RunState::done;
    if (*reason == "stopped") return RunState::stopped;
    if (*reason == "diverged") return RunState::diverged;
    return RunState::failed;
  }
  return {};
}

double modified_seconds(const std::filesystem::path& file) {
  std::error_code error;
  const auto time = std::filesystem::last_write_time(file, error);
  if (error) return 0;
  return std::chrono::duration<double>(std::chrono::file_clock::to_sys(time).time_since_epoch())
      .count();
}

// REQUIRES: the owner has not released the folder.
bool is_held(const std::filesystem::path& folder, const obs::OwnerRecord& owner, double now) {
  if (const auto is_alive = obs::is_holder_alive(owner)) return *is_alive;
  const double age = now - modified_seconds(folder / obs::RunOwner::record_name);
  return age <= obs::RunOwner::lease_seconds;
}

}  // namespace

bool is_running(const std::filesystem::path& folder, double now) {
  try {
    const std::optional<obs::OwnerRecord> owner = obs::read_owner(folder);
    return owner && !owner->is_released && is_held(folder, *owner, now);
  } catch (const base::Error&) {
    return false;  // a damaged record: no process of this program writes one
  }
}

RunState state_of(RunRecord& run, double now) {
  std::optional<obs::OwnerRecord> owner;
  try {
    owner = obs::read_owner(run.folder);
    if (!owner)
      run.problems.emplace_back("owner.json is missing: whether the run goes on is unknown");
  } catch (const base::Error& error) {
    run.problems.emplace_back(error.what());
  }
  if (owner) run.attempt = std::max(run.attempt, owner->attempt);
  if (const auto state = ended_state(run, run.attempt)) return *state;
  const bool is_complete = run.total_steps > 0 && run.last_step >= run.total_steps;
  // A start without an end: a full disk kept the end from being written, or it is being written.
  const bool lacks_end = std::ranges::any_of(run.events, [&](const obs::Event& event) {
    return event.kind == obs::EventKind::start && event.attempt == run.attempt;
  });
  if (!owner || owner->is_released) {
    if (lacks_end) return RunState::unknown;
    if (!owner) return is_complete ? RunState::done : RunState::unknown;
    return is_complete ? RunState::done : RunState::stopped;
  }
  return is_held(run.folder, *owner, now) ? RunState::running : RunState::died;
}

}  // namespace trireme::analysis
