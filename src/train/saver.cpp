// SPDX-License-Identifier: Apache-2.0
#include "train/saver.h"

#include <algorithm>
#include <system_error>
#include <vector>

#include "base/check.h"
#include "base/error.h"

namespace trireme::train {

Saver::Saver(std::filesystem::path folder, const config::Config& config)
    : folder_(std::move(folder)), config_(config) {}

std::filesystem::path Saver::save(const std::string& name, const ckpt::ReadParam& read) const {
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (error) {
    throw base::IoError(fmt::format("{}: cannot make the folder for weights: {}", folder_.string(),
                                    error.message()));
  }
  const std::filesystem::path path = folder_ / name;
  ckpt::export_hf(path, config_.dims, read,
                  {.dtype = base::dtype_from_name(config_.checkpoint.export_dtype),
                   .max_shard_bytes = config_.checkpoint.max_shard_bytes});
  prune();
  return path;
}

void Saver::prune() const {
  const auto keep = static_cast<size_t>(config_.checkpoint.keep_latest_k);
  if (keep == 0) return;
  std::vector<std::filesystem::path> steps;
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    if (entry.path().filename().string().starts_with("step-")) steps.push_back(entry.path());
  }
  std::sort(steps.begin(), steps.end());  // numbers are padded, so by age
  for (size_t i = 0; i + keep < steps.size(); ++i) std::filesystem::remove_all(steps[i]);
}

}  // namespace trireme::train
