// SPDX-License-Identifier: Apache-2.0
#include "cli/ckpt/weights_place.h"

#include <fmt/format.h>

#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/text/json.h"
#include "ckpt/disk/posix_disk.h"
#include "ckpt/generation/folder.h"
#include "cli/ckpt/ckpt_place.h"
#include "config/files/model_file.h"
#include "obs/run_dir.h"
#include "text/tokenizer.h"
#include "train/checkpointing/checkpoint_weights.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

bool is_hf_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path / "config.json", ignored);
}

fs::path run_file_in(const fs::path& folder) {
  std::error_code ignored;
  const fs::path file = folder / obs::RunDir::config_name;
  return fs::is_regular_file(file, ignored) ? file : fs::path();
}

// Returns the folder if it contains a tokenizer, otherwise an empty path.
fs::path tokenizer_in(const fs::path& folder) {
  std::error_code ignored;
  for (const char* name : {"tokenizer.json", "tokenizer.model"}) {
    if (fs::is_regular_file(folder / name, ignored)) return folder;
  }
  return {};
}

fs::path tokenizer_of_run(const fs::path& run_file) {
  return run_file.empty() ? fs::path() : tokenizer_in(run_file.parent_path() / "tokenizer");
}

class FoundFolder final : public FoundWeights {
 public:
  explicit FoundFolder(fs::path path) : path_(std::move(path)), source_(path_) {}

  const spec::ModelDims& dims() const override { return source_.dims(); }
  void read(const ckpt::WriteParam& write) override { source_.read(write); }
  std::string description() const override { return "weights of " + path_.string(); }
  base::Json json() const override { return {{"path", path_.string()}}; }
  // Exports are two levels below their run's folder.
  fs::path run_file() const override {
    std::error_code failed;
    const fs::path whole = fs::canonical(path_, failed);
    return failed ? fs::path() : run_file_in(whole.parent_path().parent_path());
  }
  fs::path tokenizer_path() const override {
    const fs::path own = tokenizer_in(path_);
    return own.empty() ? tokenizer_of_run(run_file()) : own;
  }

 private:
  fs::path path_;
  train::HfSource source_;
};

// One checkpoint, or the newest intact one of a folder.
class FoundCheckpoint final : public FoundWeights {
 public:
  explicit FoundCheckpoint(const fs::path& path)
      : disk_(ckpt::posix_disk()),
        place_(checkpoint_place(path)),
        generation_(open_checkpoint(*disk_, path, {})),
        dims_(model_of(*generation_)) {}

  const spec::ModelDims& dims() const override { return dims_; }

  void read(const ckpt::WriteParam& write) override {
    while (true) {
      try {
        train::CheckpointWeights(*generation_, dims_).read_all(write);
        return;
      } catch (const base::IoError& error) {
        if (place_.step) throw;
        base::log_warning("checkpoint of step {} skipped: {}", step(), error.what());
        take_older(error.what());
      }
    }
  }

  std::string description() const override {
    return fmt::format("checkpoint of step {} in {}", step(), place_.root.string());
  }
  base::Json json() const override {
    return {{"path", generation_->folder().string()}, {"step", step()}};
  }
  fs::path run_file() const override { return run_file_of(*generation_); }
  fs::path tokenizer_path() const override {
    const fs::path own = tokenizer_in(generation_->folder() / "tokenizer");
    return own.empty() ? tokenizer_of_run(run_file()) : own;
  }

 private:
  int64_t step() const { return generation_->manifest().step; }

  // Opens the next older checkpoint of the same model. Throws IoError with `problem` if there is
  // none.
  void take_older(const char* problem) {
    const int64_t before = step();
    for (const int64_t older : ckpt::committed_steps(*disk_, place_.root)) {
      if (older >= before) continue;
      try {
        ckpt::Generation next =
            ckpt::Generation::open(*disk_, place_.root / ckpt::generation_name(older));
        if (config::to_json(model_of(next)) != config::to_json(dims_)) continue;
        generation_.emplace(std::move(next));
        return;
      } catch (const base::IoError& error) {
        base::log_warning("checkpoint of step {} skipped: {}", older, error.what());
      }
    }
    throw base::IoError(fmt::format("{}: no checkpoint can be read; the error of the oldest: {}",
                                    place_.root.string(), problem));
  }

  std::unique_ptr<ckpt::Disk> disk_;
  CheckpointPlace place_;
  std::optional<ckpt::Generation>
      generation_;  // never empty; an optional so that it can be replaced
  spec::ModelDims dims_;
};

fs::file_time_type written_at(const fs::path& file) {
  std::error_code failed;
  const fs::file_time_type time = fs::last_write_time(file, failed);
  return failed ? fs::file_time_type::min() : time;
}

// Returns whether the final weights are older than the newest checkpoint, as in a run that was
// resumed after its end and has not ended again.
bool is_older_than_checkpoints(const fs::path& weights, const fs::path& root) {
  const std::vector<int64_t> steps = ckpt::committed_steps(*ckpt::posix_disk(), root);
  if (steps.empty()) return false;
  return written_at(weights / "config.json") <
         written_at(root / ckpt::generation_name(steps.front()) / ckpt::manifest_name);
}

}  // namespace

std::unique_ptr<FoundWeights> find_weights(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) {
    throw base::IoError(fmt::format(
        "{}: no such folder; give a run's folder, a checkpoint, or a folder with config.json and "
        "safetensors",
        path.string()));
  }
  if (is_hf_folder(path)) return std::make_unique<FoundFolder>(path);
  if (obs::holds_run(path)) {
    const RunFolders folders = run_folders(path);
    const fs::path final_weights = folders.weights / "final";
    if (is_hf_folder(final_weights) &&
        !is_older_than_checkpoints(final_weights, folders.checkpoints)) {
      return std::make_unique<FoundFolder>(final_weights);
    }
  } else if (!is_checkpoint(path)) {
    throw base::IoError(fmt::format(
        "{}: has no config.json and is neither a run's folder nor a checkpoint", path.string()));
  }
  return std::make_unique<FoundCheckpoint>(path);
}

Option weights_argument(bool is_required) {
  return {
      .name = "from",
      .help = "Weights: a run's folder, a checkpoint, or a folder with config.json and safetensors",
      .is_required = is_required};
}

Option tokenizer_option() {
  return {.name = "--tokenizer",
          .help =
              "Tokenizer: a tokenizer.json, a SentencePiece .model, or a folder with one; "
              "default: the one that lies with the weights"};
}

fs::path tokenizer_of(const Args& args, const FoundWeights& weights) {
  const fs::path own = weights.tokenizer_path();
  if (!args.has("--tokenizer")) return own;
  const fs::path given = args.text("--tokenizer");
  if (own.empty()) return given;
  const std::string trained = text::open_tokenizer(own)->fingerprint();
  const std::string other = text::open_tokenizer(given)->fingerprint();
  if (trained != other) {
    constexpr size_t shown = 12;
    throw base::ConfigError(fmt::format(
        "--tokenizer {}: its fingerprint is {}, and the model was trained with {}, the one of {}: "
        "its ids would mean other text; leave out --tokenizer",
        given.string(), other.substr(0, shown), trained.substr(0, shown), own.string()));
  }
  return given;
}

}  // namespace trireme::cli
