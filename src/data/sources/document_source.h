// SPDX-License-Identifier: Apache-2.0
// Documents of many shards, one after the other, on one thread. build_corpus() reads the same
// documents in the same order with many threads.
#pragma once

#include <memory>
#include <vector>

#include "data/sources/block_parser.h"
#include "data/sources/blocks.h"
#include "data/sources/document.h"

namespace trireme::data {

// Used from one thread.
class DocumentSource {
 public:
  DocumentSource(std::vector<Shard> shards, DocumentOptions options);
  DocumentSource(const DocumentSource&) = delete;
  DocumentSource& operator=(const DocumentSource&) = delete;

  // Returns false after the last document. A document that is bad has `rejected` set; a shard that
  // is damaged throws IoError. Views in `document` are valid until the next call.
  bool next(Document& document);

  const std::vector<Shard>& shards() const { return shards_; }
  // Returns hash and size of the shards that were read to their end.
  const std::vector<ShardEnd>& ends() const { return ends_; }

 private:
  std::vector<Shard> shards_;
  DocumentOptions options_;
  BlockReader reader_;
  BlockParser parser_;
  SourceBlock block_;
  bool has_block_ = false;
  int64_t lines_before_ = 0;  // in the shard
  std::vector<ShardEnd> ends_;
};

}  // namespace trireme::data
