// SPDX-License-Identifier: Apache-2.0
#include "cli/chaos/launched_job.h"

#include <sys/prctl.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <thread>
#include <utility>

#include "obs/clock.h"

namespace trireme::cli {
namespace {

constexpr double look_at_end_seconds = 0.01, terminate_seconds = 5;

}  // namespace

LaunchedJob::LaunchedJob(obs::ChildProcess launcher, std::filesystem::path run_folder)
    : launcher_(std::move(launcher)), run_folder_(std::move(run_folder)), own_({launcher_.id()}) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
}

LaunchedJob::~LaunchedJob() {
  if (!is_running()) return;
  stop();
  if (wait(terminate_seconds)) return;
  const RankPids all = processes();
  for (const pid_t process : own_) {
    if (is_alive(process)) ::kill(process, SIGKILL);
  }
  for (const auto& [rank, process] : all.ranks) ::kill(process, SIGKILL);
  wait(terminate_seconds);
}

void LaunchedJob::reap() {
  while (true) {
    siginfo_t info{};
    // One that is not waited for yet: the launcher is ChildProcess's.
    const bool has_any = ::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
    if (!has_any || info.si_pid == 0) return;
    if (info.si_pid == launcher_.id()) {
      (void)launcher_.is_running();
    } else {
      ::waitpid(info.si_pid, nullptr, 0);
    }
    // A guardian that was started later ends well whatever the supervisor does.
    const bool counts = own_.contains(info.si_pid) && info.si_code == CLD_EXITED;
    if (counts && exit_code_.value_or(0) == 0) exit_code_ = info.si_status;
  }
}

bool LaunchedJob::is_running() {
  (void)processes();
  reap();
  if (std::ranges::any_of(own_, is_alive)) return true;
  reap();  // what has ended in between
  return false;
}

pid_t LaunchedJob::head() const {
  if (is_alive(launcher_.id())) return launcher_.id();
  const auto found = std::ranges::find_if(own_, is_alive);
  return found == own_.end() ? 0 : *found;
}

void LaunchedJob::stop() {
  if (const pid_t process = head()) ::kill(process, SIGTERM);
}

bool LaunchedJob::wait(double seconds) {
  const double until = obs::steady_seconds() + seconds;
  while (is_running()) {
    if (obs::steady_seconds() >= until) return false;
    std::this_thread::sleep_for(std::chrono::duration<double>(look_at_end_seconds));
  }
  return true;
}

int LaunchedJob::exit_code() const { return exit_code_ ? *exit_code_ : launcher_.exit_code(); }

RankPids LaunchedJob::processes() {
  RankPids found = find_ranks(run_folder_, own_);
  for (const pid_t process : {found.supervisor, found.guardian}) {
    if (process > 0) own_.insert(process);
  }
  return found;
}

bool LaunchedJob::is_guarded() {
  const RankPids now = processes();
  return now.supervisor > 0 && now.guardian > 0 && is_alive(now.supervisor) &&
         is_alive(now.guardian);
}

std::optional<ProcessUse> LaunchedJob::launcher_use() {
  const RankPids now = processes();
  if (now.guardian == 0) return use_of(launcher_.id());
  std::optional<ProcessUse> all = use_of(now.guardian);
  const std::optional<ProcessUse> supervisor = use_of(now.supervisor);
  if (!all || !supervisor) return std::nullopt;
  *all += *supervisor;
  return all;
}

}  // namespace trireme::cli
