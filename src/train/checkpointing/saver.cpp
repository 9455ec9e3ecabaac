// SPDX-License-Identifier: Apache-2.0
#include "train/checkpointing/saver.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <future>
#include <mutex>
#include <system_error>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "ckpt/generation/folder.h"
#include "ckpt/hf/export_folder.h"
#include "obs/clock.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;

// Returns the first entry that is named like a generation and `is_foreign`; empty: none.
fs::path first_foreign(const fs::path& folder, bool (*is_foreign)(const fs::path&)) {
  std::error_code failed;
  for (fs::directory_iterator at(folder, failed), end; !failed && at != end; at.increment(failed)) {
    if (ckpt::step_from_name(at->path().filename().string()) && is_foreign(at->path())) {
      return at->path();
    }
  }
  return {};
}

}  // namespace

// Generations and weights of steps have the same names: in one folder each would be pruned, or
// skipped as damaged, as if it were the other. The configuration has compared the names; here the
// folders that they resolve to are compared.
void check_own_folders(const config::Config& c) {
  if (!c.checkpoint.enable) return;
  struct Place {
    const char* key;
    fs::path path, real;
  };
  std::vector<Place> places;
  const auto add = [&](const char* key, const std::string& name) {
    const fs::path path = fs::path(c.job.dump_folder) / name;
    std::error_code failed;  // a path that cannot be resolved fails when it is opened
    const fs::path real = fs::weakly_canonical(path, failed);
    places.push_back({key, path, failed ? path : real});
  };
  add("checkpoint.folder", c.checkpoint.folder);
  const bool exports = !c.checkpoint.export_folder.empty();
  if (exports) add("checkpoint.export_folder", c.checkpoint.export_folder);
  if (c.metrics.enable_tensorboard) add("metrics.save_tb_folder", c.metrics.save_tb_folder);
  for (size_t i = 0; i < places.size(); ++i) {
    for (size_t j = i + 1; j < places.size(); ++j) {
      if (places[i].real != places[j].real) continue;
      throw base::ConfigError(fmt::format("{} and {} both resolve to {}: give each its own folder",
                                          places[i].key, places[j].key, places[i].real.string()));
    }
  }
  if (!exports) return;
  std::error_code unknown;
  if (fs::exists(places[1].path, unknown) && !fs::is_directory(places[1].path, unknown)) {
    throw base::IoError(fmt::format("{}: is a file; checkpoint.export_folder must be a folder",
                                    places[1].path.string()));
  }
  ckpt::check_replaceable(places[1].path / "final", {});
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

Saver::Saver(std::filesystem::path folder, const config::Config& config,
             const std::vector<ckpt::NamedBytes>& tokenizer, std::function<void()> guard)
    : folder_(std::move(folder)),
      config_(config),
      tokenizer_(tokenizer),
      guard_(std::move(guard)) {}

std::filesystem::path Saver::save(const std::string& name, const ckpt::ReadParam& read) const {
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (error) {
    throw base::IoError(fmt::format("{}: cannot create the folder of weights: {}", folder_.string(),
                                    error.message()));
  }
  const std::filesystem::path path = folder_ / name;
  ckpt::export_hf(path, config_.dims, read,
                  {.dtype = base::dtype_from_name(config_.checkpoint.export_dtype),
                   .max_shard_bytes = config_.checkpoint.max_shard_bytes,
                   .extra_bytes = tokenizer_,
                   .check = [this](const std::filesystem::path&) { guard_(); }});
  guard_();
  for (const std::string& problem :
       ckpt::prune_exports(folder_, config_.checkpoint.keep_latest_k)) {
    base::log_warning("older weights not removed: {}", problem);
  }
  return path;
}

namespace {

// Parameters that the export thread of the first rank requests and its main thread reads, together
// with the other ranks.
class Requests {
 public:
  // On the export thread: blocks until the values have been read.
  std::vector<float> get(int64_t param) {
    std::unique_lock lock(mutex_);
    wanted_ = param;
    changed_.notify_all();
    changed_.wait(lock, [this] { return wanted_ == none || is_ended_; });
    if (is_ended_) throw base::Error("the run ended while weights were exported");
    return std::move(values_);
  }
  void end() {
    const std::scoped_lock lock(mutex_);
    is_ended_ = true;
    changed_.notify_all();
  }

  static constexpr int64_t done = -1, none = -2;
  // On the main thread: returns the requested parameter; `done`; or `none` if none was requested
  // within a heartbeat interval.
  int64_t next() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, Rank::heartbeat_interval,
                      [this] { return wanted_ != none || is_ended_; });
    return wanted_ != none ? wanted_ : is_ended_ ? done : none;
  }
  void give(std::vector<float> values) {
    const std::scoped_lock lock(mutex_);
    values_ = std::move(values);
    wanted_ = none;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  int64_t wanted_ = none;
  std::vector<float> values_;
  bool is_ended_ = false;
};

int64_t bytes_in(const fs::path& folder) {
  int64_t bytes = 0;
  std::error_code failed;
  for (fs::directory_iterator at(folder, failed), end; !failed && at != end; at.increment(failed)) {
    std::error_code ignored;
    const auto size = fs::file_size(at->path(), ignored);
    if (!ignored) bytes += static_cast<int64_t>(size);
  }
  return bytes;
}

using ReadByIndex = std::function<std::vector<float>(int64_t param)>;

// Writes the weights that `get` returns. Any error but Fenced is reported in the result.
SavedWeights write_weights(const Saver& saver, const std::string& name,
                           const std::vector<engine::Engine::ParamInfo>& params,
                           const ReadByIndex& get) {
  const auto index_of = [&](const std::string& param) {
    const auto found =
        std::find_if(params.begin(), params.end(),
                     [&](const engine::Engine::ParamInfo& info) { return info.name == param; });
    TRIREME_CHECK(found != params.end(), "the engine has no parameter '{}'", param);
    return found - params.begin();
  };
  const double began = obs::steady_seconds();
  SavedWeights saved;
  try {
    saved.path = saver.save(name, [&](const std::string& param) { return get(index_of(param)); });
    saved.bytes = bytes_in(saved.path);
    saved.seconds = obs::steady_seconds() - began;
  } catch (const base::Fenced&) {
    throw;
  } catch (const std::exception& error) {
    saved.problem = error.what();
  }
  return saved;
}

// On other ranks: reads the parameters that the first rank requests, because a read is collective.
void follow_requests(Rank& rank, const ReadByIndex& read) {
  while (true) {
    const int64_t next = rank.gather(Requests::none).front();
    if (next == Requests::done) return;
    if (next != Requests::none) (void)read(next);
  }
}

// On the first rank: answers the requests of the export thread until it is done.
void serve_requests(Requests& requests, Rank& rank, const ReadByIndex& read) {
  while (true) {
    const int64_t next = requests.next();
    (void)rank.gather(next);
    if (next == Requests::done) return;
    if (next != Requests::none) requests.give(read(next));
  }
}

}  // namespace

SavedWeights save_weights(engine::Engine& engine, Rank& rank, const Saver* saver,
                          const std::string& name) {
  const std::vector<engine::Engine::ParamInfo> params = engine.parameters();
  const ReadByIndex read = [&](int64_t param) {
    return engine.read_weights(params[static_cast<size_t>(param)].name);
  };
  if (rank.is_alone()) return write_weights(*saver, name, params, read);
  if (saver == nullptr) {
    follow_requests(rank, read);
    return {};
  }
  Requests requests;
  // The export thread may take longer than a deadline; this one exchanges heartbeats meanwhile.
  std::future<SavedWeights> writing = std::async(std::launch::async, [&] {
    try {
      SavedWeights saved = write_weights(
          *saver, name, params, [&requests](int64_t param) { return requests.get(param); });
      requests.end();
      return saved;
    } catch (...) {
      requests.end();
      throw;
    }
  });
  try {
    serve_requests(requests, rank, read);
  } catch (...) {
    requests.end();
    writing.wait();
    throw;
  }
  return writing.get();
}

}  // namespace trireme::train
