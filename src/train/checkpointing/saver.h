// SPDX-License-Identifier: Apache-2.0
// Weights of a run on disk, in Hugging Face form: <folder>/final, <folder>/step-00000100, ...
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "ckpt/hf/hf_weights.h"
#include "config/config.h"
#include "engine/engine.h"
#include "train/setup/rank.h"

namespace trireme::train {

// Throws ConfigError if weights, checkpoints and TensorBoard events would share a folder, by name
// or through links, or if the folder of one contains files of another.
void check_own_folders(const config::Config&);

class Saver {
 public:
  // `guard` throws Fenced once another process has taken the run's folder over.
  // `tokenizer`: files that are written beside the weights; must outlive it.
  Saver(std::filesystem::path folder, const config::Config&,
        const std::vector<ckpt::NamedBytes>& tokenizer, std::function<void()> guard);

  const std::filesystem::path& folder() const { return folder_; }

  // Writes <folder>/<name> atomically, and removes the oldest weights of steps beyond
  // checkpoint.keep_latest_k (0: none) that this program wrote; a failed removal is logged as a
  // warning. Returns the path.
  std::filesystem::path save(const std::string& name, const ckpt::ReadParam& read) const;

 private:
  std::filesystem::path folder_;
  const config::Config& config_;
  const std::vector<ckpt::NamedBytes>& tokenizer_;
  std::function<void()> guard_;
};

struct SavedWeights {
  std::filesystem::path path;  // on the first rank; empty: none was written
  std::string problem;         // on the first rank: why none was written
  int64_t bytes = 0;           // of its files
  double seconds = 0;
};
// Exports the weights of all ranks through the first one; `saver` is null on the others. A failed
// export is reported in the result, and training continues. An export may take longer than the
// deadline of a communication. Collective.
SavedWeights save_weights(engine::Engine&, Rank&, const Saver* saver, const std::string& name);

}  // namespace trireme::train
