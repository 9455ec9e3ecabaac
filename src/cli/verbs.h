// SPDX-License-Identifier: Apache-2.0
// Every verb of the program, one file each.
#pragma once

#include <filesystem>
#include <vector>

#include "cli/shell/args.h"

namespace trireme::cli {

Verb train_verb();
Verb launch_verb();
Verb chaos_verb();
Verb convert_config_verb();
Verb init_verb();
Verb verify_verb();
Verb eval_verb();
Verb generate_verb();
std::vector<Verb> data_verbs();
Verb diagnose_verb();
Verb board_verb();
Verb report_verb();
Verb runs_verb();
Verb watch_verb();
Verb doctor_verb();
Verb bench_train_verb();
Verb bench_gpu_verb();
Verb bench_attention_verb();
Verb calibrate_verb();
Verb schedule_verb();
Verb sim_verb();
Verb plan_verb();
Verb version_verb();
std::vector<Verb> help_verbs();

CommandSet all_commands();

// Folders that are searched for model files: configs/models below the current folder, below the
// source folder of this build, and in the installation.
std::vector<std::filesystem::path> model_folders();
// Folders that are searched for machine files (machines), in the same places.
std::vector<std::filesystem::path> machine_folders();
// Folders that are searched for stack files (stacks), in the same places.
std::vector<std::filesystem::path> stack_folders();

}  // namespace trireme::cli
