// SPDX-License-Identifier: Apache-2.0
// Histories of a job with several launchers on a virtual clock, one per seed: ranks die and fall
// silent, launchers are paused or killed, stops are requested, messages are late, clocks jump.
// Each launcher acts by the Policy, and the store decides as the real one does. Planted bugs show
// that the checks find what they are made for.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <random>
#include <string>
#include <vector>

#include "agent/exit_codes.h"
#include "agent/rules/policy.h"
#include "agent/rules/restart.h"

namespace trireme::agent {
namespace {

enum class Bug : uint8_t {
  none,
  own_exit_codes,       // a launcher decides by its own outcome
  two_deciders,         // two launchers propose, and the later one wins
  verdict_overwritten,  // the store keeps the newest verdict
  lower_epoch,          // messages of earlier epochs count
  progress_not_reset,   // a newer checkpoint does not reset the count of starts
  settable_clock,       // ages of heartbeats are differences of a clock that jumps
  late_restart,         // a decision that arrives late starts the job again
  bad_option            // a bad call counts as a failure
};

constexpr double detect_s = 2, never = 1e9;
constexpr int signalled = -9;

struct SimRank {
  bool is_running = true;
  int code = 0;
  double began = 0;             // its first heartbeat
  double silent_since = never;  // it is stopped
  bool is_stubborn = false;     // ends by SIGKILL only
};

struct Message {
  int64_t epoch = 0;
  double asked_at = 0;
  bool store_gone = false, rank_gone = false, launcher_lost = false, is_silent = false;
  bool all_outcomes = false;
  std::optional<std::string> verdict;
  std::optional<Decision> decision;
};

struct SimLauncher {
  int node = 0;
  PolicyState state;
  bool is_alive = true, is_done = false, is_idle = true;
  double paused_until = 0;
  double stop_at = never;
  SimRank rank;
  Message message;  // that is being handled
  std::optional<std::string> announced;
  std::vector<int64_t> started;
};

struct SimEpoch {
  bool is_open = true;
  std::optional<std::string> verdict;
  std::map<int, NodeOutcome> outcomes;
  std::optional<Decision> decision;
  bool rank_gone = false, launcher_lost = false;
  int64_t saved_at_start = -1;
  std::map<int, Decision> followed;
  std::map<int, int> own_codes;  // of ranks that ended by themselves
  // What happens: to which rank, when after its start, how it ends.
  std::map<int, std::pair<double, int>> deaths;
  int silent_rank = -1;
  double silent_after = 0, finish_after = never;
  bool is_stopped = false;
};

class History {
 public:
  History(unsigned seed, Bug bug)
      : random_(seed),
        bug_(bug),
        policy_({.stopping = 20, .deciding = 60, .detect = detect_s}),
        max_restarts_(static_cast<int64_t>(random_() % 6)) {
    launchers_.resize(2 + random_() % 3);
    for (size_t node = 0; node < launchers_.size(); ++node) {
      launchers_[node].node = static_cast<int>(node);
      start_later(launchers_[node], 0, uniform(0, 1));
    }
  }

  // Returns what went wrong; empty if nothing did.
  std::string run() {
    while (!queue_.empty() && problem_.empty() && !is_cut_) {
      const Item item = queue_.top();
      queue_.pop();
      now_ = item.at;
      if (now_ > 2000) return "the job does not end";
      item.call();
    }
    if (!problem_.empty() || is_cut_) return problem_;
    for (const SimLauncher& one : launchers_) {
      if (one.is_alive && !one.is_done) return fmt::format("node {} got no decision", one.node);
    }
    return "";
  }
  size_t epochs() const { return epochs_.size(); }

 private:
  struct Item {
    double at;
    int64_t order;
    std::function<void()> call;
    bool operator<(const Item& other) const {
      return at != other.at ? at > other.at : order > other.order;
    }
  };

  double uniform(double low, double high) {
    return low + (high - low) * static_cast<double>(random_() % 65536) / 65536;
  }
  bool happens(double share) { return uniform(0, 1) < share; }
  // Some messages are very late.
  double delay() { return happens(0.03) ? uniform(1, 6) : uniform(0.001, 0.1); }

  void at(double time, std::function<void()> call) {
    queue_.push({time, order_++, std::move(call)});
  }
  void after(double seconds, std::function<void()> call) { at(now_ + seconds, std::move(call)); }
  void fail(const std::string& problem) {
    if (problem_.empty()) problem_ = fmt::format("{:.2f} s: {}", now_, problem);
  }
  SimEpoch& epoch_of(const SimLauncher& one) {
    return epochs_[static_cast<size_t>(one.state.epoch)];
  }

  // ---- starts

  void start_later(SimLauncher& one, int64_t epoch, double seconds) {
    one.is_idle = true;
    after(seconds, [this, &one, epoch] { start(one, epoch); });
  }

  void start(SimLauncher& one, int64_t epoch) {
    if (now_ < one.paused_until) return start_later(one, epoch, one.paused_until - now_);
    const bool is_next = static_cast<int64_t>(one.started.size()) == epoch;
    if (!is_next) return fail(fmt::format("node {} starts epoch {} again", one.node, epoch));
    if (epoch > max_restarts_) return fail("more starts than allowed");
    // A launcher that has ended alone, or was killed, is missing: the others wait in vain.
    for (const SimLauncher& other : launchers_)
      is_cut_ = is_cut_ || !other.is_alive || other.is_done;
    if (is_cut_) return;
    if (static_cast<int64_t>(epochs_.size()) <= epoch) {
      if (one.node != 0) return start_later(one, epoch, 0.1);
      open_epoch();
    }
    one.started.push_back(epoch);
    one.state = {.epoch = epoch};
    one.rank = {.began = now_, .is_stubborn = happens(0.1)};
    one.announced.reset();
    one.is_idle = false;
    give(one, Event::time_passed, epoch);
    const SimEpoch& of = epoch_of(one);
    if (of.deaths.contains(one.node)) {
      const auto [seconds, code] = of.deaths.at(one.node);
      end_later(one, seconds, code, true);
    }
    if (of.silent_rank == one.node) {
      after(of.silent_after, [this, &one, epoch] {
        if (one.state.epoch == epoch && one.rank.is_running) one.rank.silent_since = now_;
      });
    }
    if (of.finish_after < never) end_later(one, of.finish_after + uniform(0, 0.3), 0, true);
    after(uniform(0, 0.2), [this, &one] { look(one); });
  }

  void open_epoch() {
    SimEpoch epoch;
    epoch.saved_at_start = saved_;
    const int nodes = static_cast<int>(launchers_.size());
    const auto any_node = [&] {
      return static_cast<int>(random_() % static_cast<unsigned>(nodes));
    };
    const double when = uniform(0.2, 2.5), kind = uniform(0, 1);
    if (kind < 0.15) {
      epoch.finish_after = uniform(0.5, 3);
    } else if (kind < 0.65) {
      const std::vector<int> codes = {1, 1, 1, 1, signalled, signalled, 2, 75, 93};
      epoch.deaths[any_node()] = {when, codes[random_() % codes.size()]};
      if (happens(0.3)) epoch.deaths[any_node()] = {when + uniform(0, 0.8), signalled};
    } else if (kind < 0.8) {
      epoch.silent_rank = any_node();
      epoch.silent_after = when;
    } else if (kind < 0.9) {
      launchers_[static_cast<size_t>(any_node())].stop_at = now_ + uniform(0.1, 6);
    } else if (kind < 0.95) {
      kill_launcher_later(1 + any_node() % (nodes - 1), when);
    } else if (kind < 0.97) {
      kill_launcher_later(0, when);
    } else {
      epoch.deaths[any_node()] = {when, 1};
    }
    if (happens(0.25)) {
      SimLauncher& paused = launchers_[static_cast<size_t>(any_node())];
      const double pause = uniform(0.5, paused.node == 0 ? 9 : 3);
      after(uniform(0.1, 4), [this, &paused, pause] {
        if (now_ < paused.paused_until + 1) return;
        paused.paused_until = now_ + pause;
        if (paused.node == 0) pause_began_ = now_;
      });
    }
    if (happens(0.25)) jumps_.push_back(now_ + uniform(0.1, 4));
    if (happens(0.5)) {
      after(uniform(0.1, 2), [this] {
        if (epochs_.back().outcomes.empty()) saved_ += 10;
      });
    }
    epochs_.push_back(epoch);
    if (!has_end(epoch)) {  // by a stop or the death of a launcher, which may come too late
      const size_t index = epochs_.size() - 1;
      after(8, [this, index] {
        for (SimLauncher& one : launchers_) {
          if (one.state.epoch == static_cast<int64_t>(index)) end_later(one, 0.1, 0, true);
        }
      });
    }
  }
  static bool has_end(const SimEpoch& epoch) {
    return epoch.finish_after < never || !epoch.deaths.empty() || epoch.silent_rank >= 0;
  }

  void kill_launcher_later(int node, double seconds) {
    after(seconds, [this, node] {
      SimLauncher& one = launchers_[static_cast<size_t>(node)];
      if (one.is_idle || one.is_done) return;
      one.is_alive = false;
      one.rank.is_running = false;  // its life line closes
      epoch_of(one).launcher_lost = true;
      if (node == 0) epoch_of(one).is_open = false;
    });
  }

  // ---- ranks

  void end_later(SimLauncher& one, double seconds, int code, bool is_own) {
    after(seconds, [this, &one, epoch = one.state.epoch, code, is_own] {
      SimRank& rank = one.rank;
      const bool can_act = rank.silent_since == never || code == signalled;
      if (one.state.epoch != epoch || !rank.is_running || !can_act) return;
      rank.is_running = false;
      rank.code = code;
      if (code != 0) epoch_of(one).rank_gone = true;
      if (is_own) epoch_of(one).own_codes[one.node] = code;
    });
  }
  void end_all_ranks(SimLauncher& by, double most, int code, bool is_own) {
    for (SimLauncher& one : launchers_) {
      const bool is_of_epoch = !one.started.empty() && one.state.epoch == by.state.epoch;
      if (is_of_epoch && !one.rank.is_stubborn) end_later(one, uniform(0.05, most), code, is_own);
    }
  }

  // Returns the age of the last heartbeat of a rank, as node 0 computes it.
  double beat_age(const SimLauncher& one) {
    const SimLauncher& zero = launchers_[0];
    double beat = std::min(now_ - 0.1, one.rank.silent_since);
    // The store did not run either: heartbeats are handled soon after it runs again.
    if (now_ < zero.paused_until + 0.2 && zero.paused_until > 0) {
      beat = std::min(beat, pause_began_);
    }
    beat = std::max(beat, one.rank.began);
    double age = now_ - beat;
    if (bug_ == Bug::settable_clock) {
      for (const double jump : jumps_) age += beat < jump && jump <= now_ ? 3600 : 0;
    }
    return age;
  }

  // ---- the launcher

  void look(SimLauncher& one) {
    if (!one.is_alive || one.is_done || one.is_idle) return;
    if (now_ < one.paused_until) {
      at(one.paused_until, [this, &one] { look(one); });
      return;
    }
    const int64_t epoch = one.state.epoch;
    give(one, Event::time_passed, epoch);
    if (now_ >= one.stop_at) {
      one.stop_at = never;
      give(one, Event::stop, epoch);
    }
    const bool is_broken = !one.rank.is_running && one.rank.code != 0 && one.rank.code != 75;
    if (is_broken) give(one, Event::rank_failed, epoch);
    if (!one.rank.is_running) give(one, Event::all_ended, epoch);
    if (one.is_done || one.is_idle) return;
    after(delay(), [this, &one, epoch, asked = now_] { answer(one, epoch, asked); });
    after(uniform(0.1, 0.25), [this, &one] { look(one); });
  }

  // The store answers what a launcher asked.
  void answer(SimLauncher& one, int64_t asked, double asked_at) {
    const SimLauncher& zero = launchers_[0];
    if (zero.is_alive && now_ < zero.paused_until) {
      at(zero.paused_until + uniform(0, 0.3),
         [this, &one, asked, asked_at] { answer(one, asked, asked_at); });
      return;
    }
    const SimEpoch& of = epochs_[static_cast<size_t>(asked)];
    Message message{.epoch = asked, .asked_at = asked_at, .store_gone = !of.is_open};
    if (of.is_open) {
      message.verdict = of.verdict;
      message.decision = of.decision;
      message.rank_gone = of.rank_gone;
      message.launcher_lost = of.launcher_lost;
      message.all_outcomes = one.node == 0;
      for (const SimLauncher& other : launchers_) {
        const bool is_there = !other.started.empty() && other.started.back() == asked;
        if (one.node == 0 && is_there && other.rank.is_running && beat_age(other) > detect_s) {
          message.is_silent = true;
        }
        if (other.is_alive && !of.outcomes.contains(other.node)) message.all_outcomes = false;
      }
    }
    after(delay(), [this, &one, message] { receive(one, message); });
  }

  void receive(SimLauncher& one, const Message& message) {
    if (!one.is_alive || one.is_done || one.is_idle) return;
    if (now_ < one.paused_until) {
      at(one.paused_until, [this, &one, message] { receive(one, message); });
      return;
    }
    one.message = message;
    const int64_t epoch = bug_ == Bug::lower_epoch ? one.state.epoch : message.epoch;
    const auto give_if = [&](bool holds, Event event) {
      if (holds && !one.is_done && !one.is_idle) give(one, event, epoch);
    };
    give_if(message.store_gone, Event::store_gone);
    give_if(message.verdict.has_value(), Event::verdict_given);
    give_if(!message.verdict && message.launcher_lost, Event::launcher_lost);
    // A launcher waits for the answer: it does not run for as long.
    const bool is_fresh = now_ - message.asked_at < PolicyLimits{}.inattention;
    give_if(!message.verdict && message.is_silent && is_fresh, Event::rank_stalled);
    give_if(!message.verdict && message.rank_gone, Event::rank_lost);
    give_if(message.all_outcomes, Event::all_outcomes);
    if (bug_ == Bug::late_restart && message.decision && message.decision->restarts) {
      return follow(one, *message.decision);
    }
    give_if(message.decision.has_value(), Event::decided);
  }

  void give(SimLauncher& one, Event event, int64_t epoch) {
    const PolicyStep step = policy_.next(one.state, {event, epoch}, now_ + 1);
    one.state = step.state;
    const Action action = step.action;
    if (has(action, Action::judge)) judge(one, event == Event::rank_stalled);
    if (has(action, Action::blame_node)) settle(one);
    if (has(action, Action::announce)) announce(one);
    if (has(action, Action::forward_stop)) {
      epoch_of(one).is_stopped = true;
      end_all_ranks(one, 1.2, 75, false);
    }
    if (has(action, Action::terminate) && !one.rank.is_stubborn) {
      end_later(one, uniform(0.02, 0.2), 1, false);
    }
    if (has(action, Action::kill)) end_later(one, uniform(0.005, 0.05), signalled, false);
    if (has(action, Action::publish)) publish(one);
    if (has(action, Action::propose)) propose_later(one);
    if (has(action, Action::follow)) follow(one, *one.message.decision);
    if (has(action, Action::end_alone)) {
      one.is_done = true;
      // Others that have begun the next epoch wait for it in vain, as in start().
      is_cut_ = is_cut_ || std::ssize(epochs_) > one.state.epoch + 1;
    }
    if (has(action, Action::end_alone) && one.node == 0) {
      SimEpoch& of = epoch_of(one);
      if (!of.decision) of.decision = Decision{.exit_code = exit_failed};
      after(5, [&of] { of.is_open = false; });
    }
  }

  void judge(SimLauncher& one, bool is_for_silence) {
    if (is_for_silence && !epoch_of(one).rank_gone) {
      const bool is_one_silent = std::any_of(
          launchers_.begin(), launchers_.end(),
          [&](const SimLauncher& other) { return now_ - other.rank.silent_since > detect_s; });
      if (!is_one_silent) fail("a rank that beats is blamed for its silence");
    }
    settle(one);
  }

  void settle(SimLauncher& one) {
    const int64_t epoch = one.state.epoch;
    const std::string text = fmt::format("epoch {} by node {}", epoch, one.node);
    after(delay(), [this, &one, epoch, text] {
      SimEpoch& of = epochs_[static_cast<size_t>(epoch)];
      if (!of.verdict || bug_ == Bug::verdict_overwritten) {
        of.verdict = text;
        if (one.state.epoch == epoch) end_all_ranks(one, 0.6, 1, false);
      }
      Message reply{.epoch = epoch, .verdict = of.verdict};
      after(delay(), [this, &one, reply] { receive(one, reply); });
    });
  }

  void announce(SimLauncher& one) {
    if (one.message.store_gone) return;
    one.announced = one.message.verdict;
    if (!one.announced->starts_with(fmt::format("epoch {} ", one.state.epoch))) {
      fail("the verdict of an earlier epoch is announced");
    }
    for (const SimLauncher& other : launchers_) {
      const bool is_other = other.announced && other.state.epoch == one.state.epoch &&
                            other.announced != one.announced;
      if (is_other) fail("launchers announce different verdicts");
    }
  }

  // ---- the decision

  Progress progress_of(const SimEpoch& of) const {
    return {.restarts = static_cast<int64_t>(epochs_.size()) - 1,
            .max_restarts = max_restarts_,
            .fruitless = fruitless_,
            .saved_at_start = of.saved_at_start,
            .saved_now = bug_ == Bug::progress_not_reset ? of.saved_at_start : saved_};
  }

  NodeOutcome outcome_of(const SimLauncher& one) const {
    const int code = one.rank.code;
    NodeOutcome outcome{.exit_code = code, .may_restart = one.state.stopped_at == 0};
    if (code == signalled || (one.announced && (code == 0 || code == 75))) {
      outcome.exit_code = exit_failed;
    }
    if (bug_ == Bug::bad_option && code == exit_bad_call) outcome.exit_code = exit_failed;
    return outcome;
  }

  void publish(SimLauncher& one) {
    const NodeOutcome own = outcome_of(one);
    if (bug_ == Bug::own_exit_codes) {
      return follow(one, decide(std::vector{own}, progress_of(epoch_of(one))));
    }
    const int64_t epoch = one.state.epoch;
    after(delay(), [this, &one, own, epoch] {
      epochs_[static_cast<size_t>(epoch)].outcomes[one.node] = own;
      if (bug_ == Bug::two_deciders && one.state.epoch == epoch) propose(epoch_of(one), true);
    });
  }

  void propose_later(const SimLauncher& one) {
    after(delay(), [this, &of = epoch_of(one)] { propose(of, false); });
  }
  void propose(SimEpoch& of, bool overwrites) {
    if (of.decision && !overwrites) return;
    std::vector<NodeOutcome> outcomes;
    for (const auto& [node, outcome] : of.outcomes) outcomes.push_back(outcome);
    of.decision = decide(outcomes, progress_of(of));
  }

  void follow(SimLauncher& one, const Decision& decision) {
    SimEpoch& of = epoch_of(one);
    const size_t known = of.followed.size();
    of.followed.emplace(one.node, decision);
    for (const auto& [node, other] : of.followed) {
      if (other != decision) fail("launchers follow different decisions");
    }
    if (decision.restarts) {
      for (const auto& [node, code] : of.own_codes) {
        // A launcher that was killed could not tell.
        const bool is_told = launchers_[static_cast<size_t>(node)].is_alive;
        if (is_told && (code == exit_bad_call || code == exit_taken_over)) {
          fail("it is started again after a bad call");
        }
      }
    }
    if (known == 0) check_first(of, decision);
    if (one.node == 0) after(5, [&of] { of.is_open = false; });
    if (decision.restarts) {
      start_later(one, one.state.epoch + 1, decision.wait_s + uniform(0, 0.3));
    } else {
      one.is_done = true;
    }
  }

  void check_first(const SimEpoch& of, const Decision& decision) {
    barren_ = saved_ > of.saved_at_start ? 0 : barren_ + 1;
    fruitless_ = decision.fruitless;
    if (!decision.reason.empty() && barren_ < 3) fail("the job is given up although it progresses");
    if (decision.restarts && barren_ >= 3) fail("the job is started again without progress");
  }

  std::mt19937 random_;
  const Bug bug_;
  const Policy policy_;
  const int64_t max_restarts_;
  std::vector<SimLauncher> launchers_;
  std::deque<SimEpoch> epochs_;
  std::priority_queue<Item> queue_;
  int64_t order_ = 0, saved_ = -1, fruitless_ = 0, barren_ = 0;
  double now_ = 0, pause_began_ = never;
  std::vector<double> jumps_;  // of the clock that can be set
  bool is_cut_ = false;
  std::string problem_;
};

constexpr unsigned histories = 10000;

TEST(PolicySimulation, launchers_reach_one_decision_in_every_history) {
  size_t epochs = 0;
  for (unsigned seed = 0; seed < histories; ++seed) {
    History history(seed, Bug::none);
    EXPECT_EQ(history.run(), "") << "seed " << seed;
    epochs += history.epochs();
    if (HasFailure()) return;
  }
  fmt::print("{} histories, {} epochs\n", histories, epochs);
  EXPECT_GT(epochs, histories);
}

TEST(PolicySimulation, planted_bugs_are_found) {
  const std::vector<std::pair<Bug, const char*>> all = {
      {Bug::own_exit_codes, "decision by own exit codes only"},
      {Bug::two_deciders, "two deciders"},
      {Bug::verdict_overwritten, "verdict overwritten"},
      {Bug::lower_epoch, "lower epoch accepted"},
      {Bug::progress_not_reset, "progress not reset"},
      {Bug::settable_clock, "settable clock for silence"},
      {Bug::late_restart, "late message restarts"},
      {Bug::bad_option, "bad option restarted"}};
  for (const auto& [bug, name] : all) {
    unsigned seed = 0;
    std::string problem;
    for (; seed < 200 && problem.empty(); ++seed) problem = History(seed, bug).run();
    fmt::print("{:<32} after {:>3} histories: {}\n", name, seed, problem);
    EXPECT_NE(problem, "") << name;
  }
}

}  // namespace
}  // namespace trireme::agent
