// SPDX-License-Identifier: Apache-2.0
#include "train/checkpointing/resume_point.h"

#include <fmt/format.h>

#include <memory>
#include <string>

#include "base/error.h"
#include "base/text/json.h"
#include "ckpt/disk/posix_disk.h"
#include "ckpt/generation/folder.h"

namespace trireme::train {

std::optional<ResumePoint> find_resume_point(const config::Config& config, const Resume& resume) {
  if (resume.from == Resume::From::start) return {};
  const std::filesystem::path root =
      std::filesystem::path(config.job.dump_folder) / config.checkpoint.folder;
  const std::unique_ptr<ckpt::Disk> disk = ckpt::posix_disk();
  for (const int64_t step : ckpt::committed_steps(*disk, root)) {
    if (resume.from == Resume::From::step && step != resume.step) continue;
    const std::filesystem::path folder = root / ckpt::generation_name(step);
    if (!ckpt::missing_in(*disk, folder).empty()) continue;  // loading logs the reason
    return ResumePoint{folder, ckpt::read_manifest(*disk, folder)};
  }
  return {};
}

spec::Plan saved_plan(const std::filesystem::path& folder, const ckpt::Manifest& manifest) {
  try {
    return spec::plan_from_json(manifest.plan);
  } catch (const base::Error& error) {
    throw base::ConfigError(
        fmt::format("{}: the plan in its manifest cannot be read: {}; it was written by another "
                    "version. Resume "
                    "with that version, or start a new run from the weights (--init-from)",
                    folder.string(), error.what()));
  }
}

std::optional<config::SavedSums> saved_sums(const ResumePoint& point) {
  if (point.step() == 0) return {};
  const spec::Plan plan = saved_plan(point.folder, point.manifest);
  return config::SavedSums{.logical_dp = plan.layout.logical_dp,
                           .reduce = plan.layout.reduce,
                           .global_batch_size = saved_batch(point.folder, point.manifest.state)};
}

int64_t saved_batch(const std::filesystem::path& folder, const base::Json& state) {
  try {
    // Builds that did not record the configuration had no phases.
    const base::Json& batch = state.contains("config")
                                  ? state.at("config").at("training").at("global_batch_size")
                                  : state.at("samples_a_step");
    return batch.get<int64_t>();
  } catch (const base::Json::exception& error) {
    throw base::ConfigError(fmt::format("{}: the global batch in its manifest cannot be read: {}",
                                        folder.string(), error.what()));
  }
}

}  // namespace trireme::train
