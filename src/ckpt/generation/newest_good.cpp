// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include "base/error.h"
#include "ckpt/generation/folder.h"
#include "ckpt/generation/generation.h"

namespace trireme::ckpt {

std::vector<GenerationInfo> list_generations(Disk& disk, const std::filesystem::path& root,
                                             const IoOptions& options) {
  std::vector<GenerationInfo> all;
  for (const int64_t step : committed_steps(disk, root)) {
    all.push_back({step, root / generation_name(step), ""});
    GenerationInfo& info = all.back();
    try {
      Generation::open(disk, info.folder, options);
    } catch (const base::Error& error) {
      info.problem = error.what();
    }
  }
  return all;
}

NewestGood newest_good(Disk& disk, const std::filesystem::path& root, Verify verify,
                       const IoOptions& options) {
  NewestGood found;
  for (const int64_t step : committed_steps(disk, root)) {
    GenerationInfo info{step, root / generation_name(step), ""};
    try {
      Generation generation = Generation::open(disk, info.folder, options);
      const auto damage =
          verify == Verify::all ? generation.damage(options) : std::vector<std::string>{};
      if (damage.empty()) {
        found.generation = std::move(generation);
        return found;
      }
      info.problem = damage.front();
      if (damage.size() > 1) info.problem += fmt::format(" (and {} more)", damage.size() - 1);
    } catch (const base::Error& error) {
      info.problem = error.what();
    }
    found.skipped.push_back(std::move(info));
  }
  return found;
}

}  // namespace trireme::ckpt
