// SPDX-License-Identifier: Apache-2.0
#include "config/files/paths.h"

#include <filesystem>
#include <string>

namespace trireme::config {
namespace {

void make_absolute(std::string& path) {
  if (path.empty()) return;
  path = std::filesystem::absolute(path).lexically_normal().string();
}

}  // namespace

Config with_absolute_paths(Config c) {
  make_absolute(c.job.dump_folder);
  make_absolute(c.training.dataset_path);
  for (Dataset& set : c.training.dataset) make_absolute(set.path);
  make_absolute(c.training.tokenizer);
  make_absolute(c.training.init_from);
  make_absolute(c.validation.dataset_path);
  for (ValidationDataset& set : c.validation.dataset) make_absolute(set.path);
  make_absolute(c.parallelism.pipeline_parallel_schedule_file);
  make_absolute(c.system.cache_folder);
  if (c.system.machine.find('/') != std::string::npos) make_absolute(c.system.machine);
  return c;
}

}  // namespace trireme::config
