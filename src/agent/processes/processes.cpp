// SPDX-License-Identifier: Apache-2.0
#include "agent/processes/processes.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <iterator>
#include <utility>

#include "agent/guardian/kept_names.h"
#include "agent/guardian/role.h"
#include "agent/processes/spawn.h"
#include "base/check.h"
#include "base/error.h"
#include "base/system/descriptor_limit.h"
#include "comm/store/store.h"

namespace trireme::agent {
namespace {

base::Descriptor copy_of(int descriptor) {
  base::Descriptor copy(::fcntl(descriptor, F_DUPFD_CLOEXEC, 3));
  if (copy.value() < 0) throw system_failure("a descriptor of an earlier supervisor", errno);
  return copy;
}

// How a process ended that was not started by this one.
Ending ending_in(int endings, int slot) {
  int32_t code = 0;
  const ssize_t count = ::pread(endings, &code, sizeof(code), comm::ending_offset(slot));
  if (count != sizeof(code) || code == 0) return {.signal = Ending::unknown_signal};
  return {.exit_code = code - 1};
}

bool is_stopped(pid_t id) {
  std::ifstream file(fmt::format("/proc/{}/stat", id));
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const size_t end = text.rfind(')');  // of the name, which may have any characters
  return end != std::string::npos && end + 2 < text.size() && text[end + 2] == 'T';
}

// Returns the number of descriptors that the launcher needs: for the ranks that it starts, and for
// all ranks of the job if it runs the store.
int64_t descriptors_for(const comm::RankInfo& info) {
  // Per rank on this host: the process, stdout, stderr, and copies for a supervisor after this one.
  constexpr int64_t streams = 6;
  // Likewise: its copies of the state, and those that it keeps for other ranks (Crew).
  const int64_t memory = info.is_elastic ? 4 : 0;
  constexpr int64_t connections = 3;  // per rank to the store: calls, heartbeat, verdict
  constexpr int64_t temporary = 8;  // ends of pipes that a new rank inherits, and short-lived files
  const bool runs_store =
      info.node == 0 && !info.store.empty() && !comm::parse_store_address(info.store).is_folder;
  return (streams + memory) * info.local_world + (runs_store ? connections * info.world : 0) +
         temporary;
}

}  // namespace

std::string signal_name(int number) {
  const char* name = ::sigabbrev_np(number);
  return name != nullptr ? fmt::format("SIG{}", name) : fmt::format("signal {}", number);
}

std::string Ending::text() const {
  if (signal == 0) return fmt::format("ended with exit code {}", exit_code);
  if (signal == unknown_signal) return "was killed by a signal";
  return fmt::format("was killed by signal {} ({})", signal, signal_name(signal));
}

RankProcesses::RankProcesses(OnLine on_line, Keeper& keeper)
    : on_line_(std::move(on_line)),
      keeper_(keeper),
      life_line_(life_line()),
      endings_(endings_file()) {
  ::fcntl(life_line_.read.value(), F_SETFD, 0);  // inherited
  adopt();
}

RankProcesses::~RankProcesses() {
  signal(SIGKILL);
  for (Process& process : processes_) {
    if (process.ending) continue;
    if (process.is_child) {
      ::waitpid(process.id, nullptr, 0);
    } else {
      pollfd polled{process.descriptor.value(), POLLIN, 0};
      while (::poll(&polled, 1, -1) < 0 && errno == EINTR) continue;
    }
  }
  keeper_.erase_all(kept_process);
  for (const char* name : {kept_life_line, kept_endings}) keeper_.erase(name);
}

RankProcesses::Pipe RankProcesses::life_line() {
  const auto kept = keeper_.find(kept_life_line);
  if (kept) return {copy_of(kept->descriptors.at(0)), copy_of(kept->descriptors.at(1))};
  Pipe pipe = make_pipe();
  keeper_.put(kept_life_line, {}, std::array{pipe.read.value(), pipe.write.value()});
  return pipe;
}

base::Descriptor RankProcesses::endings_file() {
  if (const auto kept = keeper_.find(kept_endings)) return copy_of(kept->descriptors.at(0));
  base::Descriptor file(::memfd_create("trireme endings", MFD_CLOEXEC));
  if (file.value() < 0) throw system_failure("memory for exit codes", errno);
  keeper_.put(kept_endings, {}, std::array{file.value()});
  return file;
}

void RankProcesses::adopt() {
  for (const Keeper::Found& kept : keeper_.all(kept_process)) {
    const base::Json& what = kept.what;
    processes_.push_back({.rank = what.at("number").get<int>(),
                          .id = what.at("pid").get<pid_t>(),
                          .slot = std::stoi(kept.name),
                          .is_child = false,
                          .descriptor = copy_of(kept.descriptors.at(0)),
                          .out = {.pipe = copy_of(kept.descriptors.at(1)), .is_error = false},
                          .err = {.pipe = copy_of(kept.descriptors.at(2)), .is_error = true},
                          .facts = what.at("facts")});
    Process& process = processes_.back();
    slots_ = std::max(slots_, process.slot + 1);
    if (!what.contains("departure")) continue;
    process.departure = what.at("departure").get<int>();
    process.ending = Ending{.exit_code = what.at("exit_code").get<int>(),
                            .signal = what.at("signal").get<int>()};
    departures_ = std::max(departures_, process.departure + 1);
  }
}

void RankProcesses::keep(const Process& process) {
  base::Json what = {{"number", process.rank},
                     {"pid", static_cast<int64_t>(process.id)},
                     {"facts", process.facts}};
  if (process.ending) {
    what["departure"] = process.departure;
    what["exit_code"] = process.ending->exit_code;
    what["signal"] = process.ending->signal;
  }
  keeper_.put(kept_process + std::to_string(process.slot), what,
              std::array{process.descriptor.value(), process.out.pipe.value(),
                         process.err.pipe.value()});
}

RankProcesses::Pipe RankProcesses::make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw system_failure("pipe", errno);
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  return {base::Descriptor(ends[0]), base::Descriptor(ends[1])};
}

void RankProcesses::start(comm::RankInfo info, std::vector<std::string> command,
                          comm::Environment environment, std::optional<int> known_as,
                          std::span<const int> inherited, base::Json facts) {
  // Checked before the first rank starts: a rank that could not be started would be noticed only at
  // the deadline.
  if (processes_.empty()) {
    base::expect_descriptors(descriptors_for(info),
                             fmt::format("launching {} rank{} of {}", info.local_world,
                                         info.local_world == 1 ? "" : "s", info.world));
  }
  info.life_line = life_line_.read.value();
  info.ending_fd = endings_.value();
  info.ending_slot = slots_++;
  Pipe out = make_pipe(), err = make_pipe();
  sigset_t none, defaults = SignalQueue::changed();
  sigemptyset(&none);
  sigaddset(&defaults, SIGPIPE);
  Spawn spawn(none, defaults);
  spawn.read_nothing();
  spawn.inherit_as(out.write.value(), 1);
  spawn.inherit_as(err.write.value(), 2);
  spawn.inherit(info.ending_fd);
  for (const int descriptor : inherited) spawn.inherit(descriptor);
  for (auto& [name, value] : comm::environment_for(info)) environment[name] = value;
  const pid_t id =
      spawn.start(command.front(), command, environment,
                  fmt::format("rank {}: {} cannot be started", info.rank, command.front()));
  processes_.push_back(
      {.rank = known_as.value_or(info.rank),
       .id = id,
       .slot = info.ending_slot,
       .is_child = true,
       .descriptor = base::Descriptor(static_cast<int>(::syscall(SYS_pidfd_open, id, 0))),
       .out = {.pipe = std::move(out.read), .is_error = false},
       .err = {.pipe = std::move(err.read), .is_error = true},
       .facts = std::move(facts)});
  keep(processes_.back());
}

std::vector<int> RankProcesses::wait(double seconds) {
  std::vector<int> signals;
  std::vector<pollfd> polled = {{signals_.descriptor(), POLLIN, 0}};
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
    if (!is_reported || (ready > 0 && polled[at].revents != 0)) look_at(process, false);
    at += 3;
  }
  if (ready > 0 && polled[0].revents != 0) signals = signals_.take();
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

void RankProcesses::look_at(Process& process, bool looks_for_stops) {
  if (process.ending) return;
  if (process.is_child) {
    reap(process, WEXITED | (looks_for_stops ? WSTOPPED | WCONTINUED : 0));
  } else if (has_process_ended(process.descriptor.value())) {
    process.departure = departures_++;
    process.ending = ending_in(endings_.value(), process.slot);
  } else if (looks_for_stops) {
    process.stopped_by = is_stopped(process.id) ? SIGSTOP : 0;
  }
  if (process.ending) keep(process);
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
  for (Process& process : processes_) look_at(process, true);
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
  keeper_.erase(kept_process + std::to_string(found->slot));
  processes_.erase(found);
}

void RankProcesses::rename(int rank, int new_rank, base::Json facts) {
  const auto found = std::ranges::find(processes_, rank, &Process::rank);
  TRIREME_CHECK(found != processes_.end(), "there is no process of rank {}", rank);
  found->rank = new_rank;
  found->facts = std::move(facts);
  keep(*found);
}

const base::Json& RankProcesses::facts_of(int rank) const {
  const auto found = std::ranges::find(processes_, rank, &Process::rank);
  TRIREME_CHECK(found != processes_.end(), "there is no process of rank {}", rank);
  return found->facts;
}

pid_t RankProcesses::id_of(int rank) const {
  const auto found = std::ranges::find(processes_, rank, &Process::rank);
  return found == processes_.end() || found->ending ? 0 : found->id;
}

}  // namespace trireme::agent
