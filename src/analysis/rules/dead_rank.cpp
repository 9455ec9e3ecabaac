// SPDX-License-Identifier: Apache-2.0
// A rank that ended a run: by the verdict that the run wrote, otherwise by its flight records.
#include <fmt/format.h>

#include "analysis/rules/rule.h"
#include "base/system/regular_file.h"
#include "base/text/json_depth.h"
#include "obs/files/signal_events.h"

namespace trireme::analysis {
namespace {

constexpr int64_t max_flight_bytes = int64_t{64} << 20;

// The verdict in the flight records of the ranks that survived; none if there are none.
struct FlightVerdict {
  std::string text, file;
};
std::optional<FlightVerdict> flight_verdict(const std::filesystem::path& folder) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "flight", error)) {
    if (entry.path().extension() != ".json") continue;
    const base::Result<std::string> text = base::read_regular_file(entry.path(), max_flight_bytes);
    const base::Json record = text ? base::parse_shallow_json(text.value()) : base::Json();
    if (!record.is_object()) continue;
    for (const char* key : {"verdict", "reason"}) {
      if (!record.contains(key) || !record.at(key).is_string()) continue;
      return FlightVerdict{record.at(key).get<std::string>(),
                           "flight/" + entry.path().filename().string()};
    }
  }
  return {};
}

// Returns the rank that a text like "rank 3 was killed by signal 9" begins with; -1 if none.
int rank_in(const std::string& text) {
  const size_t at = text.find("rank ");
  if (at == std::string::npos) return -1;
  const size_t digits = text.find_first_not_of("0123456789", at + 5);
  const std::string number = text.substr(at + 5, digits - (at + 5));
  return number.empty() || number.size() > 8 ? -1 : std::stoi(number);
}

Finding finding_of(int rank, int64_t step, const std::string& text) {
  Finding finding{.cause = Cause::dead_rank, .rank = rank, .first_step = step};
  finding.title = rank >= 0 ? fmt::format("rank {} failed at step {}: {}", rank, step, text)
                            : fmt::format("the run ended at step {}: {}", step, text);
  finding.advice =
      "read the log of that rank and of its node's kernel (dmesg: out of memory, XID), then "
      "continue with trireme train --resume, without that node if it fails again";
  return finding;
}

// Did the last attempt end because a data file was truncated while it was in use?
bool was_lost_file(const RunRecord& run) {
  for (auto event = run.events.rbegin(); event != run.events.rend(); ++event) {
    if (event->kind == obs::EventKind::start) break;
    if (obs::is_of_signal(*event) && event->data.contains("exit_code")) return true;
  }
  return false;
}
constexpr const char* lost_file_advice =
    "put the file back as it was when the run started, then continue with trireme train --resume "
    "auto";

}  // namespace

Findings find_dead_rank(const Facts& facts) {
  const RunRecord& run = facts.run;
  if (run.state != RunState::failed && run.state != RunState::died) return {};
  for (auto event = run.events.rbegin(); event != run.events.rend(); ++event) {
    if (event->kind == obs::EventKind::start) break;
    if (event->kind != obs::EventKind::verdict) continue;
    int rank = event->rank;
    if (rank < 0 && event->data.contains("rank") && event->data["rank"].is_number_integer()) {
      rank = event->data["rank"].get<int>();
    }
    if (rank < 0) rank = rank_in(event->text);
    Finding finding = finding_of(rank, event->step >= 0 ? event->step : run.last_step, event->text);
    if (was_lost_file(run)) finding.advice = lost_file_advice;
    finding.evidence.push_back(fmt::format("events.jsonl has the verdict: {}", event->text));
    for (const std::string& file : event->evidence) finding.evidence.push_back(file);
    return {std::move(finding)};
  }
  if (const auto verdict = flight_verdict(run.folder)) {
    Finding finding = finding_of(rank_in(verdict->text), run.last_step, verdict->text);
    finding.evidence.push_back(fmt::format("{}: {}", verdict->file, verdict->text));
    return {std::move(finding)};
  }
  if (run.state == RunState::died) {
    const size_t ranks = run.ranks_shape.rows.size();
    Finding finding =
        finding_of(ranks == 1 ? 0 : -1, run.last_step,
                   "the process ended without reporting an error, as after signal 9 or a crash");
    finding.evidence = {"owner.json is not released, and its process or its lease is gone"};
    return {std::move(finding)};
  }
  return {};
}

}  // namespace trireme::analysis
