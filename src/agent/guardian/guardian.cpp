// SPDX-License-Identifier: Apache-2.0
#include "agent/guardian/guardian.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <deque>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "agent/exit_codes.h"
#include "agent/guardian/kept_names.h"
#include "agent/guardian/link.h"
#include "agent/now.h"
#include "agent/signals.h"
#include "base/log.h"
#include "base/text/json.h"

namespace trireme::agent {
namespace {

namespace fs = std::filesystem;

// In which ranks save and end by themselves, when nothing starts a supervisor any more.
constexpr double stop_seconds = 60;

class Guardian {
 public:
  explicit Guardian(const ProgramCall& call) : call_(call) { start_supervisor(); }
  Guardian(const ProgramCall& call, Inheritance inherited)
      : call_(call), kept_(std::move(inherited.kept)) {
    watch(inherited.other, std::make_unique<Link>(std::move(inherited.link)));
  }

  int run() {
    while (true) {
      wait();
      for (const int number : signals_.take()) forward(number);
      receive();
      if (now() - heard_ > silent_seconds) {
        base::log_warning("the supervisor (process {}) does not react and is started again",
                          supervisor_);
        ::kill(supervisor_, SIGKILL);
        heard_ = now();
      }
      const bool has_ended = reap();
      if (!has_ended) continue;
      receive();  // what it sent before
      if (exit_code_) return *exit_code_;
      if (is_done_) return exit_done;
      if (!may_start_again()) return end_ranks();
      kill_unknown();
      base::log_warning("the supervisor (process {}) has died and is started again; ranks go on",
                        supervisor_);
      start_supervisor();
    }
  }

 private:
  void start_supervisor() {
    auto [own, other] = Link::make();
    const pid_t id = start_in_role(call_, Role::supervisor, other.value(), kept_);
    is_child_ = true;
    watch(id, std::make_unique<Link>(std::move(own)));
    for (const int number : std::exchange(unsent_, {})) ::kill(supervisor_, number);
  }

  void watch(pid_t supervisor, std::unique_ptr<Link> link) {
    supervisor_ = supervisor;
    link_ = std::move(link);
    process_.reset();
    if (auto process = watch_process(supervisor)) process_.emplace(std::move(*process));
    heard_ = beaten_ = now();
  }

  void wait() {
    const double begin = now();
    std::array<pollfd, 3> polled = {{{signals_.descriptor(), POLLIN, 0},
                                     {link_->is_closed() ? -1 : link_->descriptor(), POLLIN, 0},
                                     {process_ ? process_->value() : -1, POLLIN, 0}}};
    ::poll(polled.data(), polled.size(), static_cast<int>(beat_seconds * 1000));
    // A process that did not run cannot tell who was silent.
    if (now() - begin > inattention_seconds) heard_ = now();
    if (now() - beaten_ < beat_seconds) return;
    beaten_ = now();
    (void)link_->send(LinkMessage::Kind::beat);  // one that is gone is found by its end
  }

  void forward(int number) {
    forwarded_.insert(number);
    if (::kill(supervisor_, number) != 0) unsent_.push_back(number);
  }

  void receive() {
    while (auto message = link_->receive()) {
      heard_ = now();
      switch (message->kind) {
        case LinkMessage::Kind::put:
          kept_.put(message->name, message->text, std::move(message->descriptors));
          break;
        case LinkMessage::Kind::erase:
          kept_.erase(message->name);
          break;
        case LinkMessage::Kind::done:
          is_done_ = true;
          break;
        case LinkMessage::Kind::beat:
          break;
      }
    }
  }

  // Waits for the children that have ended: the supervisor, and processes that it left. Returns
  // whether the supervisor has ended.
  bool reap() {
    bool has_ended = false;
    siginfo_t info{};
    while (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG) == 0 && info.si_pid != 0) {
      if (info.si_pid == supervisor_) {
        has_ended = true;
        if (info.si_code == CLD_EXITED) exit_code_ = info.si_status;
        // Between two starts of the job it does not handle them.
        if (info.si_code == CLD_KILLED && info.si_status != SIGKILL &&
            forwarded_.contains(info.si_status)) {
          exit_code_ = exit_stopped;
        }
      }
      info = {};
    }
    if (is_child_) return has_ended;
    return !process_ || has_process_ended(process_->value());
  }

  bool may_start_again() {
    deaths_.push_back(now());
    if (std::ssize(deaths_) < max_deaths) return true;
    const double first = deaths_.front();
    deaths_.pop_front();
    return now() - first > max_deaths_seconds;
  }

  // Processes that the supervisor started and did not report before it died.
  void kill_unknown() {
    std::set<pid_t> known;
    for (const auto& [name, entry] : kept_.entries()) {
      if (!name.starts_with(kept_process)) continue;
      known.insert(base::Json::parse(entry.text).value("pid", 0));
    }
    std::error_code unknown;
    const fs::path own = fs::read_symlink("/proc/self/exe", unknown);
    std::ifstream children(fmt::format("/proc/self/task/{}/children", ::getpid()));
    for (pid_t id = 0; children >> id;) {
      if (known.contains(id)) continue;
      if (fs::read_symlink(fmt::format("/proc/{}/exe", id), unknown) == own) ::kill(id, SIGKILL);
    }
  }

  int end_ranks() {
    base::log(base::LogLevel::error,
              fmt::format("the supervisor died {} times in {:g} s: the ranks save and stop",
                          max_deaths, max_deaths_seconds));
    std::map<pid_t, int> ranks;  // their descriptors, by id
    for (const auto& [name, entry] : kept_.entries()) {
      if (!name.starts_with(kept_process)) continue;
      ranks[base::Json::parse(entry.text).value("pid", 0)] = entry.descriptors.at(0).value();
    }
    kept_.erase(kept_life_line);
    const double begin = now();
    const auto is_running = [](const auto& rank) { return !has_process_ended(rank.second); };
    while (std::ranges::any_of(ranks, is_running) && now() - begin < stop_seconds) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    for (const auto& rank : ranks) {
      if (is_running(rank)) ::kill(-rank.first, SIGKILL);
    }
    return exit_stopped;
  }

  const ProgramCall& call_;
  SignalQueue signals_;
  Kept kept_;
  std::unique_ptr<Link> link_;
  pid_t supervisor_ = 0;
  bool is_child_ = false;  // the supervisor, of this process
  std::optional<base::Descriptor> process_;  // the supervisor; none: it has ended
  std::set<int> forwarded_;
  std::vector<int> unsent_;
  double heard_ = 0, beaten_ = 0;
  std::deque<double> deaths_;
  bool is_done_ = false;
  std::optional<int> exit_code_;
};

void become_reaper() { ::prctl(PR_SET_CHILD_SUBREAPER, 1); }

}  // namespace

int guard(const ProgramCall& call) {
  become_reaper();
  return Guardian(call).run();
}

int guard_again(const ProgramCall& call, Inheritance inherited) {
  become_reaper();
  return Guardian(call, std::move(inherited)).run();
}

}  // namespace trireme::agent
