// SPDX-License-Identifier: Apache-2.0
// Fatal signals in the record of a run: a process that one ends adds a verdict to events.jsonl,
// from the signal's handler (base/system/fatal_signals.h). The same holds for a data file that was
// truncated while it was in use.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "base/system/fatal_signals.h"
#include "obs/files/event.h"

namespace trireme::obs {

// While it exists, fatal signals of this process are events of the run in `folder`. The event has
// the time of the signal, the rank and step of the thread, and of `labels` attempt, epoch and node.
class SignalEvents {
 public:
  SignalEvents(const std::filesystem::path& folder, const Event& labels);

 private:
  base::FatalSignalLog log_;
};

// Was the event written by the handler?
bool is_of_signal(const Event& event);

// Returns the last event of a fatal signal of `rank` since `since`, in seconds since 1970; none if
// there is none.
std::optional<Event> signal_event_of(const std::filesystem::path& folder, int rank, double since);

}  // namespace trireme::obs
