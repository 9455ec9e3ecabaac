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
  const auto place = static_cast<size_t>(record_id) % capacity_;
  if (place >= ring_.size() || ring_[place].record_id != record_id) return nullptr;
  return &ring_[place];
}

int64_t FlightRecorder::scheduled(Entry entry) {
  changes_.fetch_add(1, std::memory_order_relaxed);
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
  changes_.fetch_add(1, std::memory_order_relaxed);
  const std::scoped_lock lock(mutex_);
  if (Entry* entry = find(record_id)) {
    entry->state = State::started;
    entry->started_s = now();
  }
}

void FlightRecorder::completed(int64_t record_id) {
  changes_.fetch_add(1, std::memory_order_relaxed);
  const std::scoped_lock lock(mutex_);
  if (Entry* entry = find(record_id)) {
    entry->state = State::completed;
    entry->completed_s = now();
  }
}

void FlightRecorder::failed(int64_t record_id) {
  changes_.fetch_add(1, std::memory_order_relaxed);
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

base::Json FlightRecorder::to_json() const {
  return flight_record(entries(), world_rank_, made_ns_);
}

void FlightRecorder::write(const std::filesystem::path& folder) const {
  write_flight_record(folder, world_rank_, to_json());
}

}  // namespace trireme::comm
