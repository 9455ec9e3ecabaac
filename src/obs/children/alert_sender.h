// SPDX-License-Identifier: Apache-2.0
// AlertSender: passes alerts to a command (alerts.command) and posts them to an address
// (alerts.webhook, by the program curl). Each alert starts new processes, which the run does not
// wait for; at the end it gives them a few seconds.
#pragma once

#include <list>
#include <string>
#include <string_view>
#include <vector>

#include "obs/children/child_process.h"

namespace trireme::obs {

class AlertSender {
 public:
  struct Options {
    std::string command{};                   // empty: none
    std::string webhook{};                   // empty: none
    std::vector<std::string> environment{};  // "NAME=value"
    double grace_seconds = 10;               // at the end, for processes that still run
  };
  explicit AlertSender(Options options);
  ~AlertSender();

  // `line`: the event as JSON. Problems are logged as warnings.
  void send(std::string_view line);
  // Waits for the processes, at most for the grace period.
  void finish();

  // Throws ConfigError if a webhook is configured and there is no curl.
  static void check(const std::string& webhook, const std::vector<std::string>& environment);

 private:
  void start(const std::vector<std::string>& words, std::string_view line);
  void remove_ended();

  struct Running {
    std::string what;
    ChildProcess child;
  };
  const Options options_;
  std::list<Running> running_;
};

}  // namespace trireme::obs
