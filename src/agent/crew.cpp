// SPDX-License-Identifier: Apache-2.0
#include "agent/crew.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "agent/guardian/kept_names.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text/json.h"

namespace trireme::agent {
namespace {

namespace fs = std::filesystem;

constexpr int max_replacements = 3;  // of a rank, in one change of epochs
constexpr double spare_seconds = 2;  // ranks come first
const std::string list_name = "processes.json";

}  // namespace

Crew::Crew(const JobOptions& options, RankProcesses& processes, Keeper& keeper)
    : options_(options),
      processes_(processes),
      keeper_(keeper),
      world_(options.world()),
      epoch_(options.epoch) {
  for (int local = 0; options.node < options.nodes && local < options.ranks_here; ++local) {
    own_.push_back(options.node * options.ranks_here + local);
  }
}

Crew::~Crew() { keeper_.erase_all(kept_memory); }

void Crew::start(const Address& address) {
  address_ = address;
  for (const int rank : own_) start_rank(rank, epoch_, false);
  for (int spare = 0; spare < options_.spares; ++spare) start_spare();
}

void Crew::go_on(const Address& address, comm::EpochKeys& keys, int64_t epoch, bool joins_next,
                 std::span<const int> ranks) {
  address_ = address;
  epoch_ = epoch;
  open_memory(keeper_.all(kept_memory).size());
  adopt(keys);
  own_.assign(ranks.begin(), ranks.end());
  for (const int rank : ranks) {
    const auto started = this->ranks();
    if (std::ranges::find(started, rank, &RankProcesses::State::rank) != started.end()) continue;
    start_rank(rank, joins_next ? epoch + 1 : epoch, joins_next);
    if (joins_next) ++replaced_[rank];
  }
}

void Crew::open_memory(size_t slots) {
  while (options_.is_elastic && memory_.size() < slots) {
    const size_t slot = memory_.size();
    const std::string name = kept_memory + std::to_string(slot);
    const auto left = keeper_.find(name);
    const auto open = [&](size_t which, const char* what) {
      base::Descriptor opened(
          left ? ::fcntl(left->descriptors.at(which), F_DUPFD_CLOEXEC, 3)
               : ::memfd_create(fmt::format("trireme {} {}", what, slot).c_str(), MFD_CLOEXEC));
      if (opened.value() >= 0) return opened;
      throw base::IoError(fmt::format("memory for copies of the state: {}",
                                      std::generic_category().message(errno)));
    };
    memory_.push_back({.own = open(0, "state"), .kept = open(1, "kept states")});
    keeper_.put(name, {}, std::array{memory_.back().own.value(), memory_.back().kept.value()});
  }
}

size_t Crew::slot_of(int rank) {
  if (const auto found = slots_.find(rank); found != slots_.end()) return found->second;
  size_t slot = 0;
  const auto is_taken = [&](const auto& one) { return one.second == slot; };
  while (std::ranges::any_of(slots_, is_taken)) ++slot;
  open_memory(slot + 1);
  slots_[rank] = slot;
  return slot;
}

void Crew::adopt(comm::EpochKeys& keys) {
  for (const RankProcesses::State& state : processes_.states()) {
    const base::Json& facts = processes_.facts_of(state.rank);
    if (is_rank(state.rank)) {
      slots_[state.rank] = facts.at("slot").get<size_t>();
      if (facts.at("epoch").get<int64_t>() <= epoch_) continue;
      ++replaced_[state.rank];
      if (facts.contains("spare")) give_part(keys, state.rank);  // it may not have it yet
      continue;
    }
    spares_started_ = std::max(spares_started_, state.rank - world_ + 1);
    spares_[state.rank] = {.name = facts.at("spare").get<std::string>(),
                           .memory = facts.at("memory").get<std::vector<int>>(),
                           .kept_memory = facts.at("kept_memory").get<std::vector<int>>()};
  }
}

comm::RankInfo Crew::info_of(int rank, int64_t epoch) const {
  comm::RankInfo info{.rank = rank,
                      .world = world_,
                      .local_rank = rank % options_.ranks_here,
                      .local_world = options_.ranks_here,
                      .node = options_.node,
                      .epoch = epoch,
                      .is_elastic = options_.is_elastic};
  info.store = address_.store;
  info.deadline_s = options_.deadline_s;
  info.flight_folder = options_.flight_folder;
  info.token = address_.token;
  return info;
}

void Crew::start_rank(int rank, int64_t epoch, bool joins) {
  comm::RankInfo info = info_of(rank, epoch);
  info.joins = joins;
  std::vector<int> inherited;
  const size_t slot = slot_of(rank);
  if (slot < memory_.size()) {
    info.memory_fd = memory_[slot].own.value();
    info.peer_memory_fd = memory_[slot].kept.value();
    inherited = {info.memory_fd, info.peer_memory_fd};
  }
  processes_.start(info, joins ? options_.replacing_command : options_.command,
                   options_.environment, std::nullopt, inherited,
                   {{"epoch", epoch}, {"slot", slot}});
}

void Crew::start_spare() {
  const int started = spares_started_++;
  const int number = world_ + started;
  // It may become any rank of the node, or one of another node.
  open_memory(slots_.size() + spares_.size() + 1);
  comm::RankInfo info =
      info_of(own_.empty() ? started % options_.ranks_here : own_.front(), epoch_);
  info.spare = fmt::format("{}/{}", options_.node, number);
  Spare spare{.name = info.spare};
  for (const SlotMemory& one : memory_) {
    spare.memory.push_back(one.own.value());
    spare.kept_memory.push_back(one.kept.value());
  }
  std::vector<int> inherited = spare.memory;
  inherited.insert(inherited.end(), spare.kept_memory.begin(), spare.kept_memory.end());
  processes_.start(
      info, options_.replacing_command, options_.environment, number, inherited,
      {{"spare", spare.name}, {"memory", spare.memory}, {"kept_memory", spare.kept_memory}});
  spares_[number] = std::move(spare);
}

std::vector<RankProcesses::State> Crew::ranks() const {
  std::vector<RankProcesses::State> all = processes_.states();
  std::erase_if(all, [this](const auto& state) { return !is_rank(state.rank); });
  return all;
}

bool Crew::is_any_rank_running() const {
  const auto all = ranks();
  return std::any_of(all.begin(), all.end(), [](const auto& state) { return !state.ending; });
}

void Crew::kill_blamed(const comm::Verdict& verdict) {
  if (verdict.kind != comm::VerdictKind::stalled) return;  // others end by themselves
  for (const int rank : verdict.ranks) {
    if (processes_.id_of(rank) != 0) processes_.signal(SIGKILL, rank);
  }
}

int Crew::spares() const {
  return static_cast<int>(std::ranges::count_if(
      spares_, [this](const auto& one) { return processes_.id_of(one.first) != 0; }));
}

bool Crew::replace_ended(comm::EpochKeys& keys, int64_t next_epoch) {
  for (const RankProcesses::State& state : ranks()) {
    if (!state.ending) continue;
    if (++replaced_[state.rank] > max_replacements) return false;
    base::log_info("rank {} {}; another process takes its place in epoch {}", state.rank,
                   state.ending->text(), next_epoch);
    processes_.forget(state.rank);
    place(keys, state.rank, next_epoch);
  }
  return true;
}

void Crew::take(comm::EpochKeys& keys, std::span<const int> ranks, int64_t next_epoch) {
  for (const int rank : ranks) {
    if (std::ranges::find(own_, rank) != own_.end()) continue;
    base::log_info("rank {} runs on node {} from epoch {} on", rank, options_.node, next_epoch);
    own_.push_back(rank);
    ++replaced_[rank];
    place(keys, rank, next_epoch);
  }
}

void Crew::place(comm::EpochKeys& keys, int rank, int64_t next_epoch) {
  const size_t slot = slot_of(rank);
  const auto spare = std::ranges::find_if(spares_, [&](const auto& one) {
    return processes_.id_of(one.first) != 0 && slot < one.second.memory.size();
  });
  if (spare == spares_.end()) {
    start_rank(rank, next_epoch, true);
    return;
  }
  processes_.rename(spare->first, rank,
                    {{"epoch", next_epoch},
                     {"slot", slot},
                     {"spare", spare->second.name},
                     {"memory", spare->second.memory.at(slot)},
                     {"kept_memory", spare->second.kept_memory.at(slot)}});
  give_part(keys, rank);
  spares_.erase(spare);
}

void Crew::give_part(comm::EpochKeys& keys, int rank) {
  const base::Json& facts = processes_.facts_of(rank);
  keys.give_part(facts.at("spare").get<std::string>(),
                 {.rank = rank,
                  .local_rank = rank % options_.ranks_here,
                  .epoch = facts.at("epoch").get<int64_t>(),
                  .memory_fd = facts.at("memory").get<int>(),
                  .peer_memory_fd = facts.at("kept_memory").get<int>()});
}

std::vector<int> Crew::old_ranks() const {
  std::vector<int> old;
  for (const RankProcesses::State& state : ranks()) {
    if (!replaced_.contains(state.rank)) old.push_back(state.rank);
  }
  return old;
}

bool Crew::is_ready(comm::EpochKeys& keys, int64_t epoch) {
  const std::vector<bool> left = keys.have_left(epoch, old_ranks());
  return std::ranges::find(left, false) == left.end();
}

void Crew::kill_late(comm::EpochKeys& keys, int64_t epoch) {
  const std::vector<int> old = old_ranks();
  const std::vector<bool> left = keys.have_left(epoch, old);
  for (size_t i = 0; i < old.size(); ++i) {
    if (left[i]) continue;
    base::log_warning("rank {} has not left epoch {} in time and is started again", old[i], epoch);
    processes_.signal(SIGKILL, old[i]);
  }
}

std::vector<int> Crew::enter(int64_t epoch) {
  epoch_ = epoch;
  entered_at_ = 0;
  std::vector<int> fresh;
  for (const auto& [rank, times] : replaced_) fresh.push_back(rank);
  replaced_.clear();
  return fresh;
}

void Crew::look_after(double now, bool is_running) {
  if (entered_at_ == 0) entered_at_ = now;
  std::erase_if(spares_, [this](const auto& one) {
    if (processes_.id_of(one.first) != 0) return false;
    base::log_warning("spare {} has ended", one.second.name);
    processes_.forget(one.first);
    return true;
  });
  // A spare that ends at once is not started again and again.
  const bool may_start = is_running && now - entered_at_ > spare_seconds;
  while (may_start && std::ssize(spares_) < options_.spares) {
    start_spare();
    entered_at_ = now;
  }
  write_list();
}

void Crew::write_list() {
  if (options_.run_folder.empty()) return;
  base::Json list = {{"node", options_.node},
                     {"supervisor", static_cast<int64_t>(::getpid())},
                     {"epoch", epoch_},
                     {"ranks", base::Json::array()},
                     {"spares", base::Json::array()}};
  for (const RankProcesses::State& state : ranks()) {
    const pid_t id = processes_.id_of(state.rank);
    if (id != 0) list["ranks"].push_back({{"rank", state.rank}, {"pid", id}});
  }
  if (keeper_.is_guarded()) list["guardian"] = static_cast<int64_t>(keeper_.guardian());
  for (const auto& [number, spare] : spares_) list["spares"].push_back(processes_.id_of(number));
  std::string text = list.dump() + "\n";
  std::error_code ignored;
  if (text == written_ || !fs::exists(fs::path(options_.run_folder) / "owner.json", ignored))
    return;
  const fs::path name =
      fs::path(options_.run_folder) /
      (options_.node == 0 ? list_name : fmt::format("processes-{}.json", options_.node));
  const fs::path draft = name.string() + ".new";
  std::ofstream out(draft);
  out << text;
  out.close();
  std::error_code problem;
  if (!out) problem = std::error_code(errno, std::generic_category());
  if (!problem) fs::rename(draft, name, problem);
  if (problem) base::log_warning("{} cannot be written: {}", name.string(), problem.message());
  written_ = std::move(text);
}

}  // namespace trireme::agent
