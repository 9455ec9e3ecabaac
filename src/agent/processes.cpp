// SPDX-License-Identifier: Apache-2.0
#include "agent/processes.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/system/descriptor_limit.h"
#include "comm/store/store.h"

namespace trireme::agent {
namespace {

base::IoError failure(std::string_view what, int error) {
  return base::IoError(fmt::format("{}: {}", what, std::generic_category().message(error)));
}

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
  if (descriptor < 0) throw failure("eventfd", errno);
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
  return descriptor;
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> all;
  for (std::string& word : words) all.push_back(word.data());
  all.push_back(nullptr);
  return all;
}

// Returns the number of descriptors that the launcher needs: for the ranks that it starts, and for
// all ranks of the job if it runs the store.
int64_t descriptors_for(const comm::RankInfo& info) {
  constexpr int64_t streams = 3;      // per rank on this host: the process, stdout, stderr
  constexpr int64_t connections = 3;  // per rank to the store: calls, heartbeat, verdict
  constexpr int64_t temporary = 8;  // ends of pipes that a new rank inherits, and short-lived files
  const bool runs_store =
      info.node == 0 && !info.store.empty() && !comm::parse_store_address(info.store).is_folder;
  return streams * info.local_world + (runs_store ? connections * info.world : 0) + temporary;
}

}  // namespace

std::string signal_name(int number) {
  const char* name = ::sigabbrev_np(number);
  return name != nullptr ? fmt::format("SIG{}", name) : fmt::format("signal {}", number);
}

std::string Ending::text() const {
  if (signal == 0) return fmt::format("ended with exit code {}", exit_code);
  return fmt::format("was killed by signal {} ({})", signal, signal_name(signal));
}

RankProcesses::RankProcesses(OnLine on_line)
    : on_line_(std::move(on_line)), signals_(open_signals()), life_line_(make_pipe()) {
  ::fcntl(life_line_.read.value(), F_SETFD, 0);  // inherited
}

RankProcesses::~RankProcesses() {
  signal(SIGKILL);
  for (Process& process : processes_) {
    if (!process.ending) ::waitpid(process.id, nullptr, 0);
  }
  for (const int number : watched) {
    if (number != SIGHUP) std::signal(number, SIG_DFL);
  }
}

RankProcesses::Pipe RankProcesses::make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw failure("pipe", errno);
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  return {base::Descriptor(ends[0]), base::Descriptor(ends[1])};
}

const std::atomic<bool>* RankProcesses::stop() { return &stop_came; }

void RankProcesses::start(comm::RankInfo info, std::vector<std::string> command,
                          comm::Environment environment, std::optional<int> known_as,
                          std::span<const int> inherited) {
  // Checked before the first rank starts: a rank that could not be started would be noticed only at
  // the deadline.
  if (processes_.empty()) {
    base::expect_descriptors(descriptors_for(info),
                             fmt::format("launching {} rank{} of {}", info.local_world,
                                         info.local_world == 1 ? "" : "s", info.world));
  }
  info.life_line = life_line_.read.value();
  Pipe out = make_pipe(), err = make_pipe();
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawnattr_init(&attributes);
  ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, out.write.value(), 1);
  ::posix_spawn_file_actions_adddup2(&actions, err.write.value(), 2);
  for (const int descriptor : inherited) {  // it stays open in the child
    ::posix_spawn_file_actions_adddup2(&actions, descriptor, descriptor);
  }
  sigset_t none, defaults;
  sigemptyset(&none);
  sigemptyset(&defaults);
  for (const int number : watched) {
    if (number != SIGHUP) sigaddset(&defaults, number);
  }
  sigaddset(&defaults, SIGPIPE);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setsigdefault(&attributes, &defaults);
  ::posix_spawnattr_setpgroup(&attributes, 0);
  ::posix_spawnattr_setflags(
      &attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  for (auto& [name, value] : comm::environment_for(info)) environment[name] = value;
  std::vector<std::string> words;
  for (const auto& [name, value] : environment) words.push_back(name + "=" + value);
  pid_t id = -1;
  const int error = ::posix_spawn(&id, command.front().c_str(), &actions, &attributes,
                                  pointers(command).data(), pointers(words).data());
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  if (error != 0) {
    throw failure(fmt::format("rank {}: {} cannot be started", info.rank, command.front()), error);
  }
  processes_.push_back(
      {.rank = known_as.value_or(info.rank),
       .id = id,
       .descriptor = base::Descriptor(static_cast<int>(::syscall(SYS_pidfd_open, id, 0))),
       .out = {.pipe = std::move(out.read), .is_error = false},
       .err = {.pipe = std::move(err.read), .is_error = true}});
}

std::vector<int> RankProcesses::wait(double seconds) {
  std::vector<int> signals;
  std::vector<pollfd> polled = {{signals_.value(), POLLIN, 0}};
  for (const Process& process : processes_) {
    polled.push_back({process.ending ? -1 : process.descriptor.value(), POLLIN, 0});
    for (const Stream* stream : {&process.out, &process.err}) {
      polled.push_back({stream->is_open ? stream->pipe.value() : -1, POLLIN, 0});
    }
  }
  const int ready = ::poll(polled.data(), polled.size(), static_cast<int>(seconds * 1000));
  // Reaps first and returns before reading, so that a rank's reaction to a death is forwarded after
  // the caller knows of that death.
  const int departures = departures_;
  size_t at = 1;
  for (Process& process : processes_) {
    const bool is_reported = process.descriptor.value() >= 0;
    if (!is_reported || (ready > 0 && polled[at].revents != 0)) reap(process, WEXITED);
    at += 3;
  }
  if (ready > 0 && polled[0].revents != 0) {
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t taken = ::read(signals_.value(), &count, sizeof(count));
    for (size_t i = 0; i < watched.size(); ++i) {
      if (has_come[i].exchange(false)) signals.push_back(watched[i]);
    }
  }
  if (ready <= 0 || departures_ != departures || !signals.empty()) return signals;
  at = 1;
  for (Process& process : processes_) {
    ++at;
    for (Stream* stream : {&process.out, &process.err}) {
      if (polled[at++].revents != 0) read(process, *stream);
    }
  }
  return signals;
}

void RankProcesses::read(Process& process, Stream& stream) {
  std::array<char, 65536> part;
  const ssize_t count = ::read(stream.pipe.value(), part.data(), part.size());
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count <= 0) {
    stream.is_open = false;
    if (!stream.rest.empty()) on_line_(process.rank, stream.is_error, stream.rest);
    stream.rest.clear();
    return;
  }
  // The rest of earlier reads contains no newline.
  const size_t searched = stream.rest.size();
  stream.rest.append(part.data(), static_cast<size_t>(count));
  size_t begin = 0;
  for (size_t end = stream.rest.find('\n', searched); end != std::string::npos;
       end = stream.rest.find('\n', begin)) {
    on_line_(process.rank, stream.is_error,
             std::string_view(stream.rest).substr(begin, end - begin));
    begin = end + 1;
  }
  stream.rest.erase(0, begin);
  if (stream.rest.size() < max_line_bytes) return;
  on_line_(process.rank, stream.is_error, stream.rest);
  stream.rest.clear();
}

void RankProcesses::reap(Process& process, int options) {
  siginfo_t info{};
  // One report for every change of the process.
  while (!process.ending &&
         ::waitid(P_PID, static_cast<id_t>(process.id), &info, options | WNOHANG) == 0 &&
         info.si_pid == process.id) {
    const bool was_killed = info.si_code == CLD_KILLED || info.si_code == CLD_DUMPED;
    process.stopped_by = info.si_code == CLD_STOPPED ? info.si_status : 0;
    if (!was_killed && info.si_code != CLD_EXITED) {
      info = {};
      continue;
    }
    process.departure = departures_++;
    process.ending = was_killed ? Ending{.exit_code = 0, .signal = info.si_status}
                                : Ending{.exit_code = info.si_status, .signal = 0};
  }
}

void RankProcesses::look_for_stops() {
  for (Process& process : processes_) reap(process, WEXITED | WSTOPPED | WCONTINUED);
}

std::vector<RankProcesses::State> RankProcesses::states() const {
  std::vector<State> all;
  for (const Process& process : processes_) {
    all.push_back({process.rank, process.ending, process.departure, process.stopped_by});
  }
  return all;
}

bool RankProcesses::is_running() const {
  return std::any_of(processes_.begin(), processes_.end(),
                     [](const Process& process) { return !process.ending; });
}

void RankProcesses::signal(int number, std::optional<int> rank) {
  for (const Process& process : processes_) {
    if (process.ending || (rank && process.rank != *rank)) continue;
    ::kill(-process.id, number);
  }
}

void RankProcesses::drain() {
  for (Process& process : processes_) drain(process);
}

void RankProcesses::drain(Process& process) {
  for (Stream* stream : {&process.out, &process.err}) {
    // A grandchild may hold the pipe open: read only what is available.
    while (stream->is_open) {
      pollfd polled{stream->pipe.value(), POLLIN, 0};
      if (::poll(&polled, 1, 0) <= 0) break;
      read(process, *stream);
    }
    if (!stream->rest.empty()) on_line_(process.rank, stream->is_error, stream->rest);
    stream->rest.clear();
  }
}

void RankProcesses::forget(int rank) {
  const auto found = std::ranges::find(processes_, rank, &Process::rank);
  TRIREME_CHECK(found != processes_.end() && found->ending, "rank {} has not ended", rank);
  drain(*found);
  processes_.erase(found);
}

void RankProcesses::rename(int rank, int new_rank) {
  const auto found = std::ranges::find(processes_, rank, &Process::rank);
  TRIREME_CHECK(found != processes_.end(), "there is no process of rank {}", rank);
  found->rank = new_rank;
}

pid_t RankProcesses::id_of(int rank) const {
  const auto found = std::ranges::find(processes_, rank, &Process::rank);
  return found == processes_.end() || found->ending ? 0 : found->id;
}

}  // namespace trireme::agent
