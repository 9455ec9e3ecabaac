// SPDX-License-Identifier: Apache-2.0
#include "comm/failure/flight_recorder.h"

#include <utility>

#include "base/check.h"
#include "base/text/json.h"
#include "comm/failure/flight_record.h"

namespace trireme::comm {
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
  const int64_t place = record_id - first_;
  if (place < 0 || place >= std::ssize(entries_)) return nullptr;
  return &entries_[static_cast<size_t>(place)];
}

void FlightRecorder::begins(Entry& entry, State state) {
  if (entry.state == State::scheduled) ++begun_;
  entry.state = state;
  trim();
}

void FlightRecorder::trim() {
  constexpr size_t max_waiting = 64;  // capacities, of a host that is far ahead
  const auto is_over = [](const Entry& entry) {
    return entry.state == State::completed || entry.state == State::failed;
  };
  while ((begun_ > capacity_ && is_over(entries_.front())) ||
         entries_.size() > max_waiting * capacity_) {
    if (entries_.front().state != State::scheduled) --begun_;
    entries_.pop_front();
    ++first_;
  }
}

int64_t FlightRecorder::scheduled(Entry entry) {
  scheduled_calls_.fetch_add(1, std::memory_order_relaxed);
  const std::scoped_lock lock(mutex_);
  entry.record_id = first_ + std::ssize(entries_);
  entry.state = State::scheduled;
  entry.scheduled_s = now();
  entries_.push_back(std::move(entry));
  trim();
  return first_ + std::ssize(entries_) - 1;
}

void FlightRecorder::started(int64_t record_id) {
  progress_.fetch_add(1, std::memory_order_relaxed);
  const std::scoped_lock lock(mutex_);
  if (Entry* entry = find(record_id)) {
    entry->started_s = now();
    begins(*entry, State::started);
  }
}

void FlightRecorder::completed(int64_t record_id) {
  progress_.fetch_add(1, std::memory_order_relaxed);
  const std::scoped_lock lock(mutex_);
  if (Entry* entry = find(record_id)) {
    entry->completed_s = now();
    begins(*entry, State::completed);
  }
}

void FlightRecorder::failed(int64_t record_id) {
  progress_.fetch_add(1, std::memory_order_relaxed);
  const std::scoped_lock lock(mutex_);
  if (Entry* entry = find(record_id)) begins(*entry, State::failed);
}

std::vector<FlightRecorder::Entry> FlightRecorder::entries() const {
  const std::scoped_lock lock(mutex_);
  return {entries_.begin(), entries_.end()};
}

void FlightRecorder::read(const std::function<void(const std::deque<Entry>&)>& reader) const {
  const std::scoped_lock lock(mutex_);
  reader(entries_);
}

std::optional<FlightRecorder::Entry> FlightRecorder::last_completed() const {
  const std::scoped_lock lock(mutex_);
  for (auto entry = entries_.rbegin(); entry != entries_.rend(); ++entry) {
    if (entry->state == State::completed) return *entry;
  }
  return std::nullopt;
}

base::Json FlightRecorder::to_json() const {
  return flight_record(entries(), world_rank_, made_ns_);
}

void FlightRecorder::write(const std::filesystem::path& folder) const {
  write_flight_record(folder, world_rank_, to_json());
}

}  // namespace trireme::comm
