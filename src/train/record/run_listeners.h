// SPDX-License-Identifier: Apache-2.0
// RunListeners: programs of the user that follow a run: metrics.command receives every line of
// metrics and events, alerts.command and alerts.webhook receive alerts.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/json_fwd.h"
#include "config/config.h"
#include "obs/children/alert_sender.h"
#include "obs/children/command_stream.h"

namespace trireme::train {

class RunListeners {
 public:
  // Starts metrics.command, which receives `first` as its first line. `environment`: "NAME=value".
  // Throws IoError.
  RunListeners(const config::Config&, const std::vector<std::string>& environment,
               const base::Json& first);
  // Throws ConfigError if alerts cannot be sent as configured.
  static void check(const config::Config&, const std::vector<std::string>& environment);

  void pass_on(std::string_view lines);    // never waits
  void send_alert(std::string_view line);  // the event as a JSON line
  std::optional<std::string> news();       // of metrics.command (CommandStream::news)
  // Waits for the programs within their grace periods, then ends them.
  void finish();
  int64_t dropped() const { return stream_ ? stream_->dropped() : 0; }  // lines

 private:
  std::optional<obs::CommandStream> stream_;
  obs::AlertSender alerts_;
};

}  // namespace trireme::train
