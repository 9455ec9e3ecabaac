// SPDX-License-Identifier: Apache-2.0
#include "tests/histories/player.h"

#include <fmt/format.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <thread>
#include <utility>

#include "base/text/json.h"

namespace trireme::tests {
namespace {

namespace fs = std::filesystem;

// Is this still a process of the program? Its id may be another one's by now.
bool is_ours(pid_t process) {
  if (process <= 0) return false;
  std::error_code ended;
  return fs::read_symlink(fmt::format("/proc/{}/exe", process), ended) ==
         fs::canonical(TRIREME_PROGRAM);
}

void send(pid_t process, int number) {
  if (is_ours(process)) ::kill(process, number);
}

}  // namespace

Player::~Player() { kill_everything(); }

Player::Processes Player::processes() const {
  Processes found;
  if (!folder_.has("run/processes.json")) return found;
  const base::Json list = base::Json::parse(folder_.read("run/processes.json"), nullptr, false);
  if (!list.is_object()) return found;
  found.supervisor = list.value("supervisor", 0);
  found.guardian = list.value("guardian", 0);
  for (const base::Json& rank : list.at("ranks")) found.ranks[rank.at("rank")] = rank.at("pid");
  for (const base::Json& spare : list.at("spares")) found.spares.push_back(spare.get<pid_t>());
  return found;
}

int64_t Player::newest_step() const {
  if (!folder_.has("run/metrics.jsonl")) return 0;
  const std::string lines = folder_.read("run/metrics.jsonl");
  int64_t newest = 0;
  const std::string key = "\"step\":";
  for (size_t at = lines.find(key); at != std::string::npos; at = lines.find(key, at + 1)) {
    newest = std::max<int64_t>(newest, std::strtoll(lines.c_str() + at + key.size(), nullptr, 10));
  }
  return newest;
}

void Player::note(const std::string& text) {
  if (running_) log_ += running_->err().substr(std::exchange(read_, running_->err().size()));
  log_ += "---- " + text + "\n";
}

void Player::start() {
  std::vector<std::string> words = {"launch", "history.toml", "--restarts=3", "--resume=auto",
                                    fmt::format("-n{}", history_.ranks)};
  if (history_.spares > 0) words.push_back(fmt::format("--spares={}", history_.spares));
  running_ = std::make_unique<Running>(folder_.path(), trireme_command(words),
                                       RunOptions{.deadline_seconds = 180});
  read_ = 0;
  is_code_known_ = true;
}

// Returns false if the run ended before.
bool Player::wait_until_due(const Happening& next) {
  const bool is_hasty = next.steps_later == 0;
  const auto is_due = [&] {
    const Processes all = processes();
    if (std::ssize(all.ranks) != history_.ranks) return is_hasty && !all.ranks.empty();
    return is_hasty || (newest_step() >= newest_ + next.steps_later && is_ours(all.guardian) &&
                        is_ours(all.supervisor) && is_ours(all.ranks.at(next.rank)));
  };
  if (!running_->wait_for(is_due)) return false;
  std::this_thread::sleep_for(std::chrono::duration<double>(next.more_seconds));
  return newest_step() < history_.steps;
}

void Player::harm_ranks(const Happening& next) {
  const Processes all = processes();
  const auto process_of = [&](int rank) {
    const auto found = all.ranks.find(rank % history_.ranks);
    return found == all.ranks.end() ? 0 : found->second;
  };
  send(process_of(next.rank), next.harm == Harm::freeze_rank ? SIGSTOP : SIGKILL);
  if (next.harm == Harm::kill_two_ranks) send(process_of(next.rank + 1), SIGKILL);
}

std::string Player::do_one(const Happening& next) {
  newest_ = newest_step();
  note(fmt::format("{} {} after step {}", name_of(next.harm), next.rank, newest_));
  const Processes all = processes();
  switch (next.harm) {
    case Harm::kill_rank:
    case Harm::kill_two_ranks:
    case Harm::freeze_rank:
      harm_ranks(next);
      return "";
    case Harm::kill_supervisor:
      send(all.supervisor, SIGKILL);
      return "";
    case Harm::kill_guardian:
      is_code_known_ = false;
      send(all.guardian, SIGKILL);
      return "";
    case Harm::stop: {
      send(all.guardian, SIGTERM);
      const std::string problem = end_of_start(true);
      start();
      return problem;
    }
    case Harm::kill_all:
      kill_everything();
      note("all processes have ended");
      start();
      return "";
  }
  return "";
}

std::string Player::end_of_start(bool was_stopped) {
  const Outcome outcome = running_->wait();
  note(fmt::format("the launcher ended with {}", outcome.exit_code));
  const bool is_good = outcome.exit_code == exit_done ||
                       (was_stopped && outcome.exit_code == exit_stopped) || !is_code_known_;
  running_.reset();
  return is_good ? "" : fmt::format("the launcher ended with {}", outcome.exit_code);
}

void Player::kill_everything() {
  // What one of them starts meanwhile is found by another look.
  for (int looks = 0; looks < 3; ++looks) {
    const Processes all = processes();
    for (const pid_t process : {all.guardian, all.supervisor}) send(process, SIGKILL);
    for (const auto& [rank, process] : all.ranks) send(process, SIGKILL);
    for (const pid_t process : all.spares) send(process, SIGKILL);
    if (running_ && !running_->has_ended()) running_->signal(SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  if (running_) (void)running_->wait();
}

std::string Player::play() {
  start();
  for (const Happening& next : history_.happenings) {
    if (!wait_until_due(next)) break;
    ++done_;
    if (const std::string problem = do_one(next); !problem.empty()) return problem;
  }
  return end_of_start(false);
}

}  // namespace trireme::tests
