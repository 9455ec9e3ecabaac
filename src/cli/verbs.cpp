// SPDX-License-Identifier: Apache-2.0
#include "cli/verbs.h"

#include <iterator>
#include <system_error>

#include "cli/ckpt_verbs.h"

namespace trireme::cli {

std::vector<Verb> all_verbs() {
  std::vector<Verb> verbs = {train_verb(), launch_verb(), verify_verb(), eval_verb(),
                             generate_verb()};
  std::vector<Verb> data = data_verbs();
  std::move(data.begin(), data.end(), std::back_inserter(verbs));
  for (Verb (*const verb)() : {ckpt_list_verb, ckpt_inspect_verb, ckpt_verify_verb, ckpt_diff_verb,
                               ckpt_reshard_verb, ckpt_export_verb, ckpt_import_verb}) {
    verbs.push_back(verb());
  }
  verbs.push_back(bench_train_verb());
  verbs.push_back(bench_gpu_verb());
  verbs.push_back(schedule_verb());
  verbs.push_back(sim_verb());
  verbs.push_back(doctor_verb());
  return verbs;
}

std::vector<std::filesystem::path> model_folders() {
  std::vector<std::filesystem::path> folders = {"configs/models"};
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) {
    folders.push_back(self.parent_path() / "../../configs/models");
    folders.push_back(self.parent_path() / "../share/trireme/models");
  }
  return folders;
}

}  // namespace trireme::cli
