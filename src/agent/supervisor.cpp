// SPDX-License-Identifier: Apache-2.0
#include "agent/supervisor.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <thread>
#include <utility>

#include "agent/changeover.h"
#include "agent/crew.h"
#include "agent/exit_codes.h"
#include "agent/guardian/keeper.h"
#include "agent/guardian/kept_names.h"
#include "agent/nodes.h"
#include "agent/now.h"
#include "agent/processes/output.h"
#include "agent/rank_findings.h"
#include "agent/rules/elastic_times.h"
#include "agent/rules/loss_age.h"
#include "agent/rules/policy.h"
#include "agent/store/launcher_store.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text/json.h"
#include "comm/failure/verdict.h"
#include "comm/world/epochs.h"
#include "obs/clock.h"

namespace trireme::agent {
namespace {

constexpr double look_seconds = 0.1;
// After a verdict every launcher ends its ranks within about two seconds.
constexpr double outcome_seconds = 10;
constexpr double elastic_judge_seconds = 0.02;
// After a rank was killed, or while the next epoch forms.
constexpr double short_look_seconds = 0.005;

PolicyLimits limits_of(const JobOptions& options) {
  PolicyLimits limits;
  limits.stopping = std::max(limits.stopping, options.deadline_s);
  // Node 0 waits for the slowest node.
  limits.deciding = 2 * std::max(outcome_seconds, options.deadline_s);
  limits.detect = options.detect_s;
  limits.inattention = std::min(limits.inattention, options.detect_s / 2);
  limits.regrouping = elastic_times(options.detect_s).leave;
  // The exit status of a process names it, and the others are not to wait for its sake.
  if (options.is_elastic) limits.own_failure = elastic_judge_seconds;
  return limits;
}

class Supervisor {
 public:
  Supervisor(const JobOptions& options, Keeper& keeper)
      : options_(options),
        keeper_(keeper),
        world_(options.world()),
        policy_(limits_of(options)),
        state_{.epoch = options.epoch},
        output_({.shows_all = options.shows_all, .keeps_out = options.keeps_out}),
        processes_(
            [this](int rank, bool is_error, std::string_view line) {
              if (is_error) look_for_verdict();
              output_.take(rank, is_error, line);
            },
            keeper),
        store_(options, keeper),
        crew_(options, processes_, keeper),
        changeover_(options, crew_),
        findings_(options, crew_) {
    findings_.set_started(started_wall_);
  }

  JobResult run() {
    start();
    do {
      watch();
      end_ranks();
    } while (state_.mode == Mode::regrouping);  // the last rank here was lost, and is replaced
    const std::optional<comm::Verdict>& verdict = result_.verdict;
    output_.release(verdict ? verdict->text : "");
    if (verdict && std::filesystem::exists(options_.flight_folder)) {
      base::log_info("flight records of the ranks: {}", options_.flight_folder);
    }
    result_.ended_at = obs::wall_seconds();
    result_.out = output_.kept();
    result_.epoch = changeover_.epoch();
    agree();
    keeper_.erase(kept_start);
    store_.forget();
    return result_;
  }

 private:
  // While ranks run, or are to.
  void watch() {
    double looked = now();
    while (crew_.is_any_rank_running() || state_.mode == Mode::regrouping || stands_by()) {
      const bool is_regrouping = state_.mode == Mode::regrouping;
      const double pause =
          is_regrouping || findings_.is_any_rank_killed() ? short_look_seconds : look_seconds / 2;
      for (const int number : processes_.wait(pause)) receive(number);
      if (is_regrouping) {
        guarded([this] { regroup(); });
        continue;
      }
      if (now() - looked < look_seconds && !findings_.has_bad_ending()) continue;
      looked = now();
      look();
    }
  }

  void start() {
    const auto left = keeper_.find(kept_start);
    const Crew::Address address = store_.open();
    if (left) {
      go_on(left->what, address);
      return;
    }
    changeover_.use(store_.of_run(), store_.run_register());
    store_.enter(changeover_.epoch());
    changeover_.record_start();
    if (options_.saved_step) saved_at_start_ = options_.starts_over ? -1 : options_.saved_step();
    changeover_.begin(saved_at_start_.value_or(-1));
    give(Event::time_passed);
    keep();
    crew_.start(address);
    guarded([this] { changeover_.tell_spares(); });
  }

  // This node has no ranks, and waits for those of another.
  bool stands_by() const { return !crew_.has_ranks() && is_watching() && !decision_; }

  // ---- for a supervisor after this one
  void keep() {
    base::Json what = {{"changeover", changeover_.kept()},
                       {"survived", survived_},
                       {"started", started_wall_},
                       {"stopped_by", result_.stopped_by}};
    if (saved_at_start_) what["saved_at_start"] = *saved_at_start_;
    keeper_.put(kept_start, what);
  }

  // A supervisor before this one has died.
  void go_on(const base::Json& left, const Crew::Address& address) {
    changeover_.use(store_.of_run(), store_.run_register());
    changeover_.go_on(left.at("changeover"));
    survived_ = left.at("survived").get<int64_t>();
    has_told_times_ = true;
    started_wall_ = left.at("started").get<double>();
    findings_.set_started(started_wall_);
    result_.stopped_by = left.at("stopped_by").get<int>();
    if (left.contains("saved_at_start")) saved_at_start_ = left.at("saved_at_start").get<int64_t>();
    const int64_t epoch = changeover_.epoch();
    state_.epoch = epoch;
    state_.judges_from = now() + options_.detect_s;  // ranks announce themselves first
    store_.enter(changeover_.epoch());
    give(Event::time_passed);
    comm::EpochKeys keys(store_.of_run());
    const std::vector<int> ranks = changeover_.placement().ranks_on(options_.node);
    crew_.go_on(address, keys, epoch, keys.course(epoch) == comm::Course::regroup, ranks);
    keep();
    base::log_info("this supervisor goes on with {} of epoch {}",
                   ranks.empty() ? "the spares" : comm::ranks_text(ranks), epoch);
  }

  // ---- from facts to events

  void give(Event event) {
    const PolicyStep step = policy_.next(state_, {.event = event, .epoch = state_.epoch}, now());
    state_ = step.state;
    act(step.action);
  }

  // Neither is there a verdict nor was a stop requested.
  bool is_watching() const {
    return state_.mode == Mode::running || state_.mode == Mode::collecting ||
           state_.mode == Mode::own_failure;
  }

  void receive(int number) {
    if (number != SIGUSR1 && result_.stopped_by == 0 && !result_.verdict) {
      result_.stopped_by = number;
      keep();
    }
    give(number == SIGUSR1 ? Event::save : number == SIGINT ? Event::interrupt : Event::stop);
  }

  void look() {
    give(Event::time_passed);
    crew_.look_after(now(), state_.mode == Mode::running);
    tell_times();
    if (findings_.has_bad_ending()) {
      // What it printed stands before the verdict about it.
      for (const int number : processes_.wait(0)) receive(number);
      give(Event::rank_failed);
    }
    if (!is_watching()) return;
    guarded([this] {
      announce_launcher();
      changeover_.tell_spares();
      inspect();
      if (stands_by()) decision_ = agreement().decision();
    });
  }

  // When the run has begun: until then its configuration may be refused.
  void tell_times() {
    if (!options_.is_elastic || options_.node != 0 || has_told_times_ || !crew_.is_listed()) return;
    has_told_times_ = true;
    base::log_info("{}", to_text(elastic_times(options_.detect_s), options_.all_nodes()));
  }

  // The launchers of other nodes know that this one lives.
  void announce_launcher() {
    if (!options_.is_elastic || options_.all_nodes() == 1 || now() - announced_ < look_seconds) {
      return;
    }
    announced_ = now();
    store_.members().announce("");
  }
  // Neither this process nor its store was stopped or late.
  bool judges_silence() const { return now() >= state_.judges_from; }

  // A rank that fails writes its verdict to the store before it prints anything about it.
  void look_for_verdict() {
    if (!is_watching()) return;
    try {
      receive_verdict();
    } catch (const base::CommAborted& ignored) {  // look() handles it
    }
  }

  bool receive_verdict() {
    const auto stands = comm::stored_verdict(store_.of_epoch());
    if (!stands) return false;
    found_ = *stands;
    conclude();
    return true;
  }

  // A verdict stands, `found_`.
  void conclude() {
    if (!options_.is_elastic) {
      give(Event::verdict_given);
      return;
    }
    const RankFindings::Reports reports =
        options_.node == 0 ? findings_.reports(store_.of_epoch()) : RankFindings::Reports();
    const auto course = changeover_.course_after(*found_, reports);
    keep();
    if (course) give(*course == comm::Course::regroup ? Event::regroup : Event::verdict_given);
  }

  // ---- from one epoch to the next

  void regroup() {
    give(Event::time_passed);
    try {
      announce_launcher();
      changeover_.look(store_.members(), now(), judges_silence(),
                       [this](Event event) { give(event); });
    } catch (const base::Fenced&) {
      // The next epoch may have formed since, with or without this node.
      if (!comm::EpochKeys(store_.of_run()).is_formed(changeover_.epoch() + 1)) throw;
      changeover_.follow_placement();
      give(Event::formed);
    }
  }

  void replace() {
    if (!changeover_.replace_ended()) give(Event::hopeless);
  }

  void enter() {
    store_.members().leave();
    const std::vector<int> fresh = changeover_.enter();
    store_.enter(changeover_.epoch());
    findings_.enter_epoch();
    keep();
    for (const int rank : fresh) output_.forget(rank);
    base::log_info("epoch {}: {}; formed {:.2f} s after the failure was found", changeover_.epoch(),
                   fresh.empty() ? "no rank of this node was lost"
                                 : fmt::format("{} of this node replaced", comm::ranks_text(fresh)),
                   obs::wall_seconds() - failed_at_);
  }

  void inspect() {
    if (receive_verdict()) return;
    const bool has_gone = store_.members().changed(0).has_value();
    const bool listens = options_.node == 0 && now() - listened_ >= findings_.listen_seconds();
    if (has_gone || (listens && options_.is_elastic)) found_ = lost_node();
    if (found_) {
      give(Event::launcher_lost);
      return;
    }
    // As long as every process runs, only a stall can be found, and the launcher of node 0 alone
    // checks for that: with many ranks, reading all reports from every node would load the store.
    const bool may_have_died = has_gone || findings_.has_bad_ending();
    if (!may_have_died && !listens) return;
    listened_ = now();
    const RankFindings::Reports reports = findings_.reports(store_.of_epoch());
    found_ = findings_.stall_of(reports);
    if (found_) give(Event::rank_stalled);
    found_.reset();
    if (has_died(reports)) give(Event::rank_lost);
    if (have_all_reported(reports, now() - state_.since)) give(Event::all_reported);
  }

  // Returns a verdict about the ranks of a node whose launcher ended without reporting why, or
  // announces itself no more; none if there is no such node.
  std::optional<comm::Verdict> lost_node() {
    const std::vector<int> lost = changeover_.lost_nodes(store_.members(), now(), judges_silence());
    if (lost.empty()) return std::nullopt;
    const std::string cause = options_.is_elastic
                                  ? "the launcher of the node has ended, or cannot be reached"
                                  : "the launcher of the node has ended without reporting why";
    return comm::Verdict{.kind = comm::VerdictKind::died,
                         .ranks = changeover_.placement().ranks_on(lost.front()),
                         .cause = cause,
                         .text = fmt::format("node {} is lost: {}", lost.front(), cause)};
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
    // After announce: the verdict is then that of an epoch that is over.
    if (has(action, Action::replace)) {
      survive();
      replace();
    }
    if (has(action, Action::kill_late)) changeover_.kill_late();
    if (has(action, Action::tell_ready)) changeover_.tell_ready();
    if (has(action, Action::form)) changeover_.form();
    if (has(action, Action::enter)) enter();
  }

  // The run goes on after the verdict that was announced.
  void survive() {
    if (!result_.verdict) return;
    crew_.kill_blamed(*result_.verdict);
    output_.release(result_.verdict->text);
    if (options_.survived && survived_ < changeover_.epoch()) {
      result_.ended_at = obs::wall_seconds();
      result_.epoch = changeover_.epoch();
      options_.survived(result_);
      survived_ = changeover_.epoch();
      keep();
    }
    failed_at_ = result_.failed_at;
    result_.verdict.reset();
    result_.lost_at = result_.failed_at = result_.concluded_at = result_.ended_at = 0;
  }

  void hold() {
    output_.hold();
    if (result_.failed_at == 0) result_.failed_at = obs::wall_seconds();
  }

  // Determines which rank failed first, unless that is found already.
  void judge() {
    std::optional<comm::Verdict> verdict = std::exchange(found_, std::nullopt);
    // Reads the last lines.
    for (const int number : processes_.wait(0)) receive(number);
    if (!is_watching()) return;
    processes_.look_for_stops();
    try {
      if (!verdict) verdict = findings_.verdict_of(findings_.reports(store_.of_epoch()));
      for (const RankProcesses::State& state : crew_.ranks()) {
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
      found_ = comm::settle_verdict(store_.of_epoch(), verdict);
    } catch (const base::CommAborted& ignored) {  // the store has ended with node 0
      found_ = verdict;
    }
    guarded([this] { conclude(); });
  }

  void announce() {
    result_.verdict = std::exchange(found_, std::nullopt);
    result_.concluded_at = obs::wall_seconds();
    date_loss();
    std::fflush(stdout);
    base::log(base::LogLevel::error, result_.verdict->text);
    processes_.look_for_stops();
    for (const RankProcesses::State& state : crew_.ranks()) {
      // A stopped process reacts to no other signal.
      if (!state.ending && state.stopped_by != 0) processes_.signal(SIGKILL, state.rank);
      if (result_.verdict->ranks == std::vector<int>{state.rank})
        output_.show_last_lines(state.rank);
    }
    std::fflush(stderr);
  }

  void date_loss() {
    result_.lost_at = result_.failed_at;
    if (result_.verdict->kind != comm::VerdictKind::stalled) return;
    try {
      const double age =
          loss_age(*result_.verdict, findings_.reports(store_.of_epoch()), options_.detect_s);
      result_.lost_at = std::min(result_.lost_at, result_.concluded_at - age);
    } catch (const base::CommAborted& ignored) {  // the store has ended: look() handles it
    }
  }

  // ---- the decision

  // All ranks may have ended before look() could examine their reports.
  void end_ranks() {
    processes_.drain();
    result_.ranks = crew_.ranks();
    if (findings_.has_bad_ending()) give(Event::rank_failed);
    const auto is_settled = [this] {
      return state_.mode == Mode::deciding || state_.mode == Mode::over ||
             state_.mode == Mode::regrouping;
    };
    for (give(Event::all_ended); !is_settled(); give(Event::all_ended)) {
      for (const int number : processes_.wait(short_look_seconds)) receive(number);
    }
  }

  void publish() {
    guarded([this] { agreement().publish({result_.node_exit_code(), state_.stopped_at == 0}); });
  }

  void propose() {
    guarded([this] {
      std::optional<int64_t> saved_now;
      if (options_.saved_step) saved_now = options_.saved_step();
      agreement().propose({.restarts = options_.restarts,
                           .max_restarts = options_.max_restarts,
                           .fruitless = options_.fruitless,
                           .saved_at_start = saved_at_start_,
                           .saved_now = saved_now,
                           .lost_host = changeover_.lost_host(),
                           .next_layout = next_layout(),
                           .given_up = changeover_.given_up(),
                           .before_divergence = before_divergence(),
                           .went_back_to = options_.went_back_to});
    });
  }

  std::optional<int64_t> before_divergence() const {
    // Ranks that another process has fenced end with the same exit code.
    const bool is_fenced = result_.verdict && result_.verdict->kind == comm::VerdictKind::fenced;
    if (!options_.before_divergence || is_fenced) return {};
    return options_.before_divergence();
  }

  std::vector<std::string> next_layout() const {
    const bool lacks_memory =
        result_.verdict && result_.verdict->kind == comm::VerdictKind::no_memory;
    return lacks_memory && options_.next_layout ? options_.next_layout()
                                                : std::vector<std::string>();
  }

  void end_alone() {
    result_.decision = {.exit_code = result_.node_exit_code()};
    if (options_.node != 0) return;
    guarded([this] { agreement().propose_end(result_.decision.exit_code); });
  }

  // Waits for the decision. Keeps the store until the other nodes know it.
  void agree() {
    if (!crew_.has_ranks() && !decision_) {  // the job does not depend on this node
      leave_alone();
      return;
    }
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
      store_.members().leave();
    } catch (const base::CommAborted& ignored) {  // node 0 has ended, and with it the store
    } catch (const base::Fenced& ignored) {       // the result says so
    }
  }

  // Before the job ends.
  void leave_alone() {
    result_.decision = {.exit_code = result_.has_lost_store || result_.is_fenced
                                         ? result_.node_exit_code()
                                         : exit_stopped};
    try {
      store_.members().leave();
    } catch (const base::Error& ignored) {  // node 0 has ended, and with it the store
    }
  }

  Agreement agreement() {
    return {store_.of_epoch(), options_.node, changeover_.nodes_with_ranks(), changeover_.nodes()};
  }

  template <class Call>
  void guarded(const Call& call) {
    try {
      call();
    } catch (const base::CommAborted& error) {
      lose_store(error);
    } catch (const base::Fenced& error) {
      result_.is_fenced = true;
      lose_store(error);
    }
  }
  // Node 0, whose store it is, has ended or cannot be reached; or it has ended this epoch.
  void lose_store(const base::Error& error) {
    const bool was_at_work = is_watching() || state_.mode == Mode::regrouping;
    if (options_.is_elastic && was_at_work) result_.has_lost_store = true;
    std::string text = error.what();
    if (result_.has_lost_store && !result_.is_fenced) {
      text += fmt::format("; node {} ends, and the others may go on without it", options_.node);
    }
    found_ = {.kind = result_.is_fenced ? comm::VerdictKind::fenced : comm::VerdictKind::died,
              .cause = text,
              .text = text};
    if (state_.mode == Mode::regrouping) base::log(base::LogLevel::error, text);
    give(Event::store_gone);
  }

  const JobOptions& options_;
  Keeper& keeper_;
  const int world_;
  const Policy policy_;
  PolicyState state_;
  RankOutput output_;
  RankProcesses processes_;
  LauncherStore store_;
  Crew crew_;
  Changeover changeover_;
  RankFindings findings_;
  double failed_at_ = 0;   // of the epoch before
  int64_t survived_ = -1;  // the last epoch whose verdict was reported by options_.survived

  std::optional<int64_t> saved_at_start_;
  double listened_ = 0, announced_ = 0;
  bool has_told_times_ = false;
  double started_wall_ = obs::wall_seconds();
  std::optional<comm::Verdict> found_;  // what an event is about
  std::optional<Decision> decision_;
  JobResult result_;
};

}  // namespace

JobResult run_start(const JobOptions& options, Keeper& keeper) {
  return Supervisor(options, keeper).run();
}

void wait_for_restart(double seconds) {
  const double begin = now();
  while (now() - begin < seconds) {
    if (*SignalQueue::stop()) throw base::Stopped("stopped between two starts of the job");
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

}  // namespace trireme::agent
