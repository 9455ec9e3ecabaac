// SPDX-License-Identifier: Apache-2.0
// A simulated process: it takes part in epochs, and proposes the next one when the group that it
// knows of is not whole. The process of slot 0 is the coordinator of an epoch.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "sim_world.h"

namespace trireme::comm {

SimMessage SimWorld::from(const SimProcess& process, Kind kind) const {
  return {.kind = kind,
          .from = process.node,
          .process = process.number,
          .epoch = process.epoch,
          .incarnation = process.incarnation,
          .slot = process.slot};
}

void SimWorld::tick(SimProcess& process) {
  SimMessage again = from(process, Kind::tick);
  again.to = process.node;
  at(now_ + times_.tick, std::move(again));
  look_at_isolation(process);
  if (process.gathers_until > 0 && now_ >= process.gathers_until) {
    propose(process);
  } else {
    look_at_group(process);
  }
  look_for_commit(process);
  look_at_register(process);
}

void SimWorld::look_at_isolation(SimProcess& process) {
  if (!process.is_in_epoch()) return;
  const double without_register = now_ - process.register_at;
  const double without_coordinator = now_ - process.coordinator_at;
  if (process.isolation.must_stop(clock_of(process))) {
    oracle_.isolated(without_register, without_coordinator, times_.isolate);
    process.phase = Phase::isolated;
  } else {
    oracle_.goes_on(without_register, without_coordinator, times_.isolate);
  }
}

double SimWorld::clock_of(const SimProcess& process) const {
  const bool is_settable = bug_ == SimBug::settable_clock;
  return now_ + (is_settable ? nodes_[static_cast<size_t>(process.node)].wall_offset : 0);
}

void SimWorld::hear_coordinator(SimProcess& process) {
  process.coordinator_at = now_;
  process.isolation.heard_coordinator(clock_of(process));
}

// ---- the group

// How long a process waits for a coordinator before it proposes another epoch: those with slots
// first.
double SimWorld::patience(const SimProcess& process) const {
  if (!process.record) return 0.4 * (1 + process.node);
  const double order = process.is_in_epoch() ? process.slot : slots_ + process.node;
  return times_.detect * (1.5 + 0.5 * order);
}

void SimWorld::look_at_group(SimProcess& process) {
  if (process.gathers_until > 0) return;
  if (process.is_in_epoch() && process.slot == 0) {
    process.beat_at = now_;
    for (int node = 0; node < node_count_; ++node) {
      if (node == process.node) continue;
      SimMessage beat = from(process, Kind::beat);
      beat.to = node;
      beat.is_joined = process.phase == Phase::active;
      send(std::move(beat));
    }
    const double since = now_ - process.entered_at;
    bool is_whole = process.phase == Phase::active || since < times_.window;
    for (int slot = 1; slot < slots_; ++slot) {
      const double seen = std::max(process.member_at[static_cast<size_t>(slot)],
                                   process.entered_at + times_.detect);
      is_whole = is_whole && now_ - seen < times_.detect;
    }
    if (is_whole) return;
    if (process.phase != Phase::active && since >= times_.window) leave(process);
    gather(process);
    return;
  }
  if (process.is_in_epoch()) {
    const auto& members = process.record->members;
    SimMessage here = from(process, Kind::member);
    here.to = std::stoi(members.front().node);
    here.is_joined = process.phase != Phase::restoring;
    send(std::move(here));
  }
  if (now_ - process.beat_at > patience(process)) gather(process);
}

void SimWorld::receive_member(SimProcess& process, const SimMessage& message) {
  if (bug_ != SimBug::epoch_not_compared && message.epoch < process.epoch) {
    SimMessage answer = from(process, Kind::fenced);
    answer.to = message.from;
    return send(std::move(answer));
  }
  if (!process.is_coordinator() || !process.is_in_epoch()) return;
  if (bug_ != SimBug::epoch_not_compared) {
    if (message.epoch != process.epoch) return;
    const RunMember& member = process.record->members[static_cast<size_t>(message.slot)];
    if (member.incarnation != message.incarnation) return;
  }
  process.member_at[static_cast<size_t>(message.slot)] = now_;
  hear_coordinator(process);  // which it is itself: its members stand for it
  if (!message.is_joined || process.phase == Phase::active) return;
  process.joined |= 1U << static_cast<unsigned>(message.slot);
  form(process);
}

void SimWorld::form(SimProcess& process) {
  const bool is_ready = process.phase == Phase::joined;
  if (!is_ready || process.joined != (1U << static_cast<unsigned>(slots_)) - 1) return;
  oracle_.formed(process.number, process.epoch);
  activate(process);
}

void SimWorld::receive_beat(SimProcess& process, const SimMessage& message) {
  if (bug_ != SimBug::epoch_not_compared && message.epoch < process.epoch) {
    SimMessage answer = from(process, Kind::fenced);
    answer.to = message.from;
    return send(std::move(answer));
  }
  process.beat_at = now_;
  hear_coordinator(process);
  const int64_t known = process.record ? process.record->epoch : -1;
  if (message.epoch > known && !process.call) return call_register(process, std::nullopt);
  const bool is_own = bug_ == SimBug::epoch_not_compared || message.epoch == process.epoch;
  if (is_own && message.is_joined && process.phase == Phase::joined) activate(process);
}

void SimWorld::activate(SimProcess& process) {
  process.phase = Phase::active;
  process.gathers_until = 0;
  process.step = process.record->resume.step;
  oracle_.active(process.number, process.epoch);
}

void SimWorld::leave(SimProcess& process) {
  if (process.is_in_epoch()) process.phase = Phase::waiting;
}

// ---- messages

void SimWorld::receive(SimProcess& process, const SimMessage& message) {
  switch (message.kind) {
    case Kind::register_answer:
      return receive_answer(process, message);
    case Kind::member:
      return receive_member(process, message);
    case Kind::beat:
      return receive_beat(process, message);
    case Kind::ask_report:
      return report_to(process, message);
    case Kind::report:
      if (process.gathers_until > 0 && message.number == process.question) {
        std::erase_if(process.reports,
                      [&](const SimReport& one) { return one.node == message.from; });
        process.reports.push_back(
            {message.process, message.from, message.incarnation, message.is_joined, message.held});
      }
      return;
    case Kind::fenced:
      if (message.epoch <= process.epoch) return;
      leave(process);
      if (!process.call) call_register(process, std::nullopt);
      return;
    default:
      oracle_.fail("a message that no process receives");
  }
}

void SimWorld::report_to(SimProcess& process, const SimMessage& question) {
  SimMessage answer = from(process, Kind::report);
  answer.to = question.from;
  answer.number = question.number;
  answer.is_joined = process.phase == Phase::active && process.slot == 0;
  answer.held = process.held;
  send(std::move(answer));
}

// ---- the register

void SimWorld::look_at_register(SimProcess& process) {
  if (process.call) {
    if (now_ - process.call->sent_at > times_.reply) send_call(process);
    return;
  }
  const double interval = process.phase == Phase::active ? times_.isolate / 6 : 2 * times_.tick;
  if (now_ - process.read_at >= interval) call_register(process, std::nullopt);
}

void SimWorld::call_register(SimProcess& process, std::optional<SimProposal> proposal) {
  SimCall& call = process.call.emplace();
  call.number = ++process.calls;
  call.is_swap = proposal.has_value();
  call.expected = process.revision;
  call.min_revision = oracle_.known_revision();
  if (proposal) call.proposal = std::move(*proposal);
  call.proposal.request_id = fmt::format("{}/{}", process.number, call.number);
  process.read_at = now_;
  send_call(process);
}

void SimWorld::send_call(SimProcess& process) {
  SimCall& call = *process.call;
  call.sent_at = now_;
  SimMessage message = from(process, Kind::register_call);
  message.to = register_host;
  message.number = call.number;
  message.is_swap = call.is_swap;
  if (call.is_swap) {
    message.revision = call.expected;
    message.text = call.proposal.text;
    message.proposal = call.proposal;
  }
  send(std::move(message));
}

void SimWorld::receive_answer(SimProcess& process, const SimMessage& message) {
  if (message.process != process.number) return;
  process.register_at = now_;
  process.isolation.heard_register(clock_of(process));
  if (!process.call || process.call->number != message.number || message.is_refused) return;
  const SimCall call = std::move(*process.call);
  process.call.reset();
  oracle_.replied(message.revision, *message.text, call.min_revision);
  if (call.is_swap && !message.is_done) oracle_.conflicted(call.proposal.request_id);
  if (message.revision == 0 || message.revision < process.revision) return;
  learn(process, message.revision, oracle_.parsed(message.text));
}

void SimWorld::learn(SimProcess& process, int64_t revision, SimRecord record) {
  const int64_t known = process.record ? process.record->epoch : -1;
  process.revision = revision;
  process.record = std::move(record);
  if (process.phase == Phase::isolated) process.phase = Phase::waiting;
  if (process.record->epoch <= known) return;
  process.gathers_until = 0;
  leave(process);
  const int slot = process.record->slot_of(process.incarnation);
  process.beat_at = now_;
  if (slot >= 0) enter(process, slot);
}

}  // namespace trireme::comm
