// SPDX-License-Identifier: Apache-2.0
// Weights of a run on disk, in Hugging Face form: <folder>/final, <folder>/step-00000100, ...
#pragma once

#include <filesystem>
#include <string>

#include "ckpt/hf_weights.h"
#include "config/config.h"

namespace trireme::train {

class Saver {
 public:
  Saver(std::filesystem::path folder, const config::Config&);

  // Writes <folder>/<name> whole or not at all, and removes the oldest step folders beyond
  // checkpoint.keep_latest_k (0: none). Returns the path.
  std::filesystem::path save(const std::string& name, const ckpt::ReadParam& read) const;

 private:
  void prune() const;

  std::filesystem::path folder_;
  const config::Config& config_;
};

}  // namespace trireme::train
