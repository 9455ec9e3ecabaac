// SPDX-License-Identifier: Apache-2.0
// Weights of a run on disk, in Hugging Face form: <folder>/final, <folder>/step-00000100, ...
#pragma once

#include <filesystem>
#include <string>

#include "ckpt/hf_weights.h"
#include "config/config.h"
#include "engine/engine.h"
#include "train/rank.h"

namespace trireme::train {

class Saver {
 public:
  // Throws ConfigError where weights, checkpoints and TensorBoard events would share a folder, by
  // name or through links, or the folder of one holds the other's files.
  Saver(std::filesystem::path folder, const config::Config&);

  // Writes <folder>/<name> whole or not at all, and removes the oldest weights of steps beyond
  // checkpoint.keep_latest_k (0: none) that this program wrote; what cannot be removed is a
  // warning. Returns the path.
  std::filesystem::path save(const std::string& name, const ckpt::ReadParam& read) const;

 private:
  std::filesystem::path folder_;
  const config::Config& config_;
};

// Weights of all ranks through the first one, which alone has a `saver` (null: another rank).
// Returns its path there, else none. Collective.
std::filesystem::path save_weights(engine::Engine&, Rank&, const Saver* saver,
                                   const std::string& name);

}  // namespace trireme::train
