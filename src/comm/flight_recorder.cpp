// SPDX-License-Identifier: Apache-2.0
#include "comm/flight_recorder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/durable_file.h"
#include "base/error.h"
#include "base/json.h"

namespace trireme::comm {
namespace {

using Entry = FlightRecorder::Entry;
using State = FlightRecorder::State;
using base::Json;

const char* name_of(State state) {
  switch (state) {
    case State::scheduled:
      return "scheduled";
    case State::started:
      return "started";
    case State::completed:
      return "completed";
    case State::failed:
      return "failed";
  }
  return "unknown";
}

bool is_message(const Entry& entry) { return entry.op == "send" || entry.op == "recv"; }

std::string full_name(const Entry& entry) {
  return fmt::format("{}[{}]", entry.group, fmt::join(entry.ranks, ","));
}

// The library's tools expect its own prefix, and the two ranks of a message by their place in the
// group.
std::string profiling_name(const Entry& entry, int world_rank) {
  if (!is_message(entry)) return "nccl:" + entry.op;
  const auto place = [&](int rank) {
    return std::find(entry.ranks.begin(), entry.ranks.end(), rank) - entry.ranks.begin();
  };
  return fmt::format("nccl:{} {}{}{}", entry.op, place(world_rank),
                     entry.op == "send" ? "->" : "<-", place(entry.peer));
}

// What is known of a group from the entries in the ring.
struct Group {
  int64_t id = 0;
  int64_t enqueued = -1, started = -1, completed = -1;
};

void note(Group& group, const Entry& entry) {
  if (is_message(entry)) return;
  group.enqueued = std::max(group.enqueued, entry.sequence);
  if (entry.state == State::scheduled) return;
  group.started = std::max(group.started, entry.sequence);
  if (entry.state == State::completed) group.completed = std::max(group.completed, entry.sequence);
}

}  // namespace

FlightRecorder::FlightRecorder(int world_rank, size_t capacity)
    : made_(std::chrono::steady_clock::now()),
      made_ns_(std::chrono::duration_cast<std::chrono::nanoseconds>(
                   std::chrono::system_clock::now().time_since_epoch())
                   .count()),
      world_rank_(world_rank),
      capacity_(capacity) {
  TRIREME_CHECK(capacity > 0, "a flight recorder of no entries");
}

double FlightRecorder::now() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - made_).count();
}

FlightRecorder::Entry* FlightRecorder::find(int64_t record_id) {
  const auto place = static_cast<size_t>(record_id) % capacity_;
  if (place >= ring_.size() || ring_[place].record_id != record_id) return nullptr;
  return &ring_[place];
}

int64_t FlightRecorder::scheduled(Entry entry) {
  const std::scoped_lock lock(mutex_);
  entry.record_id = next_++;
  entry.state = State::scheduled;
  entry.scheduled_s = now();
  const auto place = static_cast<size_t>(entry.record_id) % capacity_;
  if (place == ring_.size()) {
    ring_.push_back(std::move(entry));
  } else {
    ring_[place] = std::move(entry);
  }
  return next_ - 1;
}

void FlightRecorder::started(int64_t record_id) {
  const std::scoped_lock lock(mutex_);
  if (Entry* entry = find(record_id)) {
    entry->state = State::started;
    entry->started_s = now();
  }
}

void FlightRecorder::completed(int64_t record_id) {
  const std::scoped_lock lock(mutex_);
  if (Entry* entry = find(record_id)) {
    entry->state = State::completed;
    entry->completed_s = now();
  }
}

void FlightRecorder::failed(int64_t record_id) {
  const std::scoped_lock lock(mutex_);
  if (Entry* entry = find(record_id)) entry->state = State::failed;
}

std::vector<FlightRecorder::Entry> FlightRecorder::entries() const {
  const std::scoped_lock lock(mutex_);
  std::vector<Entry> found;
  found.reserve(ring_.size());
  const int64_t first = next_ - static_cast<int64_t>(ring_.size());
  for (int64_t id = first; id < next_; ++id) {
    found.push_back(ring_[static_cast<size_t>(id) % capacity_]);
  }
  return found;
}

std::optional<FlightRecorder::Entry> FlightRecorder::last_completed() const {
  const std::scoped_lock lock(mutex_);
  const int64_t first = next_ - static_cast<int64_t>(ring_.size());
  for (int64_t id = next_ - 1; id >= first; --id) {
    const Entry& entry = ring_[static_cast<size_t>(id) % capacity_];
    if (entry.state == State::completed) return entry;
  }
  return std::nullopt;
}

Json FlightRecorder::to_json() const {
  const auto all = entries();
  std::map<std::string, Group> groups;
  for (const Entry& entry : all) {
    const auto next_id = static_cast<int64_t>(groups.size());
    note(groups.try_emplace(full_name(entry), Group{.id = next_id}).first->second, entry);
  }
  const auto at_ns = [this](double seconds) {
    return made_ns_ + static_cast<int64_t>(seconds * 1e9);
  };
  Json config = Json::object(), status = Json::object(), list = Json::array();
  for (const Entry& entry : all) {
    const std::string name = full_name(entry);
    const Group& group = groups.at(name);
    config[name] = {{"name", name},
                    {"desc", entry.group},
                    {"ranks", fmt::format("[{}]", fmt::join(entry.ranks, ", "))}};
    status[std::to_string(group.id)] = {{"last_enqueued_collective", group.enqueued},
                                        {"last_started_collective", group.started},
                                        {"last_completed_collective", group.completed}};
    const bool message = is_message(entry), completed = entry.state == State::completed;
    Json out = {{"record_id", entry.record_id},
                {"pg_id", group.id},
                {"process_group", {name, entry.group}},
                {"collective_seq_id", message ? 0 : entry.sequence},
                {"p2p_seq_id", message ? entry.sequence : 0},
                {"op_id", entry.record_id},
                {"profiling_name", profiling_name(entry, world_rank_)},
                {"time_created_ns", at_ns(entry.scheduled_s)}};
    if (completed) out["duration_ms"] = 1e3 * (entry.completed_s - entry.started_s);
    out["input_sizes"] = Json::array({Json::array({entry.elements})});
    out["input_dtypes"] = Json::array({entry.dtype});
    out["output_sizes"] = Json::array({Json::array({entry.out_elements})});
    out["output_dtypes"] = Json::array({entry.dtype});
    out["state"] = name_of(entry.state);
    out["time_discovered_started_ns"] = entry.started_s > 0 ? at_ns(entry.started_s) : 0;
    out["time_discovered_completed_ns"] = completed ? at_ns(entry.completed_s) : 0;
    out["retired"] = completed;
    out["timeout_ms"] = static_cast<int64_t>(1e3 * entry.deadline_s);
    out["is_p2p"] = message;
    list.push_back(std::move(out));
  }
  return {{"version", "2.4"},
          {"rank", world_rank_},
          {"pg_config", std::move(config)},
          {"pg_status", std::move(status)},
          {"entries", std::move(list)}};
}

void FlightRecorder::write(const std::filesystem::path& path) const {
  try {
    base::write_synced(path, to_json().dump(1));
  } catch (const std::system_error& error) {
    throw base::IoError(fmt::format("the flight recorder of rank {} cannot be written to {}: {}",
                                    world_rank_, path.string(), error.what()));
  }
}

}  // namespace trireme::comm
