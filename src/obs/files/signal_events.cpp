// SPDX-License-Identifier: Apache-2.0
#include "obs/files/signal_events.h"

#include <utility>

#include "obs/files/event_log.h"

namespace trireme::obs {
namespace {

// The line of the event without what the handler adds.
std::string begin_of(const Event& labels) {
  base::Json json = to_json({.attempt = labels.attempt,
                             .epoch = labels.epoch,
                             .kind = EventKind::verdict,
                             .severity = Severity::error,
                             .node = labels.node});
  json.erase("time");
  json.erase("text");
  std::string line = json.dump(-1, ' ', false, base::Json::error_handler_t::replace);
  line.back() = ',';
  return line;
}

}  // namespace

SignalEvents::SignalEvents(const std::filesystem::path& folder, const Event& labels)
    : log_(std::filesystem::absolute(folder / EventLog::file_name).string(), begin_of(labels)) {}

bool is_of_signal(const Event& event) {
  return event.kind == EventKind::verdict && event.data.contains("signal");
}

std::optional<Event> signal_event_of(const std::filesystem::path& folder, int rank, double since) {
  std::optional<Event> last;
  for (Event& event : read_events(folder)) {
    const bool is_its = event.rank == rank && event.time >= since;
    if (is_its && is_of_signal(event)) last = std::move(event);
  }
  return last;
}

}  // namespace trireme::obs
