// SPDX-License-Identifier: Apache-2.0
// Trains a tokenizer on documents: the sources of build_corpus(), read and counted by several
// threads.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/sources/blocks.h"
#include "data/sources/shards.h"
#include "text/train/train_bpe.h"

namespace trireme::data {

struct TokenizerTrainingProgress {
  int64_t bytes_done = 0, bytes_total = 0;  // of the shards as stored; total is -1 with stdin
  int64_t documents = 0;
  int32_t tokens = 0;  // of the vocabulary; 0 while documents are read
};

struct TokenizerTrainingOptions {
  std::vector<std::string> inputs;  // see find_shards()
  SourceKind kind = SourceKind::automatic;
  DocumentOptions documents;
  text::TrainBpeOptions bpe;
  int workers = 1;        // threads; the result does not depend on it
  int64_t max_bytes = 0;  // of the inputs, decompressed; documents behind them are not read; 0: all
  // Called by one thread at a time. It may throw, which ends the training.
  std::function<void(const TokenizerTrainingProgress&)> progress;
};

struct TokenizerTraining {
  std::string json;  // content of tokenizer.json
  int64_t documents = 0, text_bytes = 0, rejected = 0;
  int64_t pieces = 0;          // different ones
  std::string first_rejected;  // place and reason; empty without rejections
  std::string sample;          // the beginning of the text, at most 1 MiB
};

// Documents that build_corpus() rejects are left out and counted. Throws as build_corpus() does,
// and IoError if no text is left.
TokenizerTraining train_tokenizer(const TokenizerTrainingOptions&);

}  // namespace trireme::data
