// SPDX-License-Identifier: Apache-2.0
#include "agent/notice.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "obs/children/child_process.h"
#include "obs/clock.h"

namespace trireme::agent {
namespace {

// How a shell reports a program that it cannot execute, or does not find.
constexpr std::string_view not_startable_endings[] = {"exit code 126", "exit code 127"};

// A parent may have set SIGCHLD to be ignored; how a command ended would then be unknown.
void keep_endings_of_children() {
  struct sigaction action {};
  if (::sigaction(SIGCHLD, nullptr, &action) != 0 || action.sa_handler != SIG_IGN) return;
  std::signal(SIGCHLD, SIG_DFL);
}

bool is_handled(int number) {
  struct sigaction action {};
  return ::sigaction(number, nullptr, &action) == 0 && action.sa_handler != SIG_DFL;
}

}  // namespace

std::string text_of(const Notice& notice) {
  if (notice.source == "file") {
    return fmt::format("the notice file {} has appeared or changed", notice.what);
  }
  return fmt::format("the notice command \"{}\" ended with exit code 0", notice.what);
}

NoticeWatch::NoticeWatch(NoticeOptions options, std::function<void(const Notice&)> on_notice)
    : options_(std::move(options)), on_notice_(std::move(on_notice)) {
  known_ = stamp_of(options_.file);
  if (!options_.command.empty()) {
    keep_endings_of_children();
    const Answer answer = ask();
    if (answer == Answer::not_startable) {
      throw base::ConfigError(
          fmt::format("elastic.notice_command = \"{}\": the shell cannot start it; install the "
                      "program, correct the command, or leave the key empty",
                      options_.command));
    }
    has_notice_ = answer == Answer::notice;
  }
  thread_ = std::thread([this] { watch(); });
}

NoticeWatch::~NoticeWatch() {
  {
    const std::scoped_lock lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::optional<NoticeWatch::Stamp> NoticeWatch::stamp_of(const std::string& path) {
  struct stat status {};
  if (path.empty() || ::stat(path.c_str(), &status) != 0) return std::nullopt;
  return Stamp{.device = status.st_dev,
               .inode = status.st_ino,
               .seconds = status.st_mtim.tv_sec,
               .nanoseconds = status.st_mtim.tv_nsec};
}

NoticeWatch::Answer NoticeWatch::ask() {
  obs::ChildProcess child({.words = obs::shell_words("exec > /dev/null 2>&1\n" + options_.command),
                           .environment = options_.environment});
  const double until = obs::steady_seconds() + options_.timeout_seconds;
  while (!child.wait(0.05)) {
    const std::scoped_lock lock(mutex_);
    if (is_ending_ || obs::steady_seconds() >= until) return Answer::none;
  }
  if (child.is_good()) return Answer::notice;
  return std::ranges::count(not_startable_endings, child.ending()) > 0 ? Answer::not_startable
                                                                       : Answer::none;
}

bool NoticeWatch::has_file_notice() {
  const std::optional<Stamp> now = stamp_of(options_.file);
  const bool is_new = now && now != known_;
  known_ = now;
  return is_new;
}

bool NoticeWatch::waits(double seconds) {
  std::unique_lock lock(mutex_);
  return !changed_.wait_for(lock, std::chrono::duration<double>(seconds),
                            [this] { return is_ending_; });
}

void NoticeWatch::watch() {
  std::optional<Notice> notice;
  if (has_notice_) notice = Notice{.source = "command", .what = options_.command};
  double asked = obs::steady_seconds();
  bool has_warned = false;
  while (!notice && waits(options_.file_seconds)) {
    if (has_file_notice()) notice = Notice{.source = "file", .what = options_.file};
    if (notice || options_.command.empty()) continue;
    if (obs::steady_seconds() - asked < options_.command_seconds) continue;
    asked = obs::steady_seconds();
    try {
      const Answer answer = ask();
      if (answer == Answer::notice) {
        notice = Notice{.source = "command", .what = options_.command};
      }
      if (answer == Answer::not_startable && !std::exchange(has_warned, true)) {
        base::log_warning("elastic.notice_command: the shell cannot start it any more: {}",
                          options_.command);
      }
    } catch (const base::IoError& error) {  // no memory or process for the shell
      if (!std::exchange(has_warned, true)) {
        base::log_warning("elastic.notice_command: {}", error.what());
      }
    }
  }
  if (!notice) return;
  notice->time = obs::wall_seconds();
  on_notice_(*notice);
  if (options_.stops) stop_process();
}

void NoticeWatch::stop_process() {
  constexpr double look_seconds = 0.05;
  while (!is_handled(SIGTERM)) {
    if (!waits(look_seconds)) return;
  }
  ::kill(::getpid(), SIGTERM);
}

}  // namespace trireme::agent
