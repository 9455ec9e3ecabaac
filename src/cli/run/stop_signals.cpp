// SPDX-License-Identifier: Apache-2.0
#include "cli/run/stop_signals.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <ctime>
#include <string>

#include "base/log.h"

namespace trireme::cli {
namespace {

// Signal handlers can access globals only.
std::atomic<bool> stop_requested{false};
std::atomic<bool> save_requested{false};
std::atomic<int64_t> first_interrupt_ms{-1};

int64_t now_ms() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

void on_stop_request(int /*signal*/) { stop_requested = true; }

void on_interrupt(int signal) {
  int64_t first = -1;
  const int64_t now = now_ms();
  if (!first_interrupt_ms.compare_exchange_strong(first, now) &&
      now - first >= static_cast<int64_t>(1000 * repeat_seconds)) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
  stop_requested = true;
}

void on_save_request(int /*signal*/) { save_requested = true; }

void handle(int number, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  ::sigaction(number, &action, nullptr);
}

// Returns the descriptor if it is a pipe, which children of this process do not inherit; otherwise
// -1: a program between launcher and rank may have closed it.
int own_pipe(int descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0 || !S_ISFIFO(status.st_mode)) return -1;
  ::fcntl(descriptor, F_SETFD, FD_CLOEXEC);
  return descriptor;
}

// Returns whether all writing ends of the pipe are closed; false for -1.
bool is_pipe_closed(int reading_end) {
  pollfd polled{reading_end, POLLIN, 0};
  return ::poll(&polled, 1, 0) > 0 && (polled.revents & POLLHUP) != 0;
}

}  // namespace

void ignore_broken_pipes() { std::signal(SIGPIPE, SIG_IGN); }

StopSignals::StopSignals() {
  for (const int number : {SIGTERM, SIGUSR2, SIGXCPU}) handle(number, on_stop_request);
  struct sigaction hangup {};
  if (::sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler != SIG_IGN) {
    handle(SIGHUP, on_stop_request);
  }
  handle(SIGINT, on_interrupt);
  handle(SIGUSR1, on_save_request);
  ignore_broken_pipes();
}

StopSignals::~StopSignals() {
  if (!watch_.joinable()) return;
  {
    const std::scoped_lock lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  watch_.join();
}

const std::atomic<bool>* StopSignals::stop() const { return &stop_requested; }
std::atomic<bool>* StopSignals::save() const { return &save_requested; }

void StopSignals::watch_launcher(int inherited) {
  const int life_line = own_pipe(inherited);
  const auto request_stop = [](const std::string& launcher) {
    if (stop_requested.exchange(true)) return;
    base::log_warning("the launcher{} has ended: this rank stops", launcher);
  };
  if (is_pipe_closed(life_line)) {
    request_stop("");
    return;
  }
  // PR_SET_PDEATHSIG would fire at the end of the thread that started this process, which may be
  // long before the launcher's.
  watch_ = std::thread([this, request_stop, life_line, parent = ::getppid()] {
    std::unique_lock lock(mutex_);
    while (
        !changed_.wait_for(lock, std::chrono::milliseconds(250), [this] { return is_ending_; })) {
      // Another launcher process may take over from the parent; the pipe tells when none is left.
      const bool has_ended = life_line >= 0 ? is_pipe_closed(life_line) : ::getppid() != parent;
      if (!has_ended) continue;
      request_stop(fmt::format(" (process {})", parent));
      return;
    }
  });
}

}  // namespace trireme::cli
