// SPDX-License-Identifier: Apache-2.0
#include "cli/launch/launch_record.h"

#include <unistd.h>

#include <array>
#include <charconv>
#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "base/text/json.h"
#include "cli/shell/environment.h"
#include "obs/children/alert_sender.h"
#include "obs/clock.h"
#include "obs/files/event_log.h"
#include "obs/run_owner.h"

namespace trireme::cli {
namespace {

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "";
  return name.data();
}

// Returns the number in "rank 3 ..."; -1: the verdict names no single rank.
int rank_in(const std::string& verdict) {
  constexpr std::string_view start = "rank ";
  if (!verdict.starts_with(start)) return -1;
  int rank = -1;
  const char* begin = verdict.data() + start.size();
  const auto [end, error] = std::from_chars(begin, verdict.data() + verdict.size(), rank);
  return error == std::errc{} && end != begin ? rank : -1;
}

obs::Event verdict_event(const FailedJob& job, const obs::OwnerRecord& owner) {
  obs::Event event;
  event.time = job.result.concluded_at;
  event.attempt = owner.attempt;
  event.epoch = owner.epoch;
  event.kind = obs::EventKind::verdict;
  event.severity = obs::Severity::error;
  event.node = host_name();
  event.rank = rank_in(job.result.verdict);
  event.text = job.result.verdict;
  event.data = {{"reason", job.result.verdict},
                {"failed_at", job.result.failed_at},
                {"ended_at", job.result.ended_at},
                {"restarts", job.restarts}};
  if (event.rank >= 0) event.data["rank"] = event.rank;
  event.evidence = {"flight"};
  return event;
}

}  // namespace

void record_failure(const config::Config& config, const FailedJob& job) {
  if (job.result.verdict.empty()) return;
  const std::filesystem::path folder = config.job.dump_folder;
  try {
    const std::optional<obs::OwnerRecord> owner = obs::read_owner(folder);
    if (!owner || owner->since < job.started) return;
    obs::EventLog log(folder);
    obs::Event event = verdict_event(job, *owner);
    log.add(event);
    event.kind = obs::EventKind::alert;
    event.time = obs::wall_seconds();
    event.data = {{"rule", "verdict"}};
    log.add(event);
    obs::AlertSender({.command = config.alerts.command,
                      .webhook = config.alerts.webhook,
                      .environment = environment_words({})})
        .send(obs::line_of(event));
  } catch (const base::Error& error) {
    base::log_warning("the verdict was not recorded: {}", error.what());
  }
}

}  // namespace trireme::cli
