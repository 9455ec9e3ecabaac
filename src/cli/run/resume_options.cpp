// SPDX-License-Identifier: Apache-2.0
#include "cli/run/resume_options.h"

#include <fmt/format.h>

#include <charconv>
#include <string>

#include "base/error.h"

namespace trireme::cli {

train::Resume resume_of(const Args& args) {
  using From = train::Resume::From;
  train::Resume resume{.verifies = args.flag("--resume-verify"),
                       .allows_data_change = args.flag("--allow-data-change"),
                       .allows_batch_change = args.flag("--allow-batch-change")};
  const std::string text =
      args.has("--resume") ? args.text("--resume") : (resume.verifies ? "auto" : "never");
  if (text == "never") return {};
  if (args.flag("--overwrite")) {
    throw base::ConfigError(
        fmt::format("--overwrite replaces the run in the folder and --resume {} continues it: give "
                    "one of them",
                    text));
  }
  if (text == "auto" || text == "good") {
    resume.from = text == "good" ? From::good : From::newest;
    return resume;
  }
  resume.from = From::step;
  const char* const end = text.data() + text.size();
  const auto [behind, error] = std::from_chars(text.data(), end, resume.step);
  if (error != std::errc() || behind != end || resume.step < 0) {
    throw base::ConfigError(
        fmt::format("--resume {}: must be auto, good, never, or the step of a checkpoint", text));
  }
  return resume;
}

}  // namespace trireme::cli
