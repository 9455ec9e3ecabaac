// SPDX-License-Identifier: Apache-2.0
// Trains a byte-level BPE tokenizer: the most frequent pair of neighbours merges first, until the
// vocabulary is full. The result depends on the texts and options only, and has the merges of
// Hugging Face `tokenizers` (ties go to the pair with the lowest ids).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/pipeline/known_patterns.h"

namespace trireme::text {

struct TrainBpeOptions {
  int32_t vocab_size = 0;  // special tokens and the 256 bytes included
  int64_t min_frequency = 2;
  std::vector<std::string> special_tokens;  // get the first ids
  KnownPattern pattern = KnownPattern::llama3;
  bool nfc = false;  // normalize texts to NFC, in training and in use
};

class BpeTrainer {
 public:
  // Throws ConfigError if the options leave no room, or a special token is empty or listed twice.
  explicit BpeTrainer(TrainBpeOptions options);
  ~BpeTrainer();
  BpeTrainer(const BpeTrainer&) = delete;
  BpeTrainer& operator=(const BpeTrainer&) = delete;

  // Counts the pieces of a text. Invalid UTF-8 is replaced by U+FFFD.
  void add(std::string_view text);
  // Adds the counts of another trainer with the same options, so that several threads can count.
  void add_counts_of(const BpeTrainer& other);
  // Returns the number of different pieces.
  int64_t pieces() const;
  // Trains, and returns the content of a tokenizer.json. Fewer tokens than vocab_size if no pair is
  // frequent enough. `progress` is called with the number of tokens so far; it may be empty.
  std::string train(const std::function<void(int32_t tokens)>& progress = {}) const;

 private:
  struct Words;
  TrainBpeOptions options_;
  std::unique_ptr<Words> words_;
};

std::string train_bpe(std::span<const std::string_view> texts, const TrainBpeOptions& options);

// Writes the file so that it appears complete or not at all. Throws IoError.
void write_tokenizer(const std::filesystem::path& file, std::string_view content);

}  // namespace trireme::text
