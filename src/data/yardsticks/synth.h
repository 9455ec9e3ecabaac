// SPDX-License-Identifier: Apache-2.0
// `data synth`: a data set with known entropy.
#pragma once

#include <cstdint>
#include <filesystem>

#include "data/files/token_data.h"

namespace trireme::data {

struct SynthOptions {
  std::filesystem::path output;                // see write_tokens()
  TokenFormat format = TokenFormat::megatron;  // or llmc
  uint64_t seed = 0;
  int vocab = 64, order = 1;  // vocab^order <= 2^20
  double sharpness = 4;       // of the transition rows; see MarkovSource
  int64_t documents = 1000, document_tokens = 1024;
};

struct SynthReport {
  int64_t documents = 0, tokens = 0;
  double entropy_rate = 0;  // nats per token, exact: the lowest loss that a model can reach
};

// Each document is a stream of one Markov source, without end-of-document tokens. Throws
// ConfigError about the options, IoError about the files. Memory holds one document.
SynthReport synthesize(const SynthOptions&);

}  // namespace trireme::data
