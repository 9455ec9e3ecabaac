// SPDX-License-Identifier: Apache-2.0
#include "train/saver.h"

#include <algorithm>
#include <system_error>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "ckpt/export_folder.h"
#include "ckpt/folder.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;

// The first entry that is named as a generation and `is_foreign`; empty: none.
fs::path first_foreign(const fs::path& folder, bool (*is_foreign)(const fs::path&)) {
  std::error_code failed;
  for (fs::directory_iterator at(folder, failed), end; !failed && at != end; at.increment(failed)) {
    if (ckpt::step_from_name(at->path().filename().string()) && is_foreign(at->path())) {
      return at->path();
    }
  }
  return {};
}

// Generations and weights of steps have the same names: in one folder each would be pruned, or
// skipped as damaged, as if it were the other. The configuration compared the names; here are the
// folders that they lead to.
void check_own_folders(const config::Config& c) {
  struct Place {
    const char* key;
    fs::path path, real;
  };
  std::vector<Place> places;
  const auto add = [&](const char* key, const std::string& name) {
    const fs::path path = fs::path(c.job.dump_folder) / name;
    std::error_code failed;  // what cannot be followed is found when it is opened
    const fs::path real = fs::weakly_canonical(path, failed);
    places.push_back({key, path, failed ? path : real});
  };
  add("checkpoint.folder", c.checkpoint.folder);
  add("checkpoint.export_folder", c.checkpoint.export_folder);
  if (c.metrics.enable_tensorboard) add("metrics.save_tb_folder", c.metrics.save_tb_folder);
  for (size_t i = 0; i < places.size(); ++i) {
    for (size_t j = i + 1; j < places.size(); ++j) {
      if (places[i].real != places[j].real) continue;
      throw base::ConfigError(
          fmt::format("{} and {} both lead to {}: give each a folder of its own", places[i].key,
                      places[j].key, places[i].real.string()));
    }
  }
  const fs::path checkpoint = first_foreign(places[1].path, [](const fs::path& entry) {
    std::error_code ignored;
    return fs::exists(entry / ckpt::manifest_name, ignored);
  });
  if (!checkpoint.empty()) {
    throw base::ConfigError(
        fmt::format("checkpoint.export_folder = \"{}\": {} is a checkpoint; weights go into a "
                    "folder without checkpoints",
                    c.checkpoint.export_folder, checkpoint.string()));
  }
  const fs::path weights = first_foreign(places[0].path, &ckpt::is_export);
  if (!weights.empty()) {
    throw base::ConfigError(
        fmt::format("checkpoint.folder = \"{}\": {} are exported weights; checkpoints go into a "
                    "folder without them",
                    c.checkpoint.folder, weights.string()));
  }
}

}  // namespace

Saver::Saver(std::filesystem::path folder, const config::Config& config)
    : folder_(std::move(folder)), config_(config) {
  if (config.checkpoint.enable) check_own_folders(config);
}

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
