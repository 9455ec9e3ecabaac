// SPDX-License-Identifier: Apache-2.0
#include "train/saver.h"

#include <algorithm>
#include <system_error>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "ckpt/export_folder.h"

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
  for (const std::string& problem :
       ckpt::prune_exports(folder_, config_.checkpoint.keep_latest_k)) {
    base::log_warning("older weights not removed: {}", problem);
  }
  return path;
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
