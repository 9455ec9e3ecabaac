// SPDX-License-Identifier: Apache-2.0
#include "agent/signals.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <system_error>

#include "base/error.h"

namespace trireme::agent {
namespace {

constexpr std::array watched = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU};

// Signal handlers can access globals only. A signalfd would not do: libraries start threads before
// main() that do not block signals.
std::atomic<int> wake_up = -1;  // the eventfd that it writes to
std::array<std::atomic<bool>, watched.size()> has_come;
std::atomic<bool> stop_came{false};

void on_signal(int number) {
  const int error = errno;
  for (size_t i = 0; i < watched.size(); ++i) {
    if (watched[i] == number) has_come[i] = true;
  }
  if (number != SIGUSR1) stop_came = true;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_up, &one, sizeof(one));
  errno = error;
}

int open_signals() {
  const int descriptor = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (descriptor < 0) {
    throw base::IoError(fmt::format("eventfd: {}", std::generic_category().message(errno)));
  }
  wake_up = descriptor;
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  for (const int number : watched) {
    struct sigaction before {};
    ::sigaction(number, nullptr, &before);
    if (number == SIGHUP && before.sa_handler == SIG_IGN) continue;  // nohup
    ::sigaction(number, &action, nullptr);
  }
  // A launcher that another one has started begins with them blocked.
  const sigset_t all = SignalQueue::handled();
  ::pthread_sigmask(SIG_UNBLOCK, &all, nullptr);
  return descriptor;
}

}  // namespace

SignalQueue::SignalQueue() : wake_up_(open_signals()) {}

SignalQueue::~SignalQueue() {
  for (const int number : watched) {
    if (number != SIGHUP) std::signal(number, SIG_DFL);
  }
}

std::vector<int> SignalQueue::take() {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t taken = ::read(wake_up_.value(), &count, sizeof(count));
  std::vector<int> numbers;
  for (size_t i = 0; i < watched.size(); ++i) {
    if (has_come[i].exchange(false)) numbers.push_back(watched[i]);
  }
  return numbers;
}

const std::atomic<bool>* SignalQueue::stop() { return &stop_came; }

sigset_t SignalQueue::handled() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : watched) sigaddset(&set, number);
  return set;
}

sigset_t SignalQueue::changed() {
  sigset_t set = handled();
  sigdelset(&set, SIGHUP);
  return set;
}

}  // namespace trireme::agent
