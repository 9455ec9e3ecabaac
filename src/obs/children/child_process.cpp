// SPDX-License-Identifier: Apache-2.0
#include "obs/children/child_process.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <spawn.h>
#include <sys/wait.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <system_error>
#include <thread>
#include <utility>

#include "base/error.h"
#include "obs/clock.h"

namespace trireme::obs {
namespace {

constexpr double look_seconds = 0.005;
constexpr double terminate_seconds = 1;

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> all;
  for (std::string& word : words) all.push_back(word.data());
  all.push_back(nullptr);
  return all;
}

}  // namespace

std::vector<std::string> shell_words(const std::string& command) {
  return {"/bin/sh", "-c", command};
}

ChildProcess::ChildProcess(const Start& start) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawnattr_init(&attributes);
  if (start.input >= 0) {
    ::posix_spawn_file_actions_adddup2(&actions, start.input, 0);
  } else {
    ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  }
  ::posix_spawn_file_actions_adddup2(&actions, 2, 1);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setsigdefault(&attributes, &all);  // the run ignores some signals
  ::posix_spawnattr_setpgroup(&attributes, 0);
  ::posix_spawnattr_setflags(
      &attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  std::vector<std::string> words = start.words, environment = start.environment;
  const int error = ::posix_spawnp(&process_, words.front().c_str(), &actions, &attributes,
                                   pointers(words).data(), pointers(environment).data());
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  if (error != 0) {
    process_ = -1;
    throw base::IoError(fmt::format("{}: cannot be started: {}", start.words.front(),
                                    std::generic_category().message(error)));
  }
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : process_(std::exchange(other.process_, -1)), status_(other.status_) {}

ChildProcess::~ChildProcess() {
  if (process_ < 0 || !is_running()) return;
  ::kill(-process_, SIGTERM);
  if (wait(terminate_seconds)) return;
  ::kill(-process_, SIGKILL);
  wait(terminate_seconds);
}

bool ChildProcess::is_running() {
  if (process_ < 0 || status_) return false;
  int status = 0;
  const pid_t ended = ::waitpid(process_, &status, WNOHANG);
  if (ended == process_) status_ = status;
  if (ended < 0 && errno == ECHILD) status_ = 0;  // the caller ignores SIGCHLD
  return !status_;
}

bool ChildProcess::wait(double seconds) {
  const double until = steady_seconds() + seconds;
  while (is_running()) {
    if (steady_seconds() >= until) return false;
    std::this_thread::sleep_for(std::chrono::duration<double>(look_seconds));
  }
  return true;
}

std::string ChildProcess::ending() const {
  const int status = status_.value_or(0);
  if (WIFSIGNALED(status)) return fmt::format("signal {}", WTERMSIG(status));
  return fmt::format("exit code {}", WEXITSTATUS(status));
}

int ChildProcess::exit_code() const {
  constexpr int signal_base = 128;  // as in a shell
  const int status = status_.value_or(0);
  return WIFSIGNALED(status) ? signal_base + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace trireme::obs
