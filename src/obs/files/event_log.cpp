// SPDX-License-Identifier: Apache-2.0
#include "obs/files/event_log.h"

#include <optional>
#include <string_view>

#include "base/system/regular_file.h"
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
  int64_t not_events = 0;
  const base::LinesRead read =
      base::read_lines(folder / EventLog::file_name, {}, [&](std::string_view line) {
        const base::Json json = base::parse_shallow_json(line);
        std::optional<Event> event;
        if (json.is_object()) event = event_from(json);
        if (event) {
          events.push_back(std::move(*event));
        } else {
          ++not_events;
        }
      });
  if (damaged != nullptr) *damaged += not_events + read.too_long;
  return events;
}

}  // namespace trireme::obs
