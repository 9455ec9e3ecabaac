// SPDX-License-Identifier: Apache-2.0
#include "cli/run/resume_options.h"

#include <fmt/format.h>

#include <charconv>
#include <filesystem>
#include <memory>
#include <string>

#include "base/error.h"
#include "base/text/json.h"
#include "ckpt/disk/posix_disk.h"
#include "ckpt/generation/folder.h"

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
  if (text == "auto") {
    resume.from = From::newest;
    return resume;
  }
  resume.from = From::step;
  const char* const end = text.data() + text.size();
  const auto [behind, error] = std::from_chars(text.data(), end, resume.step);
  if (error != std::errc() || behind != end || resume.step < 0) {
    throw base::ConfigError(
        fmt::format("--resume {}: must be auto, never, or the step of a checkpoint", text));
  }
  return resume;
}

std::optional<config::SavedSums> saved_sums(const train::Resume& resume,
                                            const config::Config& config) {
  if (resume.from == train::Resume::From::start) return {};
  const std::filesystem::path folder =
      std::filesystem::path(config.job.dump_folder) / config.checkpoint.folder;
  const std::unique_ptr<ckpt::Disk> disk = ckpt::posix_disk();
  try {
    for (const int64_t step : ckpt::committed_steps(*disk, folder)) {
      if (resume.from == train::Resume::From::step && step != resume.step) continue;
      const auto generation = folder / ckpt::generation_name(step);
      if (!ckpt::missing_in(*disk, generation).empty()) continue;
      const ckpt::Manifest manifest = ckpt::read_manifest(*disk, generation);
      if (manifest.step == 0) return {};
      return config::SavedSums{.logical_dp = manifest.plan.at("logical_dp"),
                               .reduce = manifest.plan.at("reduce"),
                               .global_batch_size = manifest.state.at("samples_a_step")};
    }
  } catch (const base::IoError&) {
    return {};  // the resume itself reports what cannot be read
  } catch (const base::Json::exception&) {
    return {};  // the same
  }
  return {};
}

}  // namespace trireme::cli
