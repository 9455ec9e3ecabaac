// SPDX-License-Identifier: Apache-2.0
// The first configuration for a data set and a machine: model, sequence, batch and steps by rules
// of thumb, and a micro-batch and recomputation with which the predicted memory fits.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "config/config_text.h"
#include "spec/model.h"

namespace trireme::cli {

struct FirstJob {
  std::string data;         // as it was given
  int64_t tokens = 0;       // of the data
  int64_t vocab = 0;        // ids of its tokens are below this
  bool has_bytes = false;   // one token per byte
  std::string model;        // for model.name; empty: `parameters` decides
  double parameters = 0;    // of a model that is made; 0: as many as data and memory allow
  std::string tokens_text;  // "1,234 tokens of book.bin, megatron"

  int64_t gpus = 0;          // 0: one rank on the CPU
  int64_t memory_bytes = 0;  // that a rank can use
  std::string hardware;      // "8 x h100", "the CPU, 12.3 GiB free"
};

struct FirstConfig {
  config::Config config;
  config::WrittenKeys written;  // comments, and the sizes of a model that was made
  int64_t parameters = 0;
  int64_t bytes = 0;  // predicted memory of a rank
};

// Throws ConfigError if the model is unknown, the data too short, or if nothing fits the memory.
FirstConfig first_config(const FirstJob&);

}  // namespace trireme::cli
