// SPDX-License-Identifier: Apache-2.0
// Pieces are counted by worker and added up at the end: sums do not depend on the order.
#include "data/train_tokenizer.h"

#include <fmt/core.h>

#include <memory>

#include "base/error.h"
#include "data/corpus/in_order.h"
#include "data/sources/block_parser.h"

namespace trireme::data {
namespace {

using base::ConfigError;
using base::IoError;

struct CountedBlock {
  SourceBlock source;
  int64_t documents = 0, text_bytes = 0, rejected = 0;
  std::string first_rejected, sample;
};

constexpr size_t max_sample_bytes = size_t{1} << 20;

// Counts the pieces of documents. Used from one thread.
class PieceCounter {
 public:
  explicit PieceCounter(const TokenizerTrainingOptions& options)
      : parser_(options.documents), trainer_(std::make_unique<text::BpeTrainer>(options.bpe)) {}

  void count(CountedBlock& block, const Shard& shard) {
    block.documents = block.text_bytes = block.rejected = 0;
    block.first_rejected.clear();
    block.sample.clear();
    parser_.start(block.source, shard);
    while (parser_.next(document_)) {
      if (document_.rejected) {
        if (++block.rejected == 1) {
          block.first_rejected =
              fmt::format("{}: {}: {}", to_text(document_.origin),
                          name_of(document_.rejected->reason), document_.rejected->detail);
        }
        continue;
      }
      ++block.documents;
      for (const std::string_view text : {document_.text, document_.completion.value_or("")}) {
        trainer_->add(text);
        block.text_bytes += static_cast<int64_t>(text.size());
        if (block.sample.size() < max_sample_bytes) {
          block.sample += text.substr(0, max_sample_bytes - block.sample.size());
        }
      }
    }
  }
  const text::BpeTrainer& trainer() const { return *trainer_; }

 private:
  BlockParser parser_;
  std::unique_ptr<text::BpeTrainer> trainer_;
  Document document_;
};

class TokenizerTrainer {
 public:
  TokenizerTrainer(const TokenizerTrainingOptions& options, std::vector<Shard> shards)
      : options_(options), shards_(std::move(shards)) {
    for (const Shard& shard : shards_) {
      if (shard.kind == SourceKind::tokens) {
        throw ConfigError(fmt::format(
            "{}: holds tokens; a tokenizer is trained on text: give .txt, .jsonl, .tar or MDS",
            shard.path.string()));
      }
      if (shard.path == "-") progress_.bytes_total = -1;
      if (progress_.bytes_total >= 0) progress_.bytes_total += shard.stored_bytes;
    }
    for (int i = 0; i < options_.workers; ++i) counters_.emplace_back(options_);
  }

  TokenizerTraining run() {
    BlockReader reader(shards_, options_.documents);
    int64_t read_bytes = 0;
    InOrder<CountedBlock> stages(
        {.read =
             [&](CountedBlock& block) {
               if (options_.max_bytes > 0 && read_bytes >= options_.max_bytes) return false;
               if (!reader.next(block.source)) return false;
               read_bytes += static_cast<int64_t>(block.source.bytes.size());
               return true;
             },
         .work =
             [&](CountedBlock& block, size_t worker) {
               counters_[worker].count(block, shards_[block.source.shard]);
             },
         .write = [&](CountedBlock& block) { add(block); }},
        options_.workers);
    stages.run();
    if (result_.text_bytes == 0) {
      throw IoError(fmt::format("no text to train a tokenizer on: {} documents, {} rejected{}{}",
                                result_.documents, result_.rejected,
                                result_.rejected > 0 ? "; first: " : "", result_.first_rejected));
    }
    text::BpeTrainer all(options_.bpe);
    for (const PieceCounter& counter : counters_) all.add_counts_of(counter.trainer());
    result_.pieces = all.pieces();
    result_.json = all.train([this](int32_t tokens) {
      progress_.tokens = tokens;
      if (options_.progress) options_.progress(progress_);
    });
    return std::move(result_);
  }

 private:
  void add(const CountedBlock& block) {
    result_.documents += block.documents;
    result_.text_bytes += block.text_bytes;
    result_.rejected += block.rejected;
    if (result_.first_rejected.empty()) result_.first_rejected = block.first_rejected;
    if (result_.sample.size() < max_sample_bytes) {
      result_.sample += block.sample.substr(0, max_sample_bytes - result_.sample.size());
    }
    progress_.documents = result_.documents;
    progress_.bytes_done = bytes_before_ + (block.source.end ? block.source.end->stored_bytes
                                                             : block.source.stored_bytes);
    if (block.source.end) bytes_before_ += block.source.end->stored_bytes;
    if (options_.progress) options_.progress(progress_);
  }

  const TokenizerTrainingOptions& options_;
  std::vector<Shard> shards_;
  std::vector<PieceCounter> counters_;
  TokenizerTrainingProgress progress_;
  int64_t bytes_before_ = 0;  // of the shards that were read to their end
  TokenizerTraining result_;
};

}  // namespace

TokenizerTraining train_tokenizer(const TokenizerTrainingOptions& options) {
  if (options.workers < 1 || options.workers > 1024) {
    throw ConfigError(fmt::format("{} workers; allowed: 1 .. 1024", options.workers));
  }
  if (options.max_bytes < 0) {
    throw ConfigError(
        fmt::format("at most {} bytes of text; allowed: 1 or more, 0: all", options.max_bytes));
  }
  if (options.documents.max_document_bytes < 1) {
    throw ConfigError(fmt::format("documents of at most {} bytes; allowed: 1 or more",
                                  options.documents.max_document_bytes));
  }
  (void)text::BpeTrainer(options.bpe);  // throws about its options before anything is read
  return TokenizerTrainer(options, find_shards(options.inputs, {.kind = options.kind})).run();
}

}  // namespace trireme::data
