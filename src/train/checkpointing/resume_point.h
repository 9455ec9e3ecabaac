// SPDX-License-Identifier: Apache-2.0
// The checkpoint that a run is going to be resumed from, found before anything is built for it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "ckpt/disk/disk.h"
#include "ckpt/generation/format.h"
#include "ckpt/marks/resume_choice.h"
#include "config/config.h"
#include "spec/plan.h"

namespace trireme::train {

// Whether a run resumes from a checkpoint in its folder, and what may differ from it.
struct Resume {
  // newest: that is not marked bad; after a divergence the newest good one.
  enum class From : uint8_t { start, newest, step, good };
  From from = From::start;
  int64_t step = 0;
  bool verifies = false;             // first replays the steps before it, and compares bits
  bool allows_data_change = false;   // other data, split, order or sequence length
  bool allows_batch_change = false;  // another global batch
};

struct ResumePoint {
  std::filesystem::path folder;
  ckpt::Manifest manifest;

  int64_t step() const { return manifest.step; }
};

// Which marks a checkpoint may have that is not requested by its step.
ckpt::WantedMark wanted_mark(const Resume&);
// Returns the checkpoints of a folder that a run may resume from, by their marks; none if the
// folder has no checkpoints and the run may start without. Otherwise, if no mark allows a resume,
// throws Diverged or ConfigError with the marks. Throws IoError if the folder cannot be listed or
// its marks cannot be read.
ckpt::ResumeChoice resume_choice(ckpt::Disk&, const std::filesystem::path& root, ckpt::WantedMark);

// Returns the requested checkpoint, or the first of resume_choice() whose manifest can be read and
// whose files have their sizes; none: no checkpoint does, or the run starts. The data is not read:
// loading may still find damage in it and take an older checkpoint. Throws as resume_choice().
std::optional<ResumePoint> find_resume_point(const config::Config&, const Resume&);

// Returns the plan that a checkpoint was saved with. Throws ConfigError that names the checkpoint
// and the key if it cannot be read.
spec::Plan saved_plan(const std::filesystem::path& folder, const ckpt::Manifest&);

// Returns how the saved run orders its sums, for the open keys of the run that resumes it; none for
// an imported checkpoint of step 0, which belongs to no run yet. Throws ConfigError if the manifest
// does not have it.
std::optional<config::SavedSums> saved_sums(const ResumePoint&);
// Returns the batch that the configuration of a saved state begins with; phases may have other
// ones. Throws ConfigError.
int64_t saved_batch(const std::filesystem::path& folder, const base::Json& state);

}  // namespace trireme::train
