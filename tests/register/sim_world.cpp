// SPDX-License-Identifier: Apache-2.0
// The world around the simulated processes: time, network, faults, the register's host, and the
// training that a group does.
#include "sim_world.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace trireme::comm {
namespace {

enum SimFault : int64_t {
  process_ends,
  process_starts,
  power_fails,  // of a node
  register_ends,
  register_starts,
  register_power,  // fails within one of its next operations
  disk_full,
  disk_writable,
  sync_fails,
  process_pauses,
  register_pauses,
  one_way,
  cut_off,
  clock_jumps,
  bad_network,
  calm,
  sim_faults
};

// Faults are numbered fault + sim_faults * node.
int64_t numbered(SimFault fault, int node) { return fault + sim_faults * int64_t{node}; }

}  // namespace

SimWorld::SimWorld(unsigned seed, SimBug bug)
    : random_(seed),
      bug_(bug),
      times_{.window = bug == SimBug::short_window ? 0.2 : SimTimes{}.window},
      slots_(2 + any(2)),
      node_count_(slots_ + any(max_sim_nodes - slots_ + 1)),
      calm_at_(uniform(10, 40)) {
  disk_.ignores_sync = bug == SimBug::epoch_not_synced || bug == SimBug::reply_before_sync;
  messages_.reserve(64);
  start_register();
  for (int node = 0; node < node_count_; ++node) {
    at(uniform(0, 1), {.kind = Kind::fault, .number = numbered(process_starts, node)});
  }
  at(0.5, {.kind = Kind::step});
  plan_faults();
}

std::string SimWorld::run() {
  while (oracle_.problem().empty()) {
    const Item item = queue_.top();
    queue_.pop();
    now_ = item.at;
    if (oracle_.last_commit_at() > calm_at_) return "";
    if (now_ > calm_at_ + 60) oracle_.fail("no group forms after the faults have ended");
    SimMessage message = std::move(messages_[item.message]);
    free_.push_back(item.message);
    deliver(message);
  }
  return oracle_.problem();
}

// ---- time and network

void SimWorld::at(double time, SimMessage message) {
  uint32_t place = 0;
  if (free_.empty()) {
    place = static_cast<uint32_t>(messages_.size());
    messages_.push_back(std::move(message));
  } else {
    place = free_.back();
    free_.pop_back();
    messages_[place] = std::move(message);
  }
  queue_.push({time, order_++, place});
}

void SimWorld::send(SimMessage message) {
  const bool is_local = message.from == message.to || message.from + message.to == register_host;
  if (is_local) return at(now_ + 0.0005, std::move(message));
  const bool is_bad = now_ < bad_network_until_;
  if (is_faulty() && happens(is_bad ? 0.25 : 0.01)) return;
  const double delay = uniform(0.001, 0.05);
  if (is_faulty() && happens(is_bad ? 0.25 : 0.02)) at(now_ + uniform(0, 4), message);
  const bool is_late = is_faulty() && happens(is_bad ? 0.3 : 0.02);
  at(now_ + delay + (is_late ? uniform(0, 4) : 0), std::move(message));
}

void SimWorld::deliver(SimMessage& message) {
  if (message.kind == Kind::step) return finish_step();
  if (message.kind == Kind::fault) return fault(message.number);
  if (message.kind == Kind::flush) return disk_.flush();
  if (message.from != message.to && link(message.from, message.to).blocked_until > now_) return;
  if (message.to == register_host) {
    if (register_paused_until_ > now_) return at(register_paused_until_, std::move(message));
    return serve(message);
  }
  SimProcess* const process = process_of(message.to);
  if (process == nullptr) return;
  const bool is_timer =
      message.kind == Kind::tick || message.kind == Kind::restored || message.kind == Kind::written;
  if (is_timer && message.process != process->number) return;
  if (process->paused_until > now_) {
    // What has arrived is handled before the process looks at the time.
    const double wakes_at = process->paused_until + (message.kind == Kind::tick ? 0.001 : 0);
    return at(wakes_at, std::move(message));
  }
  if (message.kind == Kind::tick) return tick(*process);
  if (message.kind == Kind::written) return commit_step(*process, message);
  if (message.kind == Kind::restored) return restored(*process, message.epoch);
  receive(*process, message);
}

// ---- faults

void SimWorld::plan_faults() {
  constexpr std::array kinds = {process_ends,   process_ends,   power_fails,     register_ends,
                                register_power, register_power, disk_full,       sync_fails,
                                process_pauses, process_pauses, register_pauses, one_way,
                                one_way,        cut_off,        clock_jumps,     bad_network};
  for (int left = 3 + any(14); left > 0; --left) {
    const SimFault kind = kinds[random_() % kinds.size()];
    at(uniform(0, calm_at_), {.kind = Kind::fault, .number = numbered(kind, any(node_count_))});
  }
  at(calm_at_, {.kind = Kind::fault, .number = calm});
}

void SimWorld::fault(int64_t number) {
  const int node = static_cast<int>(number / sim_faults);
  switch (static_cast<SimFault>(number % sim_faults)) {
    case process_ends:
      end_process(node);
      at(now_ + uniform(0.2, 4), {.kind = Kind::fault, .number = numbered(process_starts, node)});
      break;
    case process_starts:
      if (process_of(node) == nullptr) start_process(node);
      break;
    case power_fails:
      if (node == 0) lose_power_of_register();
      fault(numbered(process_ends, node));
      break;
    case register_ends:
      register_.reset();
      at(now_ + uniform(0.1, 12), {.kind = Kind::fault, .number = register_starts});
      break;
    case register_starts:
      if (!register_) start_register();
      break;
    case register_power:
      disk_.operations_left = any(6);
      break;
    case disk_full:
      disk_.is_full = true;
      at(now_ + uniform(1, 6), {.kind = Kind::fault, .number = disk_writable});
      break;
    case disk_writable:
      disk_.is_full = disk_.fails_to_sync = false;
      break;
    case sync_fails:
      disk_.fails_to_sync = true;
      at(now_ + uniform(0.5, 6), {.kind = Kind::fault, .number = disk_writable});
      break;
    case process_pauses:
      pause(node, uniform(0.5, 12));
      break;
    case register_pauses:
      pause(register_host, uniform(0.5, 12));
      break;
    case one_way:
      if (happens(0.5)) {
        block(node, any(node_count_), uniform(0.5, 12));
      } else {
        block(any(node_count_), node, uniform(0.5, 12));
      }
      break;
    case cut_off:
      for (int other = 0; other < node_count_; ++other) {
        const double seconds = uniform(4, 12);
        block(node, other, seconds);
        block(other, node, seconds);
      }
      break;
    case clock_jumps:
      nodes_[static_cast<size_t>(node)].wall_offset += uniform(-100, 100);
      break;
    case bad_network:
      bad_network_until_ = now_ + uniform(1, 6);
      break;
    default:
      calm_down();
  }
}

void SimWorld::calm_down() {
  for (Link& one : links_) one.blocked_until = 0;
  disk_.is_full = disk_.fails_to_sync = false;
  disk_.operations_left = -1;
  bad_network_until_ = 0;
  register_paused_until_ = std::min(register_paused_until_, now_ + 1);
  if (!register_) start_register();
  for (int node = 0; node < node_count_; ++node) {
    SimProcess* const process = process_of(node);
    if (process == nullptr) {
      start_process(node);
    } else {
      process->paused_until = std::min(process->paused_until, now_ + 1);
    }
  }
}

void SimWorld::pause(int address, double seconds) {
  if (address == register_host) {
    register_paused_until_ = std::max(register_paused_until_, now_ + seconds);
  } else if (SimProcess* const process = process_of(address)) {
    process->paused_until = std::max(process->paused_until, now_ + seconds);
  }
}

// From a node to another one; node 0 also has the register.
void SimWorld::block(int from, int to, double seconds) {
  if (from == to) return;
  link(from, to).blocked_until = now_ + seconds;
  if (from == 0) link(register_host, to).blocked_until = now_ + seconds;
  if (to == 0) link(from, register_host).blocked_until = now_ + seconds;
}

void SimWorld::start_process(int node) {
  SimProcess& process = nodes_[static_cast<size_t>(node)].process.emplace();
  process.node = node;
  process.number = processes_++;
  const int number = bug_ == SimBug::process_number ? any(2) : process.number;
  process.incarnation = fmt::format("{}.{}", node, number);
  const double wall =
      bug_ == SimBug::settable_clock ? nodes_[static_cast<size_t>(node)].wall_offset : 0;
  process.isolation = Isolation(times_.isolate, now_ + wall);
  process.register_at = process.coordinator_at = process.beat_at = now_;
  oracle_.started(process.number);
  tick(process);
}

void SimWorld::end_process(int node) {
  const SimProcess* const process = process_of(node);
  if (process == nullptr) return;
  oracle_.ended(process->number);
  nodes_[static_cast<size_t>(node)].process.reset();
}

void SimWorld::lose_power_of_register() {
  register_.reset();
  disk_.lose_power(random_);
  at(now_ + uniform(0.3, 6), {.kind = Kind::fault, .number = register_starts});
}

void SimWorld::start_register() {
  constexpr size_t long_bytes = 2500;
  try {
    register_ =
        std::make_unique<JournalRegister>(std::make_unique<SimJournalDisk>(disk_), long_bytes);
    oracle_.reopened(register_->read());
  } catch (const SimPowerLost& error) {
    lose_power_of_register();
  } catch (const base::IoError& error) {
    const std::string why = error.what();
    if (why.find("damaged") != std::string::npos) return oracle_.fail(why);
    at(now_ + 0.5, {.kind = Kind::fault, .number = register_starts});
  }
}

// ---- the register

void SimWorld::serve(const SimMessage& call) {
  if (!register_) return;
  try {
    send(answer_to(call));
  } catch (const SimPowerLost& error) {
    if (call.proposal) oracle_.left_open(*call.proposal);
    lose_power_of_register();
  }
}

SimMessage SimWorld::answer_to(const SimMessage& call) {
  SimMessage answer{.kind = Kind::register_answer,
                    .from = register_host,
                    .to = call.from,
                    .process = call.process,
                    .number = call.number,
                    .is_swap = call.is_swap};
  try {
    RegisterState state;
    if (call.is_swap) {
      const bool overwrites = bug_ == SimBug::commit_without_swap && call.proposal->is_commit;
      const int64_t expected = overwrites ? register_->read().revision : call.revision;
      std::string request_id = call.proposal->request_id;
      if (bug_ == SimBug::request_id_ignored) {
        request_id += fmt::format("#{}", ++request_tries_);
      }
      const Swapped swapped = register_->swap(expected, *call.text, request_id);
      answer.is_done = swapped.is_done;
      state = swapped.state;
      if (swapped.is_done) oracle_.did(state.revision, *call.proposal);
    } else {
      state = register_->read();
    }
    answer.revision = state.revision;
    answer.text = std::make_shared<const std::string>(std::move(state.value));
    if (disk_.ignores_sync && answer.is_done) {
      at(now_ + (bug_ == SimBug::reply_before_sync ? 0.3 : 5), {.kind = Kind::flush});
    }
  } catch (const base::IoError& error) {
    answer.is_refused = true;
    if (has_stopped()) {
      if (call.proposal) oracle_.left_open(*call.proposal);
      register_.reset();
      at(now_ + 0.5, {.kind = Kind::fault, .number = register_starts});
    }
  }
  return answer;
}

// Whether the register does not know what is durable, so that its process must start again.
bool SimWorld::has_stopped() {
  try {
    (void)register_->read();
    return false;
  } catch (const base::IoError& error) {
    return true;  // the answer: its message is for users
  }
}

// ---- training

bool SimWorld::trains(const SimProcess& process) const {
  return process.phase == Phase::active && process.paused_until <= now_;
}

void SimWorld::gets(SimProcess& process, const SimHolding& holding) {
  // A process keeps the newest two steps of each slot.
  int of_slot = 0;
  for (size_t i = process.held.size(); i-- > 0;) {
    if (process.held[i] == holding) return;
    if (process.held[i].slot == holding.slot && ++of_slot == 2) {
      process.held.erase(process.held.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  process.held.push_back(holding);
  oracle_.holds(process.number, holding);
}

bool SimWorld::has_holder(const SimHolding& holding) const {
  return std::any_of(nodes_.begin(), nodes_.end(), [&](const Node& node) {
    return node.process && std::find(node.process->held.begin(), node.process->held.end(),
                                     holding) != node.process->held.end();
  });
}

// All members of the newest group take part in the last collective of a step. Then some of them may
// be lost before they have finished it, and copies may be of the step before.
void SimWorld::finish_step() {
  at(now_ + 0.5, {.kind = Kind::step});
  const int64_t epoch = oracle_.epochs() - 1;
  if (epoch < 0 || !oracle_.is_formed(epoch)) return;
  const std::vector<int>& members = oracle_.processes_of(epoch);
  std::vector<SimProcess*> group(members.size(), nullptr);
  int64_t step = 0;
  for (Node& node : nodes_) {
    if (!node.process || node.process->epoch != epoch || !trains(*node.process)) continue;
    SimProcess& process = *node.process;
    if (process.slot < 0 || members[static_cast<size_t>(process.slot)] != process.number) continue;
    group[static_cast<size_t>(process.slot)] = &process;
    step = std::max(step, process.step + 1);
  }
  for (SimProcess* const process : group) {
    if (process == nullptr) return;
  }
  for (size_t slot = 0; slot < group.size(); ++slot) {
    SimProcess& process = *group[slot];
    if (process.step + 1 < step) step = process.step + 1;  // one is behind: it catches up first
  }
  const bool is_whole = !happens(0.15);
  for (size_t slot = 0; slot < group.size(); ++slot) {
    SimProcess& process = *group[slot];
    if (process.step >= step || (!is_whole && happens(0.5))) continue;
    process.step = step;
    gets(process, {static_cast<int>(slot), step});
    const size_t next = (slot + 1) % group.size();
    if (happens(0.8)) gets(*group[next], {static_cast<int>(slot), step});
  }
}

}  // namespace trireme::comm
