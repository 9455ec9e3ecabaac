// SPDX-License-Identifier: Apache-2.0
#include "cli/run/notices.h"

#include <filesystem>
#include <optional>
#include <system_error>

#include "base/error.h"
#include "base/log.h"
#include "cli/shell/environment.h"
#include "comm/failure/position.h"
#include "obs/clock.h"
#include "obs/files/event_log.h"
#include "obs/output_file.h"
#include "obs/run_owner.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

// Adds the event at once: the machine may be gone before the run has saved. The owner of the folder
// writes to the same file meanwhile, so nothing in it is repaired here. Does nothing if this start
// of the run has not begun to write to its folder.
void record(const fs::path& folder, const agent::Notice& notice, double started) {
  const fs::path file = folder / obs::EventLog::file_name;
  const std::optional<obs::OwnerRecord> owner = obs::read_owner(folder);
  std::error_code unknown;
  if (!owner || owner->since < started || !fs::exists(file, unknown)) return;
  obs::Event event;
  event.time = notice.time;
  event.attempt = owner->attempt;
  event.epoch = owner->epoch;
  event.kind = obs::EventKind::notice;
  event.severity = obs::Severity::warning;
  event.node = comm::own_host();
  event.text = agent::text_of(notice);
  event.data = {{"source", notice.source}, {"what", notice.what}};
  obs::OutputFile(file, obs::OutputFile::Mode::append).write(obs::line_of(event));
}

}  // namespace

std::unique_ptr<agent::NoticeWatch> watch_notices(const config::Config& config) {
  const config::Elastic& elastic = config.elastic;
  if (elastic.notice_file.empty() && elastic.notice_command.empty()) return nullptr;
  return std::make_unique<agent::NoticeWatch>(
      agent::NoticeOptions{.file = elastic.notice_file,
                           .command = elastic.notice_command,
                           .environment = environment_words({})},
      [folder = fs::path(config.job.dump_folder),
       started = obs::wall_seconds()](const agent::Notice& notice) {
        base::log_warning("{}: the run saves and stops", agent::text_of(notice));
        try {
          record(folder, notice, started);
        } catch (const base::Error& error) {
          base::log_warning("the notice was not recorded: {}", error.what());
        }
      });
}

}  // namespace trireme::cli
