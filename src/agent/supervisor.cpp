// SPDX-License-Identifier: Apache-2.0
#include "agent/supervisor.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <thread>
#include <utility>

#include "agent/exit_codes.h"
#include "agent/nodes.h"
#include "agent/output.h"
#include "agent/policy.h"
#include "base/error.h"
#include "base/log.h"
#include "comm/clock.h"
#include "comm/failure/verdict.h"
#include "obs/clock.h"
#include "obs/files/signal_events.h"

namespace trireme::agent {
namespace {

constexpr double look_seconds = 0.1;
// After a verdict every launcher ends its ranks within about a second.
constexpr double outcome_seconds = 10;

double now() { return comm::seconds_of(comm::Clock::now()); }

// ": a.bin: byte 0 of 100 cannot be read any more", " at step 9, last op gemm 2 x 3 x 4".
std::string cause_text(const obs::Event& event) {
  if (event.data.contains("exit_code")) return ": " + event.text;
  const auto op = event.data.find("op");
  return fmt::format(" at step {}, last op {}", std::max<int64_t>(event.step, 0),
                     op != event.data.end() && op->is_string() ? op->get<std::string>() : "none");
}

// Ended neither with exit code 0 nor because of a request to stop.
bool is_broken(const RankProcesses::State& state) {
  return state.ending && !state.ending->is_good() &&
         !(state.ending->signal == 0 && state.ending->exit_code == exit_stopped);
}

PolicyLimits limits_of(const JobOptions& options) {
  PolicyLimits limits;
  limits.stopping = std::max(limits.stopping, options.deadline_s);
  // Node 0 waits for the slowest node.
  limits.deciding = 2 * std::max(outcome_seconds, options.deadline_s);
  limits.detect = options.detect_s;
  limits.inattention = std::min(limits.inattention, options.detect_s / 2);
  return limits;
}

class Supervisor {
 public:
  explicit Supervisor(const JobOptions& options)
      : options_(options),
        world_(options.ranks_here * options.nodes),
        policy_(limits_of(options)),
        state_{.epoch = options.epoch},
        output_({.shows_all = options.shows_all, .keeps_out = options.keeps_out}),
        processes_([this](int rank, bool is_error, std::string_view line) {
          if (is_error) look_for_verdict();
          output_.take(rank, is_error, line);
        }) {}

  JobResult run() {
    start();
    double looked = now();
    while (processes_.is_running()) {
      for (const int number : processes_.wait(look_seconds / 2)) receive(number);
      if (now() - looked < look_seconds && !has_bad_ending()) continue;
      looked = now();
      look();
    }
    end_ranks();
    const std::optional<comm::Verdict>& verdict = result_.verdict;
    output_.release(verdict ? verdict->text : "");
    if (verdict && std::filesystem::exists(options_.flight_folder)) {
      base::log_info("flight records of the ranks: {}", options_.flight_folder);
    }
    result_.ended_at = obs::wall_seconds();
    result_.out = output_.kept();
    agree();
    return result_;
  }

 private:
  void start() {
    JobStore opened = open_job_store(options_, options_.deadline_s, RankProcesses::stop());
    server_ = std::move(opened.server);
    store_ = std::move(opened.store);
    membership_ = std::move(opened.membership);
    membership_->join(node_name(options_.node));
    if (options_.saved_step) saved_at_start_ = options_.starts_over ? -1 : options_.saved_step();
    give(Event::time_passed);
    for (int local = 0; local < options_.ranks_here; ++local) {
      comm::RankInfo info{.rank = options_.node * options_.ranks_here + local,
                          .world = world_,
                          .local_rank = local,
                          .local_world = options_.ranks_here,
                          .node = options_.node};
      info.store = opened.address;
      info.epoch = options_.epoch;
      info.deadline_s = options_.deadline_s;
      info.flight_folder = options_.flight_folder;
      info.token = opened.token;
      processes_.start(info, options_.command, options_.environment);
    }
  }

  // ---- from facts to events

  void give(Event event) {
    const PolicyStep step = policy_.next(state_, {.event = event, .epoch = options_.epoch}, now());
    state_ = step.state;
    act(step.action);
  }

  bool has_bad_ending() const {
    const auto states = processes_.states();
    return std::any_of(states.begin(), states.end(), is_broken);
  }
  // Neither is there a verdict nor was a stop requested.
  bool is_watching() const {
    return state_.mode == Mode::running || state_.mode == Mode::collecting ||
           state_.mode == Mode::own_failure;
  }

  void receive(int number) {
    if (number != SIGUSR1 && result_.stopped_by == 0 && !result_.verdict)
      result_.stopped_by = number;
    give(number == SIGUSR1 ? Event::save : number == SIGINT ? Event::interrupt : Event::stop);
  }

  void look() {
    give(Event::time_passed);
    if (has_bad_ending()) give(Event::rank_failed);
    if (!is_watching()) return;
    try {
      inspect();
    } catch (const base::CommAborted& error) {
      lose_store(error);
    }
  }

  // The store is that of node 0.
  void lose_store(const base::CommAborted& error) {
    found_ = {.kind = comm::VerdictKind::died, .cause = error.what(), .text = error.what()};
    give(Event::store_gone);
  }

  // A rank that fails writes its verdict to the store before it prints anything about it.
  void look_for_verdict() {
    if (!is_watching()) return;
    try {
      receive_verdict();
    } catch (const base::CommAborted& ignored) {  // look() handles it
    }
  }

  bool receive_verdict() {
    const auto stands = comm::stored_verdict(*store_);
    if (!stands) return false;
    found_ = *stands;
    give(Event::verdict_given);
    return true;
  }

  void inspect() {
    if (receive_verdict()) return;
    const bool has_gone = membership_->changed(0).has_value();
    if (has_gone) found_ = lost_node();
    if (has_gone && found_) {
      give(Event::launcher_lost);
      return;
    }
    // As long as every process runs, only a stall can be found, and the launcher of node 0 alone
    // checks for that: with many ranks, reading all reports from every node would load the store.
    const bool may_have_died = has_gone || has_bad_ending();
    if (!may_have_died && (options_.node != 0 || now() - listened_ < listen_seconds())) return;
    listened_ = now();
    const std::vector<comm::RankReport> reports = all_reports();
    const auto any = [&](const auto& holds) {
      return std::any_of(reports.begin(), reports.end(), holds);
    };
    const bool is_silent = any([this](const comm::RankReport& report) {
      return report.ended.empty() && report.position && !report.position->has_left &&
             report.silent_s > options_.detect_s;
    });
    const bool has_died = any([](const comm::RankReport& report) { return !report.ended.empty(); });
    if (is_silent) {
      found_ = verdict_of(reports);
    } else if (!has_died) {
      found_ = comm::hang_of(reports);
    }
    if (found_) give(Event::rank_stalled);
    found_.reset();
    if (has_died) give(Event::rank_lost);
    const double passed = now() - state_.since;
    const bool have_all_reported =
        std::all_of(reports.begin(), reports.end(), [&](const comm::RankReport& report) {
          return !report.ended.empty() || (report.position && (report.position->has_left ||
                                                               report.silent_s < passed - 0.01));
        });
    if (have_all_reported) give(Event::all_reported);
  }

  double listen_seconds() const {
    constexpr double seconds_a_rank = 5e-4;  // at 2,000 ranks once a second
    return std::max({look_seconds, options_.detect_s / 20, world_ * seconds_a_rank});
  }

  // Returns a verdict about a launcher of another node that ended without reporting why; none
  // if there is none.
  std::optional<comm::Verdict> lost_node() {
    if (options_.nodes == 1) return std::nullopt;
    std::vector<std::string> names;
    for (int node = 0; node < options_.nodes; ++node) names.push_back(node_name(node));
    const std::vector<comm::MemberFacts> launchers = membership_->members(names, 0);
    for (size_t node = 0; node < launchers.size(); ++node) {
      if (!launchers[node].departure) continue;
      comm::Verdict verdict{
          .kind = comm::VerdictKind::died,
          .cause = "the launcher of the node has ended without reporting why",
          .text = fmt::format("the launcher of node {} has ended without reporting why", node)};
      for (int local = 0; local < options_.ranks_here; ++local) {
        verdict.ranks.push_back(static_cast<int>(node) * options_.ranks_here + local);
      }
      return verdict;
    }
    return std::nullopt;
  }

  std::vector<comm::RankReport> all_reports() {
    std::vector<comm::RankReport> reports = comm::read_reports(*store_, world_);
    for (const RankProcesses::State& state : processes_.states()) {
      comm::RankReport& report = reports[static_cast<size_t>(state.rank)];
      if (state.ending && !is_broken(state)) report.ended.clear();
      if (!is_broken(state)) continue;
      report.ended = state.ending->text() + recorded_cause(state.rank);
      report.departure =
          state.departure - world_;  // observed by this process: before reported ones
    }
    return reports;
  }

  // Returns what the handler of fatal signals recorded of a rank that ended, as the rest of a
  // sentence; empty if it recorded nothing.
  const std::string& recorded_cause(int rank) {
    const auto [found, is_new] = causes_.try_emplace(rank);
    if (!is_new || options_.run_folder.empty()) return found->second;
    if (const auto event = obs::signal_event_of(options_.run_folder, rank, started_wall_)) {
      found->second = cause_text(*event);
    }
    return found->second;
  }

  // ---- actions

  void act(Action action) {
    if (has(action, Action::hold_output)) hold();
    if (has(action, Action::judge)) judge();
    if (has(action, Action::blame_node)) settle(*found_);
    if (has(action, Action::announce)) announce();
    if (has(action, Action::forward_stop)) {
      processes_.signal(result_.stopped_by == SIGINT ? SIGINT : SIGTERM);
    }
    if (has(action, Action::forward_save)) processes_.signal(SIGUSR1);
    if (has(action, Action::terminate)) processes_.signal(SIGTERM);
    if (has(action, Action::kill)) processes_.signal(SIGKILL);
    if (has(action, Action::publish)) publish();
    if (has(action, Action::propose)) propose();
    if (has(action, Action::follow)) result_.decision = *decision_;
    if (has(action, Action::end_alone)) end_alone();
  }

  void hold() {
    output_.hold();
    if (result_.failed_at == 0) result_.failed_at = obs::wall_seconds();
  }

  comm::Verdict verdict_of(const std::vector<comm::RankReport>& reports) const {
    const double silent_s = std::min(comm::silent_limit(options_.deadline_s), options_.detect_s);
    return comm::verdict_of(reports, {.silent_limit_s = silent_s});
  }

  // Determines which rank failed first, unless that is found already.
  void judge() {
    std::optional<comm::Verdict> verdict = std::exchange(found_, std::nullopt);
    // Reads the last lines.
    for (const int number : processes_.wait(0)) receive(number);
    if (!is_watching()) return;
    processes_.look_for_stops();
    try {
      if (!verdict) verdict = verdict_of(all_reports());
      for (const RankProcesses::State& state : processes_.states()) {
        if (verdict->ranks != std::vector<int>{state.rank}) continue;
        if (verdict->node.empty()) verdict->node = comm::own_host();
        if (!state.ending && state.stopped_by != 0) {
          verdict->text += fmt::format("; it is stopped by {}", signal_name(state.stopped_by));
        }
        // Other hosts do not show the lines of this rank.
        const std::string error = options_.nodes > 1 ? output_.last_error(state.rank) : "";
        if (!error.empty()) verdict->text += fmt::format("; its error: {}", error);
      }
    } catch (const base::CommAborted& error) {
      lose_store(error);
      return;
    }
    settle(*verdict);
  }

  void settle(const comm::Verdict& verdict) {
    try {
      found_ = comm::settle_verdict(*store_, verdict);
    } catch (const base::CommAborted& ignored) {  // the store has ended with node 0
      found_ = verdict;
    }
    give(Event::verdict_given);
  }

  void announce() {
    result_.verdict = std::exchange(found_, std::nullopt);
    result_.concluded_at = obs::wall_seconds();
    std::fflush(stdout);
    base::log(base::LogLevel::error, result_.verdict->text);
    processes_.look_for_stops();
    for (const RankProcesses::State& state : processes_.states()) {
      // A stopped process reacts to no other signal.
      if (!state.ending && state.stopped_by != 0) processes_.signal(SIGKILL, state.rank);
      if (result_.verdict->ranks == std::vector<int>{state.rank})
        output_.show_last_lines(state.rank);
    }
    std::fflush(stderr);
  }

  // ---- the decision

  // All ranks may have ended before look() could examine their reports.
  void end_ranks() {
    processes_.drain();
    result_.ranks = processes_.states();
    if (has_bad_ending()) give(Event::rank_failed);
    while (state_.mode != Mode::deciding && state_.mode != Mode::over) give(Event::all_ended);
  }

  void publish() {
    guarded([this] {
      agreement().publish({result_.node_exit_code(),
                           options_.epoch < options_.max_restarts && state_.stopped_at == 0});
    });
  }

  void propose() {
    guarded([this] {
      std::optional<int64_t> saved_now;
      if (options_.saved_step) saved_now = options_.saved_step();
      agreement().propose({.restarts = options_.epoch,
                           .max_restarts = options_.max_restarts,
                           .fruitless = options_.fruitless,
                           .saved_at_start = saved_at_start_,
                           .saved_now = saved_now});
    });
  }

  void end_alone() {
    result_.decision = {.exit_code = result_.node_exit_code()};
    if (options_.node != 0) return;
    guarded([this] { agreement().propose_end(result_.decision.exit_code); });
  }

  // Waits for the decision. Keeps the store until the other nodes know it.
  void agree() {
    const double wait_s = result_.verdict ? outcome_seconds : options_.deadline_s;
    const double begin = now();
    while (state_.mode == Mode::deciding) {
      for (const int number : processes_.wait(0)) receive(number);
      guarded([&] {
        if (options_.node == 0 && (agreement().has_all_outcomes() || now() - begin > wait_s)) {
          give(Event::all_outcomes);
        }
        decision_ = agreement().decision();
        if (decision_) give(Event::decided);
      });
      give(Event::time_passed);
      if (state_.mode == Mode::deciding) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
    }
    try {
      agreement().confirm();
      membership_->leave();
    } catch (const base::CommAborted& ignored) {  // node 0 has ended, and with it the store
    }
  }

  Agreement agreement() { return {*store_, options_.node, options_.nodes}; }

  template <class Call>
  void guarded(const Call& call) {
    try {
      call();
    } catch (const base::CommAborted& ignored) {  // node 0 has ended, and with it the store
      give(Event::store_gone);
    }
  }

  const JobOptions& options_;
  const int world_;
  const Policy policy_;
  PolicyState state_;
  RankOutput output_;
  RankProcesses processes_;
  std::unique_ptr<comm::StoreServer> server_;
  std::unique_ptr<comm::Store> store_;
  std::unique_ptr<comm::Membership> membership_;

  std::optional<int64_t> saved_at_start_;
  double listened_ = 0;
  const double started_wall_ = obs::wall_seconds();
  std::map<int, std::string> causes_;   // recorded_cause(), by rank
  std::optional<comm::Verdict> found_;  // what an event is about
  std::optional<Decision> decision_;
  JobResult result_;
};

}  // namespace

bool JobResult::is_good() const {
  return !verdict && std::all_of(ranks.begin(), ranks.end(), [](const RankProcesses::State& state) {
    return state.ending && state.ending->is_good();
  });
}

std::string JobOptions::token_of_epoch(const std::string& job_token) const {
  return epoch == 0 ? job_token : fmt::format("{}/{}", job_token, epoch);
}

int JobResult::node_exit_code() const {
  if (is_good()) return exit_done;
  const auto any = [this](int code) {
    return std::any_of(ranks.begin(), ranks.end(), [code](const RankProcesses::State& state) {
      return state.ending && state.ending->signal == 0 && state.ending->exit_code == code;
    });
  };
  if (any(exit_taken_over)) return exit_taken_over;
  // Ranks that the signal killed before their handlers were installed had nothing to save.
  const bool all_stopped =
      !verdict &&
      std::all_of(ranks.begin(), ranks.end(), [this](const RankProcesses::State& state) {
        if (!state.ending) return false;
        if (state.ending->signal != 0) {
          return stopped_by != 0 &&
                 (state.ending->signal == SIGTERM || state.ending->signal == SIGINT);
        }
        return state.ending->exit_code == exit_stopped || state.ending->exit_code == exit_done;
      });
  if (all_stopped) return exit_stopped;
  return any(exit_bad_call) ? exit_bad_call : exit_failed;
}

JobResult run_epoch(const JobOptions& options) { return Supervisor(options).run(); }

void wait_for_restart(double seconds) {
  const double begin = now();
  while (now() - begin < seconds) {
    if (*RankProcesses::stop()) throw base::Stopped("stopped between two starts of the job");
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

}  // namespace trireme::agent
