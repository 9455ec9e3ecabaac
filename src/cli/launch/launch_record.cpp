// SPDX-License-Identifier: Apache-2.0
#include "cli/launch/launch_record.h"

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

obs::Event verdict_event(const FailedJob& job, const obs::OwnerRecord& owner) {
  obs::Event event;
  event.time = job.result.concluded_at;
  event.attempt = owner.attempt;
  event.epoch = owner.epoch;
  event.kind = obs::EventKind::verdict;
  event.severity = obs::Severity::error;
  const comm::Verdict& verdict = *job.result.verdict;
  event.node = verdict.node;
  event.rank = verdict.ranks.size() == 1 ? verdict.ranks.front() : -1;
  event.text = verdict.text;
  event.data = {{"verdict", comm::name_of(verdict.kind)},
                {"ranks", verdict.ranks},
                {"cause", verdict.cause},
                {"reason", verdict.text},
                {"job_epoch", job.result.epoch},
                {"lost_at", job.result.lost_at},
                {"failed_at", job.result.failed_at},
                {"ended_at", job.result.ended_at},
                {"restarts", job.result.decision.restarts}};
  if (event.rank >= 0) event.data["rank"] = event.rank;
  event.evidence = {"flight"};
  return event;
}

}  // namespace

void record_failure(const config::Config& config, const FailedJob& job) {
  if (!job.result.verdict) return;
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
