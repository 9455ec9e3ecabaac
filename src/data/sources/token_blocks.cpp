// SPDX-License-Identifier: Apache-2.0
// Blocks of documents that are token ids already: Megatron, llm.c and nanoGPT files.
#include <algorithm>

#include "data/readers/content_hash.h"
#include "data/sources/blocks.h"

namespace trireme::data {
namespace {

class TokenBlocks final : public ShardBlocks {
 public:
  TokenBlocks(const Shard& shard, const DocumentOptions& options)
      : data_(open_tokens(shard.path, options.tokens)), documents_(data_->documents().count()) {}

  bool next(SourceBlock& block) override {
    constexpr int64_t block_tokens = source_block_bytes / sizeof(int32_t);
    if (at_ == documents_) return false;
    block.kind = SourceBlock::Kind::tokens;
    block.tokens = data_;
    block.first_document = at_;
    const DocumentIndex& index = data_->documents();
    const int64_t end = index.start(at_) + block_tokens;
    do {
      ++at_;
    } while (at_ < documents_ && index.start(at_ + 1) <= end &&
             at_ - block.first_document < block_tokens);
    block.end_document = at_;
    tokens_done_ = index.start(at_);
    return true;
  }

  ShardEnd end() override {
    ContentHash hash;
    int64_t bytes = 0;
    for (const MappedFile& file : data_->files()) {
      hash.add(file.bytes());
      bytes += static_cast<int64_t>(file.bytes().size());
    }
    return {Compression::none, bytes, hash.hex()};
  }
  int64_t stored_bytes() const override { return tokens_done_ * size_of(data_->type()); }

 private:
  std::shared_ptr<const TokenData> data_;
  int64_t documents_;
  int64_t at_ = 0, tokens_done_ = 0;
};

}  // namespace

std::unique_ptr<ShardBlocks> open_token_blocks(const Shard& shard, const DocumentOptions& options) {
  return std::make_unique<TokenBlocks>(shard, options);
}

}  // namespace trireme::data
