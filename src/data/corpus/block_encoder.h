// SPDX-License-Identifier: Apache-2.0
// From a block of documents to the bytes that are written: the stage that runs in parallel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "data/corpus/corpus.h"
#include "data/corpus/rejected.h"
#include "data/sources/block_parser.h"

namespace trireme::data {

struct CorpusBlock {
  SourceBlock source;

  std::vector<std::byte> tokens;  // as stored
  std::vector<int64_t> lengths;   // of the documents, in tokens
  std::vector<std::byte> mask;    // one byte per token, if there are masks: 1 if it is predicted
  std::vector<RejectedDocument> rejected;
  CorpusCounts counts;  // stored_bytes is not set
  int64_t lines = 0;
};

// Used from one thread.
class BlockEncoder {
 public:
  BlockEncoder(const CorpusOptions& options, TokenType type, int64_t vocab);

  // Fills `block` from block.source.
  void encode(CorpusBlock& block, const Shard& shard);

 private:
  // Appends to ids_ (and mask_), or returns why not.
  std::optional<Rejection> append(const Document& document);
  std::optional<Rejection> append_text(std::string_view text);
  void store(CorpusBlock& block) const;

  BlockParser parser_;
  CorpusTokenizer tokenizer_;
  Encoder encoder_;
  bool has_mask_;
  int reserved_byte_;  // rejected in texts; -1: none
  TokenType type_;
  int64_t vocab_;
  Document document_;
  std::vector<int32_t> ids_;  // of the block
  std::vector<std::byte> mask_;
};

}  // namespace trireme::data
