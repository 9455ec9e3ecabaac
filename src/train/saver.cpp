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

std::filesystem::path save_weights(engine::Engine& engine, Rank& rank, const Saver* saver,
                                   const std::string& name) {
  const std::vector<engine::Engine::ParamInfo> params = engine.parameters();
  // Reading a parameter takes all ranks. The first says which is next; -1: none.
  constexpr int64_t none = -1;
  const auto read = [&](int64_t asked) {
    const int64_t next = rank.gather(asked).front();
    return next == none ? std::vector<float>()
                        : engine.read_weights(params[static_cast<size_t>(next)].name);
  };
  if (saver == nullptr) {
    bool is_done = false;
    while (!is_done) is_done = read(none).empty();
    return {};
  }
  const std::filesystem::path path = saver->save(name, [&](const std::string& param) {
    const auto found =
        std::find_if(params.begin(), params.end(),
                     [&](const engine::Engine::ParamInfo& info) { return info.name == param; });
    TRIREME_CHECK(found != params.end(), "the engine has no parameter '{}'", param);
    return read(found - params.begin());
  });
  (void)read(none);
  return path;
}

}  // namespace trireme::train
