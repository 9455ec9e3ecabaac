// SPDX-License-Identifier: Apache-2.0
#include "train/record/run_listeners.h"

#include "base/text/json.h"

namespace trireme::train {

RunListeners::RunListeners(const config::Config& config,
                           const std::vector<std::string>& environment, const base::Json& first)
    : alerts_({.command = config.alerts.command,
               .webhook = config.alerts.webhook,
               .environment = environment}) {
  if (config.metrics.command.empty()) return;
  stream_.emplace(config.metrics.command, obs::CommandStream::Options{.environment = environment});
  stream_->add(first.dump(-1, ' ', false, base::Json::error_handler_t::replace) + "\n");
}

void RunListeners::check(const config::Config& config,
                         const std::vector<std::string>& environment) {
  obs::AlertSender::check(config.alerts.webhook, environment);
}

void RunListeners::pass_on(std::string_view lines) {
  if (stream_) stream_->add(lines);
}

void RunListeners::send_alert(std::string_view line) { alerts_.send(line); }

std::optional<std::string> RunListeners::news() { return stream_ ? stream_->news() : std::nullopt; }

void RunListeners::finish() {
  if (stream_) stream_->finish();
  alerts_.finish();
}

}  // namespace trireme::train
