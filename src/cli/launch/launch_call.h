// SPDX-License-Identifier: Apache-2.0
// What the words of a `trireme launch` call request: the configuration that its ranks read, and the
// job that they are.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>
#include <string_view>

#include "agent/job.h"
#include "base/system/descriptor.h"
#include "cli/shell/config_options.h"
#include "cli/verbs.h"
#include "config/config.h"

namespace trireme::cli {

// A copy of a configuration that only this process can read, in an anonymous file that its ranks
// inherit.
class InheritedText {
 public:
  explicit InheritedText(const std::string& text);
  static constexpr std::string_view folder = "/proc/self/fd/";
  std::string path() const { return fmt::format("{}{}", folder, file_.value()); }

 private:
  base::Descriptor file_;
};

// The configuration of a call, and the path that its ranks read it from.
struct LaunchConfig {
  config::ConfigText given;
  std::string path;                      // empty: the configuration consists of options alone
  std::optional<config::Config> loaded;  // none with --program
  std::optional<InheritedText> inherited;
};

// Returns the options of the job, without the command of its ranks. Throws ConfigError.
agent::JobOptions job_options(const Args& args);

// Reads the configuration into `launched`, which must outlive the ranks, and sets their command.
// `goes_on`: the job has begun, and everything was checked before that. Throws what every rank
// would throw, before any of them is started.
void add_command(const Args& args, bool goes_on, LaunchConfig& launched,
                 agent::JobOptions& options);

}  // namespace trireme::cli
