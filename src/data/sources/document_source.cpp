// SPDX-License-Identifier: Apache-2.0
#include "data/sources/document_source.h"

namespace trireme::data {

DocumentSource::DocumentSource(std::vector<Shard> shards, DocumentOptions options)
    : shards_(std::move(shards)),
      options_(std::move(options)),
      reader_(shards_, options_),
      parser_(options_) {}

bool DocumentSource::next(Document& document) {
  while (true) {
    if (has_block_ && parser_.next(document)) {
      if (document.origin.line > 0) document.origin.line += lines_before_;
      return true;
    }
    if (has_block_) lines_before_ += parser_.lines();
    if (has_block_ && block_.end) {
      ends_.push_back(*block_.end);
      lines_before_ = 0;
    }
    has_block_ = reader_.next(block_);
    if (!has_block_) return false;
    parser_.start(block_, shards_[block_.shard]);
  }
}

}  // namespace trireme::data
