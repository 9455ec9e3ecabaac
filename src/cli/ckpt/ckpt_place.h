// SPDX-License-Identifier: Apache-2.0
// What a path means to the verbs of `trireme ckpt`: a run's folder, a checkpoint folder, or one
// generation; and the model that a generation is of.
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
  std::optional<int64_t> step;  // the path is of this generation
};
// Throws IoError if the path is none of the three, saying what it is where that can be told.
CheckpointPlace checkpoint_place(const std::filesystem::path&);

// Is the path a folder of generations, a run's folder that has one, or named as a generation?
bool is_checkpoint(const std::filesystem::path&);

// Where the run that is in a folder keeps its checkpoints and exported weights.
struct RunFolders {
  std::filesystem::path checkpoints, weights;
};
RunFolders run_folders(const std::filesystem::path& run);

// The generation that the path is, or the one of `step` in its folder, or the newest one that
// opens; newer ones that do not are said to the user. Throws IoError that names the steps there
// are.
ckpt::Generation open_checkpoint(ckpt::Disk&, const std::filesystem::path&,
                                 std::optional<int64_t> step);
// --step of a verb, where it is given. Throws ConfigError.
std::optional<int64_t> asked_step(const Args&);
const Option& step_option();

// The checkpoint folder that a path to write into means: one that has generations or is called
// "checkpoint"; else the one of the run that is there or will be. It is made if it is missing, but
// not its own generations. Throws IoError.
std::filesystem::path folder_to_write(const std::filesystem::path&);

// run.json of the run that a generation belongs to; empty: there is none.
std::filesystem::path run_file_of(const ckpt::Generation&);
// As the generation says, or run.json beside it. Throws ConfigError if neither does.
spec::ModelDims model_of(const ckpt::Generation&);

// ---- words
// "4 ranks: dp 2 x tp 2, ZeRO-2"
std::string layout_words(const ckpt::Manifest&);
std::string steps_text(const std::vector<int64_t>&);  // "2, 4 and 6"

}  // namespace trireme::cli
