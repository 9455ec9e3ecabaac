// SPDX-License-Identifier: Apache-2.0
#include "cli/verbs.h"

#include <iterator>
#include <system_error>

#include "cli/ckpt/ckpt_verbs.h"

namespace trireme::cli {

CommandSet all_commands() {
  std::vector<Verb> verbs = {init_verb(),   train_verb(), launch_verb(), convert_config_verb(),
                             verify_verb(), chaos_verb(), eval_verb(),   generate_verb()};
  std::vector<Verb> data = data_verbs();
  std::move(data.begin(), data.end(), std::back_inserter(verbs));
  for (Verb (*const verb)() :
       {ckpt_list_verb, ckpt_inspect_verb, ckpt_verify_verb, ckpt_mark_verb, ckpt_diff_verb,
        ckpt_reshard_verb, ckpt_export_verb, ckpt_import_verb}) {
    verbs.push_back(verb());
  }
  verbs.push_back(diagnose_verb());
  verbs.push_back(board_verb());
  verbs.push_back(report_verb());
  verbs.push_back(runs_verb());
  verbs.push_back(watch_verb());
  verbs.push_back(bench_train_verb());
  verbs.push_back(bench_gpu_verb());
  verbs.push_back(bench_attention_verb());
  verbs.push_back(calibrate_verb());
  verbs.push_back(plan_verb());
  verbs.push_back(schedule_verb());
  verbs.push_back(sim_verb());
  verbs.push_back(doctor_verb());
  verbs.push_back(version_verb());
  std::vector<Verb> help = help_verbs();
  std::move(help.begin(), help.end(), std::back_inserter(verbs));
  return {.verbs = std::move(verbs),
          .groups = {{"data", "Build, inspect and measure data sets"},
                     {"data tokenizer", "Train, inspect and try tokenizers"},
                     {"ckpt", "List, check, compare, convert and export checkpoints"},
                     {"bench", "Measure the speed of training, of a GPU and of attention"}}};
}

namespace {

// Returns `name` below the current folder and below the source folder of this build, and
// `installed` in the installation.
std::vector<std::filesystem::path> folders_of(const std::filesystem::path& name,
                                              const std::filesystem::path& installed) {
  std::vector<std::filesystem::path> folders = {name};
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) {
    folders.push_back(self.parent_path() / "../.." / name);
    folders.push_back(self.parent_path() / "../share/trireme" / installed);
  }
  return folders;
}

}  // namespace

std::vector<std::filesystem::path> model_folders() {
  return folders_of("configs/models", "models");
}
std::vector<std::filesystem::path> machine_folders() { return folders_of("machines", "machines"); }
std::vector<std::filesystem::path> stack_folders() { return folders_of("stacks", "stacks"); }

}  // namespace trireme::cli
