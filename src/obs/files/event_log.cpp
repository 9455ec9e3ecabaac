// SPDX-License-Identifier: Apache-2.0
#include "obs/files/event_log.h"

#include <fstream>
#include <optional>
#include <system_error>

#include "base/text/json.h"
#include "base/text/json_depth.h"
#include "obs/line_file.h"

namespace trireme::obs {

EventLog::EventLog(const std::filesystem::path& folder)
    : file_(cut_partial_line(folder / file_name), OutputFile::Mode::append) {}

std::string line_of(const Event& event) {
  return to_json(event).dump(-1, ' ', false, base::Json::error_handler_t::replace) + "\n";
}

void EventLog::add(const Event& event) { file_.add(line_of(event)); }

std::vector<Event> read_events(const std::filesystem::path& folder, int64_t* damaged) {
  std::vector<Event> events;
  std::error_code failed;
  if (!std::filesystem::is_regular_file(folder / EventLog::file_name, failed)) return events;
  std::ifstream in(folder / EventLog::file_name, std::ios::binary);
  for (std::string line; std::getline(in, line);) {
    const bool is_complete = !in.eof();
    const base::Json json = base::parse_shallow_json(line);
    std::optional<Event> event;
    if (json.is_object()) event = event_from(json);
    if (event) {
      events.push_back(std::move(*event));
    } else if (damaged != nullptr && is_complete) {
      ++*damaged;
    }
  }
  return events;
}

}  // namespace trireme::obs
