// SPDX-License-Identifier: Apache-2.0
// Notices that this machine is about to be taken away (agent/notice.h), as `train` and `launch`
// receive them: logged, recorded as an event of the run, and followed by SIGTERM to this process,
// which saves and stops.
#pragma once

#include <memory>

#include "agent/notice.h"
#include "config/config.h"

namespace trireme::cli {

// Watches for the notices that elastic.notice_file and elastic.notice_command name; null if they
// name none. Throws ConfigError if the command cannot be started.
std::unique_ptr<agent::NoticeWatch> watch_notices(const config::Config&);

}  // namespace trireme::cli
