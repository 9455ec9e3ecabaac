// SPDX-License-Identifier: Apache-2.0
// Resolves the paths of the verbs of `trireme ckpt` (a run's folder, a checkpoint folder, or one
// checkpoint), and finds the model of a checkpoint.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "ckpt/generation/generation.h"
#include "cli/shell/args.h"
#include "spec/model.h"

namespace trireme::cli {

struct CheckpointPlace {
  std::filesystem::path root;   // the checkpoint folder
  std::optional<int64_t> step;  // if the path names one checkpoint
};
// Throws IoError if the path is none of the three; the message names what it is, if that is known.
CheckpointPlace checkpoint_place(const std::filesystem::path&);

// Returns whether the path is a checkpoint folder, a run's folder with checkpoints, or has the name
// of a checkpoint.
bool is_checkpoint(const std::filesystem::path&);

// The folders in which a run saves its checkpoints and exported weights.
struct RunFolders {
  std::filesystem::path checkpoints, weights;
};
RunFolders run_folders(const std::filesystem::path& run);

// Opens the checkpoint that the path names, or the one of `step`, or the newest one that can be
// opened; logs a warning for newer ones that cannot. Throws IoError that lists the available steps.
ckpt::Generation open_checkpoint(ckpt::Disk&, const std::filesystem::path&,
                                 std::optional<int64_t> step);
// Returns --step, if it is given. Throws ConfigError.
std::optional<int64_t> asked_step(const Args&);
const Option& step_option();

// Returns the checkpoint folder to write into: the path itself if it contains checkpoints or is
// called "checkpoint", otherwise the checkpoint folder of the run at that path, which need not
// exist yet. Creates the folder if it is missing. Throws IoError.
std::filesystem::path folder_to_write(const std::filesystem::path&);

// Returns run.json of the run that a checkpoint belongs to; empty if there is none.
std::filesystem::path run_file_of(const ckpt::Generation&);
// Returns the model of a checkpoint, from its manifest or from run.json. Throws ConfigError if
// neither contains it.
spec::ModelDims model_of(const ckpt::Generation&);

// ---- text
// "4 ranks: dp 2 x tp 2, ZeRO-2"
std::string layout_words(const ckpt::Manifest&);
std::string steps_text(const std::vector<int64_t>&);  // "2, 4 and 6"

}  // namespace trireme::cli
