// SPDX-License-Identifier: Apache-2.0
#include "data/sources/blocks.h"

#include <fmt/core.h>

#include "base/error.h"

namespace trireme::data {

std::vector<FieldPath> field_paths(const DocumentOptions& options) {
  if (options.prompt_field.empty() != options.completion_field.empty()) {
    throw base::ConfigError(
        fmt::format("the prompt field '{}' and the completion field '{}' must be given together",
                    options.prompt_field, options.completion_field));
  }
  if (options.prompt_field.empty()) return {field_path(options.text_field)};
  return {field_path(options.prompt_field), field_path(options.completion_field)};
}

void check_no_completion(const Shard& shard, const DocumentOptions& options) {
  if (!options.prompt_field.empty()) {
    throw base::ConfigError(fmt::format(
        "{}: a text file has no fields for prompt and completion; give JSON lines, tar or MDS",
        shard.path.string()));
  }
}

std::unique_ptr<ShardBlocks> open_shard(const Shard& shard, const DocumentOptions& options) {
  switch (shard.kind) {
    case SourceKind::json_lines:
      return open_line_blocks(shard, options);
    case SourceKind::text:
      return options.split_lines ? open_line_blocks(shard, options)
                                 : open_item_blocks(shard, options);
    case SourceKind::tokens:
      return open_token_blocks(shard, options);
    case SourceKind::tar:
    case SourceKind::mds:
    case SourceKind::automatic:
      break;
  }
  return open_item_blocks(shard, options);
}

BlockReader::BlockReader(std::span<const Shard> shards, const DocumentOptions& options,
                         size_t first)
    : shards_(shards), options_(options), shard_(first) {}

bool BlockReader::next(SourceBlock& block) {
  block.kind = SourceBlock::Kind::items;
  block.bytes.clear();
  block.items.clear();
  block.offset = block.lines = 0;
  block.tokens.reset();
  block.end.reset();
  if (shard_ == shards_.size()) return false;
  block.shard = shard_;
  if (!open_) open_ = open_shard(shards_[shard_], options_);
  if (!open_->next(block)) {
    block.kind = SourceBlock::Kind::items;
    block.end = open_->end();
    open_.reset();
    ++shard_;
    block.stored_bytes = block.end->stored_bytes;
    return true;
  }
  block.stored_bytes = open_->stored_bytes();
  return true;
}

}  // namespace trireme::data
