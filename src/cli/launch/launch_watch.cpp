// SPDX-License-Identifier: Apache-2.0
#include "cli/launch/launch_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>

#include "base/error.h"
#include "base/log.h"
#include "cli/launch/launch_nodes.h"
#include "cli/launch/launch_output.h"
#include "cli/run/stop_signals.h"
#include "cli/shell/exit_codes.h"
#include "comm/failure/verdict.h"
#include "comm/store/store_server.h"
#include "obs/clock.h"
#include "obs/files/signal_events.h"

namespace trireme::cli {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// After a rank died or stalled: seconds in which the others report their positions. Seconds after
// the verdict, in which ranks exit on their own, until they are sent SIGTERM and SIGKILL.
constexpr double collect_seconds = 0.4, ask_seconds = 0.25, kill_seconds = 0.75;
// After a request to stop: a step and a save may take this long, or the deadline if that is longer.
constexpr double min_stop_seconds = 60;
// After a request to stop, when a rank ended without saving: the others cannot save without it.
constexpr double broken_stop_seconds = 5;
constexpr double look_seconds = 0.1;

// ": a.bin: byte 0 of 100 cannot be read any more", " at step 9, last op gemm 2 x 3 x 4".
std::string cause_text(const obs::Event& event) {
  if (event.data.contains("exit_code")) return ": " + event.text;
  const auto op = event.data.find("op");
  return fmt::format(" at step {}, last op {}", std::max<int64_t>(event.step, 0),
                     op != event.data.end() && op->is_string() ? op->get<std::string>() : "none");
}

class Watch {
 public:
  explicit Watch(const LaunchOptions& options)
      : options_(options),
        world_(options.ranks_here * options.nodes),
        output_({.shows_all = options.shows_all, .keeps_out = options.keeps_out}),
        processes_([this](int rank, bool is_error, std::string_view line) {
          if (is_error) look_for_verdict();
          output_.take(rank, is_error, line);
        }) {}

  LaunchResult run() {
    start();
    auto looked = Clock::now();
    while (processes_.is_running()) {
      const std::vector<int> signals = processes_.wait(look_seconds / 2);
      for (const int number : signals) forward(number);
      if (seconds_since(looked) < look_seconds && !has_bad_ending()) continue;
      looked = Clock::now();
      look();
    }
    processes_.drain();
    // All ranks ended before look() could examine their reports.
    if (!verdict_ && stopped_by_ == 0 && has_bad_ending()) conclude();
    output_.release(verdict_ ? verdict_->text : "");
    if (verdict_ && std::filesystem::exists(options_.flight_folder)) {
      base::log_info("flight records of the ranks: {}", options_.flight_folder);
    }
    LaunchResult result{.verdict = verdict_,
                        .failed_at = failed_wall_,
                        .concluded_at = concluded_wall_,
                        .ended_at = obs::wall_seconds(),
                        .stopped_by = stopped_by_,
                        .ranks = processes_.states(),
                        .out = output_.kept()};
    finish(result);
    return result;
  }

 private:
  void start() {
    LaunchStore opened = open_launch_store(options_, options_.deadline_s, RankProcesses::stop());
    server_ = std::move(opened.server);
    store_ = std::move(opened.store);
    membership_ = std::move(opened.membership);
    membership_->join(node_name(options_.node));
    for (int local = 0; local < options_.ranks_here; ++local) {
      comm::RankInfo info{.rank = options_.node * options_.ranks_here + local,
                          .world = world_,
                          .local_rank = local,
                          .local_world = options_.ranks_here,
                          .node = options_.node};
      info.store = opened.address;
      info.epoch = options_.restart;
      info.deadline_s = options_.deadline_s;
      info.flight_folder = options_.flight_folder;
      info.token = opened.token;
      processes_.start(info, options_.command);
    }
  }

  // ---- supervision of the ranks

  bool has_bad_ending() const {
    const auto states = processes_.states();
    return std::any_of(states.begin(), states.end(), is_broken);
  }

  // Forwards a signal to the ranks. A request to stop is forwarded once; only a second Ctrl-C, some
  // time after the first, does more: it kills the ranks.
  void forward(int number) {
    if (verdict_) return;
    if (number == SIGUSR1) {
      processes_.signal(number);
      return;
    }
    if (stopped_by_ != 0) {
      if (number == SIGINT && seconds_since(stopping_since_) >= repeat_seconds) {
        processes_.signal(SIGKILL);
      }
      return;
    }
    stopped_by_ = number;
    stopping_since_ = Clock::now();
    processes_.signal(number == SIGINT ? SIGINT : SIGTERM);
  }

  // Ended neither with exit code 0 nor because of a request to stop.
  static bool is_broken(const RankProcesses::State& state) {
    return state.ending && !state.ending->is_good() &&
           !(state.ending->signal == 0 && state.ending->exit_code == exit_stopped);
  }

  void look() {
    if (verdict_) {
      const double passed = seconds_since(concluded_at_);
      if (passed >= kill_seconds) {
        processes_.signal(SIGKILL);
      } else if (passed >= ask_seconds && !has_asked_) {
        has_asked_ = true;
        processes_.signal(SIGTERM);
      }
      return;
    }
    if (stopped_by_ != 0) {
      const auto states = processes_.states();
      if (!is_stop_broken_ && std::any_of(states.begin(), states.end(), is_broken)) {
        is_stop_broken_ = true;
        stop_broken_since_ = Clock::now();
      }
      const bool is_late =
          seconds_since(stopping_since_) > std::max(min_stop_seconds, options_.deadline_s) ||
          (is_stop_broken_ && seconds_since(stop_broken_since_) > broken_stop_seconds);
      if (is_late) processes_.signal(SIGKILL);
      return;
    }
    try {
      inspect();
    } catch (const base::CommAborted& error) {
      announce(store_is_gone(error));
    }
  }

  // The store is that of node 0.
  comm::Verdict store_is_gone(const base::CommAborted& error) const {
    return {.kind = comm::VerdictKind::died, .cause = error.what(), .text = error.what()};
  }

  // A rank that fails writes its verdict to the store before it prints anything about it.
  void look_for_verdict() {
    if (verdict_ || stopped_by_ != 0) return;
    try {
      if (const auto settled = comm::stored_verdict(*store_)) announce(*settled);
    } catch (const base::CommAborted& ignored) {  // look() handles it
    }
  }

  void inspect() {
    if (const auto settled = comm::stored_verdict(*store_)) {
      announce(*settled);
      return;
    }
    const bool has_gone = membership_->changed(0).has_value();
    if (const auto lost = has_gone ? lost_node() : std::nullopt) {
      announce(comm::settle_verdict(*store_, *lost));
      return;
    }
    // As long as every process runs, only a stall can be found, and the launcher of node 0 alone
    // checks for that: with many ranks, reading all reports from every node would load the store.
    const bool may_have_died = has_gone || has_bad_ending();
    if (!may_have_died && (options_.node != 0 || seconds_since(listened_) < listen_seconds())) {
      return;
    }
    listened_ = Clock::now();
    const std::vector<comm::RankReport> reports = all_reports();
    const bool has_stalled =
        std::any_of(reports.begin(), reports.end(), [this](const comm::RankReport& report) {
          return report.ended.empty() && report.position && !report.position->has_left &&
                 report.silent_s > options_.deadline_s;
        });
    if (has_stalled) {
      conclude();
      return;
    }
    const bool has_died = has_bad_ending() || std::any_of(reports.begin(), reports.end(),
                                                          [](const comm::RankReport& report) {
                                                            return !report.ended.empty();
                                                          });
    if (!has_died) return;
    if (!is_failing_) {
      is_failing_ = true;
      output_.hold();
      failing_since_ = Clock::now();
      failed_wall_ = obs::wall_seconds();
    }
    // The launcher on the host of the dead rank has its exit status and concludes first.
    const double passed = seconds_since(failing_since_);
    const double patience = collect_seconds + (has_bad_ending() ? 0 : 0.5);
    const bool all_reported =
        has_bad_ending() &&
        std::all_of(reports.begin(), reports.end(), [&](const comm::RankReport& report) {
          return !report.ended.empty() || (report.position && (report.position->has_left ||
                                                               report.silent_s < passed - 0.01));
        });
    if (all_reported || passed >= patience) conclude();
  }

  double listen_seconds() const {
    constexpr double seconds_a_rank = 5e-4;  // at 2,000 ranks once a second
    return std::max({look_seconds, options_.deadline_s / 50, world_ * seconds_a_rank});
  }

  // Returns a verdict about a launcher of another node that ended without reporting why; none if
  // there is none.
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

  // Determines which rank failed first, publishes the verdict and announces it.
  void conclude() {
    std::optional<comm::Verdict> verdict;
    for (const int number : processes_.wait(0)) forward(number);  // reads the last lines
    try {
      verdict = comm::verdict_of(all_reports(),
                                 {.silent_limit_s = std::min(1.5, options_.deadline_s * 0.75)});
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
      verdict = comm::settle_verdict(*store_, *verdict);
    } catch (const base::CommAborted& error) {
      if (!verdict) verdict = store_is_gone(error);
    }
    announce(*verdict);
  }

  void announce(const comm::Verdict& verdict) {
    output_.hold();
    verdict_ = verdict;
    concluded_at_ = Clock::now();
    concluded_wall_ = obs::wall_seconds();
    if (failed_wall_ == 0) failed_wall_ = concluded_wall_;
    std::fflush(stdout);
    base::log(base::LogLevel::error, verdict_->text);
    for (const RankProcesses::State& state : processes_.states()) {
      // A stopped process reacts to no other signal.
      if (!state.ending && state.stopped_by != 0) processes_.signal(SIGKILL, state.rank);
      if (verdict_->ranks == std::vector<int>{state.rank}) output_.show_last_lines(state.rank);
    }
    std::fflush(stderr);
  }

  // Agrees with the other nodes on the outcome of the job. Keeps the store until they know it.
  void finish(LaunchResult& result) {
    NodeOutcome outcome{.exit_code = result.exit_code(),
                        .may_restart = options_.may_restart && stopped_by_ == 0};
    try {
      if (options_.nodes > 1) {
        // After a verdict every launcher ends its ranks within about a second.
        constexpr double failed_wait_s = 10;
        outcome = agree_on_outcome(*store_,
                                   {.node = options_.node,
                                    .nodes = options_.nodes,
                                    .max_wait_s = verdict_ ? failed_wait_s : options_.deadline_s,
                                    .stop = stopped_by_ == 0 ? RankProcesses::stop() : nullptr},
                                   outcome);
        result.job_exit_code = outcome.exit_code;
      }
      membership_->leave();
    } catch (const base::CommAborted& ignored) {  // node 0 has ended, and with it the store
    }
    result.restarts = outcome.exit_code == exit_failed && outcome.may_restart;
  }

  const LaunchOptions& options_;
  const int world_;
  LaunchOutput output_;
  RankProcesses processes_;
  std::unique_ptr<comm::StoreServer> server_;
  std::unique_ptr<comm::Store> store_;
  std::unique_ptr<comm::Membership> membership_;

  bool is_failing_ = false;  // a rank has died; the reports of the others are being collected
  Clock::time_point failing_since_, concluded_at_, stopping_since_, listened_;
  const double started_wall_ = obs::wall_seconds();
  std::map<int, std::string> causes_;            // recorded_cause(), by rank
  double failed_wall_ = 0, concluded_wall_ = 0;  // in seconds since 1970; 0: not yet
  bool has_asked_ = false;
  std::optional<comm::Verdict> verdict_;
  int stopped_by_ = 0;
  bool is_stop_broken_ = false;
  Clock::time_point stop_broken_since_;
};

}  // namespace

bool LaunchResult::is_good() const {
  return !verdict && std::all_of(ranks.begin(), ranks.end(), [](const RankProcesses::State& state) {
    return state.ending && state.ending->is_good();
  });
}

std::string LaunchOptions::token_of_attempt(const std::string& job_token) const {
  return restart == 0 ? job_token : fmt::format("{}/{}", job_token, restart);
}

int LaunchResult::exit_code() const {
  if (job_exit_code) return *job_exit_code;
  if (is_good()) return exit_done;
  const auto any = [this](int code) {
    return std::any_of(ranks.begin(), ranks.end(), [code](const RankProcesses::State& state) {
      return state.ending && state.ending->signal == 0 && state.ending->exit_code == code;
    });
  };
  if (any(exit_do_not_requeue)) return exit_do_not_requeue;
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

LaunchResult run_launch(const LaunchOptions& options) { return Watch(options).run(); }

}  // namespace trireme::cli
