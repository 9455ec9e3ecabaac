// SPDX-License-Identifier: Apache-2.0
// Every verb of the program, one file each.
#pragma once

#include <filesystem>
#include <vector>

#include "cli/shell/args.h"

namespace trireme::cli {

Verb train_verb();
Verb launch_verb();
Verb verify_verb();
Verb eval_verb();
Verb generate_verb();
std::vector<Verb> data_verbs();
Verb doctor_verb();
Verb bench_train_verb();
Verb bench_gpu_verb();
Verb calibrate_verb();
Verb schedule_verb();
Verb sim_verb();
Verb plan_verb();
Verb version_verb();
std::vector<Verb> help_verbs();

CommandSet all_commands();

// Where model files are looked for: configs/models below the current folder, and beside the build
// that this program belongs to.
std::vector<std::filesystem::path> model_folders();
// The same of machine files: machines.
std::vector<std::filesystem::path> machine_folders();
// The same of stack files: stacks.
std::vector<std::filesystem::path> stack_folders();

}  // namespace trireme::cli
