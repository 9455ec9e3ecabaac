// SPDX-License-Identifier: Apache-2.0
// Policy: what a launcher does about its ranks. A pure function of its state, of an event and of
// the time: no clock, no input, no output, so that tests simulate histories of several launchers.
// The rules are data; docs/stopping.md shows them, and a pair of mode and event without a rule does
// not compile.
#pragma once

#include <cstdint>
#include <string>

namespace trireme::agent {

enum class Mode : uint8_t {
  running,      // ranks run, or have ended well
  collecting,   // a rank elsewhere has ended: the others report where they are
  own_failure,  // a rank of this node has failed: likewise
  concluded,    // there is a verdict: ranks end by themselves
  asked,        // ranks that still run were requested to end
  stopping,     // a stop was requested: ranks finish their step and save
  broken_stop,  // and one of them failed: the others cannot save without it
  killing,      // ranks were killed
  regrouping,   // there is a verdict, and the run goes on: lost ranks are replaced
  deciding,     // all ranks of this node have ended: launchers agree on what follows
  over,
  unchanged  // in rules: the mode stays
};

enum class Event : uint8_t {
  limit_passed,   // the mode has lasted for its limit
  rank_failed,    // a rank of this node ended, neither with exit code 0 nor with 75
  rank_lost,      // a rank of another node ended without leaving
  all_reported,   // every rank that runs has reported since the failure
  rank_stalled,   // a rank is silent, or does not move
  launcher_lost,  // a launcher ended without an outcome
  verdict_given,  // a verdict stands in the store, and all ranks end
  regroup,        // a verdict stands in the store, and the run goes on with another epoch
  ranks_ready,    // every rank of this node has left the epoch, or is a new process
  nodes_ready,    // so it is on every node
  formed,         // the next epoch stands in the store
  hopeless,       // processes that replace others end again and again
  store_gone,
  stop,          // a request to stop
  insist,        // a repeated Ctrl-C
  save,          // a request to save and continue
  all_ended,     // every rank of this node has ended
  all_outcomes,  // the outcome of every node is known, or cannot be any more
  decided,       // the decision on what follows stands in the store
  count,
  // Policy::next() makes events of the rules of these:
  time_passed,  // nothing else, but time: limit_passed, or none
  interrupt     // a request to stop by Ctrl-C: stop, or insist
};

// What a launcher is to do, as a set.
enum class Action : uint32_t {
  none = 0,
  hold_output = 1 << 0,   // so that the verdict is printed first
  judge = 1 << 1,         // determine the verdict and settle it in the store
  blame_node = 1 << 2,    // settle a verdict about the launcher that was lost
  announce = 1 << 3,      // print the verdict that stands
  forward_stop = 1 << 4,  // to all ranks
  forward_save = 1 << 5,
  terminate = 1 << 6,    // SIGTERM to all ranks
  kill = 1 << 7,         // SIGKILL to all ranks
  publish = 1 << 8,      // the outcome of this node
  propose = 1 << 9,      // the decision, which is kept if there is none
  follow = 1 << 10,      // the decision
  end_alone = 1 << 11,   // there will be no decision: end, and start nothing
  replace = 1 << 12,     // ranks that are lost, by new processes or spares
  kill_late = 1 << 13,   // SIGKILL to ranks that have not left the epoch
  tell_ready = 1 << 14,  // that this node is
  form = 1 << 15,        // the next epoch
  enter = 1 << 16        // it
};
constexpr Action operator|(Action a, Action b) {
  return static_cast<Action>(static_cast<uint32_t>(a) | static_cast<uint32_t>(b));
}
constexpr bool has(Action set, Action one) {
  return (static_cast<uint32_t>(set) & static_cast<uint32_t>(one)) != 0;
}

const char* name_of(Mode);
const char* name_of(Event);
std::string text_of(Action);  // "hold_output, judge"; empty for none

// In these modes such an event leads to `next` and `action`.
struct PolicyRule {
  uint32_t modes = 0;  // a set: bit m for mode m
  Event event = Event::count;
  Mode next = Mode::unchanged;
  Action action = Action::none;
};
const PolicyRule& rule_of(Mode, Event);
// Returns the rules that change something, as a table in Markdown.
std::string policy_table();

// In seconds. In `collecting` the launcher of the node that lost a rank, which has its exit status,
// concludes first.
struct PolicyLimits {
  double own_failure = 0.4, collecting = 0.9;
  double concluded = 1, asked = 1;  // flight records are written, on hosts that may be busy
  double stopping = 60;  // a step and a save take as long; comm.deadline_s if that is longer
  double broken_stop = 5;
  double killing = 0.1;   // then it is repeated
  double regrouping = 8;  // ranks end their groups and keep their state
  double deciding = 1200;
  double insist = 3;       // a Ctrl-C sooner after the first is its repetition
  double inattention = 1;  // a launcher that did not run for longer missed beats of its ranks
  double detect = 5;       // elastic.detect_s: for so long it then judges no silence
};

struct PolicyState {
  Mode mode = Mode::running;
  int64_t epoch = 0;       // events of lower ones are ignored
  double since = 0;        // when the mode began
  double stopped_at = 0;   // when a stop was first requested; 0: it was not
  double looked_at = 0;    // the last event of time_passed; 0: none
  double judges_from = 0;  // silence counts from then on

  bool operator==(const PolicyState&) const = default;
};

struct PolicyStep {
  PolicyState state;
  Action action = Action::none;
};

struct PolicyEvent {
  Event event = Event::time_passed;
  int64_t epoch = 0;
};

class Policy {
 public:
  explicit Policy(const PolicyLimits& limits) : limits_(limits) {}
  // `now`: seconds of any steady clock, above 0.
  PolicyStep next(const PolicyState&, const PolicyEvent&, double now) const;

 private:
  double limit_of(Mode) const;  // 0: none

  PolicyLimits limits_;
};

}  // namespace trireme::agent
