// SPDX-License-Identifier: Apache-2.0
// EventLog: writes events.jsonl of a run. The owner of the run's folder writes to it, and after the
// end of its ranks the launcher. Every event is one write to the end of the file; one that cannot
// be written is dropped with a warning (report_file.h).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "obs/files/event.h"
#include "obs/report_file.h"

namespace trireme::obs {

class EventLog {
 public:
  static constexpr const char* file_name = "events.jsonl";
  // Appends to an existing file, after removing an incomplete last line of a killed process. Throws
  // IoError if it cannot be opened.
  explicit EventLog(const std::filesystem::path& folder);
  void add(const Event& event);

 private:
  ReportFile file_;
};

std::string line_of(const Event&);  // ends with a newline

// Returns the events of a run's folder in the order of the file; none if there is no file. Lines
// that are no events are left out, and counted in `damaged` if it is not null.
std::vector<Event> read_events(const std::filesystem::path& folder, int64_t* damaged = nullptr);

}  // namespace trireme::obs
