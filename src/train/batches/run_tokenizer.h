// SPDX-License-Identifier: Apache-2.0
// RunTokenizer: the tokenizer that a run's data was built with, as far as it is known. Its files
// are saved with checkpoints and weights, and its fingerprint is compared when a run is resumed.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ckpt/named_bytes.h"
#include "config/config.h"
#include "text/tokenizer.h"
#include "train/batches/data_sets.h"

namespace trireme::train {

class RunTokenizer {
 public:
  // Empty: none is known, or tokens are bytes.
  const std::string& fingerprint() const { return fingerprint_; }
  // Returns the bytes of text by token; empty: not known.
  std::span<const int32_t> token_bytes() const { return token_bytes_; }
  // Returns the content of its files, under the names that they have beside weights.
  const std::vector<ckpt::NamedBytes>& files() const { return files_; }
  const std::string& description() const { return description_; }  // empty: none is known

 private:
  friend RunTokenizer open_run_tokenizer(const config::Config&, const DataSets&, int64_t vocab);
  void read(const std::filesystem::path&, int64_t vocab);

  std::string fingerprint_, description_;
  std::vector<int32_t> token_bytes_;
  std::vector<ckpt::NamedBytes> files_;
};

// Opens training.tokenizer, or the tokenizer beside the data, or the one in training.init_from.
// Throws ConfigError if data sets were built with another one than that, or with different ones, or
// if the model has fewer tokens; IoError.
RunTokenizer open_run_tokenizer(const config::Config&, const DataSets&, int64_t vocab);

}  // namespace trireme::train
