// SPDX-License-Identifier: Apache-2.0
#include "agent/changeover.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

#include "agent/nodes.h"
#include "agent/now.h"
#include "agent/rules/elastic_times.h"
#include "agent/rules/regroup.h"
#include "base/error.h"
#include "base/log.h"
#include "comm/register/epoch_writer.h"

namespace trireme::agent {
namespace {

// Launchers of other nodes wait as long for the course that node 0 sets.
constexpr double course_seconds = 3;
constexpr double report_seconds = 5;

LauncherWatch watch_of(const JobOptions& options) {
  if (!options.is_elastic) return {0, std::numeric_limits<double>::infinity()};
  const ElasticTimes times = elastic_times(options.detect_s);
  return {times.node_grace, times.node_silence};
}

}  // namespace

Changeover::Changeover(const JobOptions& options, Crew& crew)
    : options_(options),
      crew_(crew),
      epoch_(options.epoch),
      placement_(first_placement(options.ranks_here, options.nodes)),
      watch_(watch_of(options)) {}

std::vector<int> Changeover::nodes_with_ranks() const {
  std::vector<int> found = placement_.node_of;
  std::ranges::sort(found);
  const auto rest = std::ranges::unique(found);
  found.erase(rest.begin(), rest.end());
  return found;
}

base::Json Changeover::kept() const {
  return {{"epoch", epoch_},         {"reached", reached_},   {"saved", saved_},
          {"fruitless", fruitless_}, {"given_up", given_up_}, {"lost_host", lost_host_}};
}

void Changeover::go_on(const base::Json& kept) {
  reached_ = kept.at("reached").get<int64_t>();
  saved_ = kept.at("saved").get<int64_t>();
  fruitless_ = kept.at("fruitless").get<int64_t>();
  given_up_ = kept.at("given_up").get<std::string>();
  lost_host_ = kept.at("lost_host").get<std::string>();
  epoch_ = kept.at("epoch").get<int64_t>();
  comm::EpochKeys keys = this->keys();
  while (keys.is_formed(epoch_ + 1)) ++epoch_;
  if (const auto text = keys.placement()) {
    placement_ = placement_from(*text).value_or(placement_);
  }
}

void Changeover::tell_spares() {
  if (!options_.is_elastic || told_spares_ == crew_.spares()) return;
  told_spares_ = crew_.spares();
  keys().set_spares(options_.node, told_spares_);
}

std::vector<int> Changeover::lost_nodes(comm::Membership& membership, double now,
                                        bool judges_silence) {
  std::vector<int> others = nodes();
  std::erase(others, options_.node);
  if (others.empty()) return {};
  std::vector<std::string> names;
  for (const int node : others) names.push_back(node_name(node));
  std::vector<int> lost;
  for (const size_t place : watch_.lost(membership.members(names, now), now, judges_silence)) {
    const int node = others[place];
    if (!placement_.ranks_on(node).empty()) {
      lost.push_back(node);
    } else if (options_.node == 0) {
      base::log_warning("node {}, which had no ranks, is lost with its spares", node);
      move_ranks_of(std::array{node});
    }
  }
  return lost;
}

std::optional<comm::Course> Changeover::course_after(const comm::Verdict& verdict,
                                                     std::span<const comm::RankReport> reports) {
  if (options_.node == 0) settle_course(verdict, reports);
  if (verdict_seen_ == 0) verdict_seen_ = now();
  const auto course = keys().course(epoch_);
  if (!course && now() - verdict_seen_ >= course_seconds) return comm::Course::end;
  return course;
}

void Changeover::settle_course(const comm::Verdict& verdict,
                               std::span<const comm::RankReport> reports) {
  if (keys().course(epoch_)) return;
  EpochFacts facts{.reached_before = reached_,
                   .saved = options_.saved_step ? options_.saved_step() : -1,
                   .saved_before = saved_,
                   .fruitless = fruitless_};
  for (const comm::RankReport& report : reports) {
    if (!report.position) continue;
    facts.has_ended_well = facts.has_ended_well || report.position->has_left;
    if (report.position->motion) {
      facts.reached = std::max(facts.reached, report.position->motion->step);
    }
  }
  const NextCourse next = agent::course_after(verdict, facts);
  reached_ = std::max(reached_, facts.reached);
  saved_ = facts.saved;
  fruitless_ = next.fruitless;
  given_up_ = next.reason;
  reason_ = verdict.text;
  keys().set_course(epoch_, next.course);
}

void Changeover::look(comm::Membership& membership, double now, bool judges_silence,
                      const Give& give) {
  const auto states = crew_.ranks();
  const auto has_ended = [](const RankProcesses::State& state) { return state.ending.has_value(); };
  if (std::any_of(states.begin(), states.end(), has_ended)) give(Event::rank_failed);
  comm::EpochKeys keys = this->keys();
  if (options_.all_nodes() > 1) {
    tell_spares();
    if (options_.node == 0) {
      const std::vector<int> lost = lost_nodes(membership, now, judges_silence);
      if (!lost.empty() && !move_ranks_of(lost)) give(Event::hopeless);
    } else if (keys.course(epoch_) == comm::Course::end) {
      give(Event::hopeless);
    }
    follow_placement();
  }
  if (ready_with_ != placement_.version && crew_.is_ready(keys, epoch_)) give(Event::ranks_ready);
  if (options_.node == 0 && ready_with_ == placement_.version &&
      keys.are_ready(epoch_ + 1, placement_.version, nodes())) {
    give(Event::nodes_ready);
  }
  if (keys.is_formed(epoch_ + 1)) give(Event::formed);
}

bool Changeover::move_ranks_of(std::span<const int> lost) {
  comm::EpochKeys keys = this->keys();
  const std::vector<int> spares = keys.spares(options_.all_nodes());
  const Move move = move_ranks(placement_, lost, spares);
  if (!move.placement) {
    lost_host_ = move.problem;
    keys.set_course(epoch_, comm::Course::end);
    return false;
  }
  for (const int node : lost) {
    const std::vector<int> ranks = placement_.ranks_on(node);
    if (ranks.empty()) continue;
    base::log_warning("node {} is lost: spares of other nodes become its {}", node,
                      comm::ranks_text(ranks));
  }
  keys.set_placement(to_text(*move.placement));
  placement_.lost = move.placement->lost;  // follow_placement() takes the ranks
  return true;
}

void Changeover::follow_placement() {
  comm::EpochKeys keys = this->keys();
  const auto text = keys.placement();
  if (!text) return;
  std::optional<Placement> read = placement_from(*text);
  if (!read) throw base::CommAborted("the store has no placement of ranks, but: " + *text);
  if (read->version <= placement_.version) return;
  placement_ = std::move(*read);
  if (placement_.is_lost(options_.node)) {
    throw base::Fenced(fmt::format(
        "node {} was not reached, and the others went on without it: its ranks run elsewhere",
        options_.node));
  }
  crew_.take(keys, placement_.ranks_on(options_.node), epoch_ + 1);
}

bool Changeover::replace_ended() {
  comm::EpochKeys keys = this->keys();
  if (crew_.replace_ended(keys, epoch_ + 1)) return true;
  given_up_ = "processes that replace lost ranks end before the next epoch forms";
  return false;
}

void Changeover::kill_late() {
  comm::EpochKeys keys = this->keys();
  crew_.kill_late(keys, epoch_);
}

void Changeover::tell_ready() {
  ready_with_ = placement_.version;
  keys().node_is_ready(epoch_ + 1, ready_with_, options_.node);
}

void Changeover::form() {
  comm::EpochKeys keys = this->keys();
  if (register_ != nullptr) {
    std::vector<int> ranks(placement_.node_of.size());
    std::iota(ranks.begin(), ranks.end(), 0);
    const std::vector<bool> left = keys.have_left(epoch_, ranks);
    std::set<int> fresh;
    for (const int rank : ranks) {
      if (!left[static_cast<size_t>(rank)]) fresh.insert(rank);
    }
    try {
      const std::vector<int> spares = keys.spares(options_.all_nodes());
      set_record_epoch(epoch_ + 1, register_->next({placement_, spares, fresh, reason_}));
    } catch (const base::IoError& error) {
      if (now() - register_failed_at_ >= report_seconds) {
        base::log_warning("the next epoch waits for the register: {}", error.what());
        register_failed_at_ = now();
      }
      return;
    }
  }
  keys.form(epoch_ + 1);
}

void Changeover::record_start() {
  if (register_ == nullptr) return;
  std::vector<int> spares(static_cast<size_t>(options_.all_nodes()), 0);
  spares[0] = options_.spares;
  set_record_epoch(epoch_, register_->begin({placement_, spares, {}, "start"}));
}

void Changeover::set_record_epoch(int64_t epoch, int64_t number) {
  store_->set(comm::Store::epoch_key(epoch, comm::record_epoch_key), std::to_string(number));
}

std::vector<int> Changeover::enter() {
  ++epoch_;
  ready_with_ = -1;
  verdict_seen_ = 0;
  return crew_.enter(epoch_);
}

}  // namespace trireme::agent
