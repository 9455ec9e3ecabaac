// SPDX-License-Identifier: Apache-2.0
#include "train/setup/absolute_paths.h"

#include <algorithm>
#include <filesystem>
#include <string>

namespace trireme::train {
namespace {

void make_absolute(std::string& path) {
  if (path.empty()) return;
  const std::filesystem::path absolute = std::filesystem::absolute(path);
  // The folder above a link is that of its target.
  const bool goes_up = std::ranges::find(absolute, "..") != absolute.end();
  path = (goes_up ? std::filesystem::weakly_canonical(absolute) : absolute.lexically_normal())
             .string();
}

}  // namespace

config::Config with_absolute_paths(config::Config c) {
  make_absolute(c.job.dump_folder);
  make_absolute(c.training.dataset_path);
  for (config::Dataset& set : c.training.dataset) make_absolute(set.path);
  make_absolute(c.training.tokenizer);
  make_absolute(c.training.init_from);
  make_absolute(c.validation.dataset_path);
  for (config::ValidationDataset& set : c.validation.dataset) make_absolute(set.path);
  make_absolute(c.parallelism.pipeline_parallel_schedule_file);
  make_absolute(c.elastic.domains);
  make_absolute(c.system.cache_folder);
  if (c.system.machine.find('/') != std::string::npos) make_absolute(c.system.machine);
  return c;
}

}  // namespace trireme::train
