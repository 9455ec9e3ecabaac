// SPDX-License-Identifier: Apache-2.0
#include "train/record/earlier_attempts.h"

#include <sys/stat.h>

#include <algorithm>

#include "base/text/json.h"
#include "obs/files/event_log.h"
#include "obs/run_owner.h"

namespace trireme::train {
namespace {

using obs::Phase;

double number_at(const base::Json& json, const char* name, double otherwise) {
  const auto found = json.find(name);
  return found != json.end() && found->is_number() ? found->get<double>() : otherwise;
}

EarlierAttempts::Verdict verdict_of(const obs::Event& event) {
  EarlierAttempts::Verdict verdict;
  verdict.time = event.time;
  verdict.failed_at = number_at(event.data, "failed_at", event.time);
  verdict.ended_at = number_at(event.data, "ended_at", event.time);
  const auto restarts = event.data.find("restarts");
  verdict.restarts = restarts != event.data.end() && *restarts == true;
  return verdict;
}

// Steps since the last record are lost with the process that computed them.
Phase lost_phase(Phase current) {
  const bool is_step = current == Phase::useful || current == Phase::warmup ||
                       current == Phase::data_wait || current == Phase::straggler ||
                       current == Phase::skipped;
  return is_step ? Phase::repeated : current;
}

obs::PhaseRecord record_of(int64_t attempt, double begin, double end, Phase phase) {
  obs::PhaseRecord record;
  record.attempt = attempt;
  record.begin = begin;
  record.end = end;
  record.at(phase) = end - begin;
  record.current = phase;
  return record;
}

}  // namespace

double last_lease(const std::filesystem::path& folder) {
  struct stat about {};
  if (::stat((folder / obs::RunOwner::record_name).c_str(), &about) != 0) return 0;
  return static_cast<double>(about.st_mtim.tv_sec) +
         1e-9 * static_cast<double>(about.st_mtim.tv_nsec);
}

EarlierAttempts read_earlier_attempts(const std::filesystem::path& folder, double alive_until) {
  EarlierAttempts earlier;
  earlier.alive_until = alive_until;
  (void)obs::read_phases(folder, [&earlier](const obs::PhaseRecord& record) {
    earlier.ledger.add(record);
    earlier.attempt = record.attempt;
    earlier.end = record.end;
    earlier.current = record.current;
    earlier.last_step = std::max(earlier.last_step, record.last_step);
  });
  for (const obs::Event& event : obs::read_events(folder)) {
    earlier.ledger.add(event);
    if (event.attempt != earlier.attempt) continue;
    if (event.kind == obs::EventKind::end) {
      const auto reason = event.data.find("reason");
      const bool has_reason = reason != event.data.end() && reason->is_string();
      earlier.end_reason = has_reason ? reason->get<std::string>() : "failed";
    }
    if (event.kind == obs::EventKind::verdict) earlier.verdict = verdict_of(event);
  }
  return earlier;
}

std::vector<obs::PhaseRecord> records_between(const EarlierAttempts& earlier, int64_t attempt,
                                              double begin) {
  std::vector<obs::PhaseRecord> records;
  double at = earlier.end;
  if (earlier.attempt == 0 || at >= begin) return records;
  const auto add = [&](double until, Phase phase) {
    const double end = std::clamp(until, at, begin);
    if (end > at) records.push_back(record_of(attempt, at, end, phase));
    at = end;
  };
  if (earlier.end_reason == "done" || earlier.end_reason == "stopped") {
    add(begin, Phase::planned_stop);
    return records;
  }
  const bool was_killed = earlier.end_reason.empty();
  if (was_killed) {
    // A process that hangs may renew its lease after the launcher has found the failure.
    const double alive = earlier.verdict ? std::min(earlier.alive_until, earlier.verdict->failed_at)
                                         : earlier.alive_until;
    add(alive, lost_phase(earlier.current));
    for (obs::PhaseRecord& record : records) {
      record.attempt = earlier.attempt;
      record.is_of_next = true;
    }
  }
  if (earlier.verdict) {
    add(earlier.verdict->time, Phase::detect);
    add(earlier.verdict->ended_at, Phase::abort);
    add(begin, earlier.verdict->restarts ? Phase::reform : Phase::queue);
  } else {
    add(begin, Phase::queue);
  }
  return records;
}

}  // namespace trireme::train
