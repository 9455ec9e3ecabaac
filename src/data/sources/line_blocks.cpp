// SPDX-License-Identifier: Apache-2.0
// Blocks of complete lines. A line that is longer than the limit is read to its end but not stored,
// so that memory stays bounded.
#include <fmt/core.h>

#include <cstring>

#include "data/sources/blocks.h"

namespace trireme::data {
namespace {

class LineBlocks final : public ShardBlocks {
 public:
  LineBlocks(const Shard& shard, const DocumentOptions& options)
      : stream_(shard.path),
        kind_(shard.kind == SourceKind::json_lines ? SourceBlock::Kind::json_lines
                                                   : SourceBlock::Kind::text_lines),
        max_line_(static_cast<size_t>(options.max_document_bytes)) {}

  bool next(SourceBlock& block) override {
    block.kind = kind_;
    block.offset = stream_.offset() - static_cast<int64_t>(rest_.size());
    std::swap(block.bytes, rest_);
    rest_.clear();
    size_t searched = 0;  // bytes without a newline
    while (!is_at_end_) {
      const size_t before = block.bytes.size();
      block.bytes.resize(before + source_block_bytes);
      const size_t count =
          stream_.read(std::as_writable_bytes(std::span(block.bytes)).subspan(before));
      block.bytes.resize(before + count);
      is_at_end_ = count == 0;
      const void* newline =
          ::memrchr(block.bytes.data() + searched, '\n', block.bytes.size() - searched);
      searched = block.bytes.size();
      if (newline != nullptr) {
        const auto end =
            static_cast<size_t>(static_cast<const char*>(newline) - block.bytes.data()) + 1;
        rest_.assign(block.bytes, end);
        block.bytes.resize(end);
        return true;
      }
      if (block.bytes.size() > max_line_) {
        skip_line(block);
        return true;
      }
    }
    return !block.bytes.empty();
  }

  ShardEnd end() override {
    return {stream_.compression(), stream_.stored_bytes(), stream_.hash()};
  }
  int64_t stored_bytes() const override { return stream_.stored_bytes(); }

 private:
  // Reads to the end of the line that `block` holds the start of.
  void skip_line(SourceBlock& block) {
    size_t length = block.bytes.size();
    std::string& buffer = block.bytes;
    while (true) {
      buffer.resize(source_block_bytes);
      const size_t count = stream_.read(std::as_writable_bytes(std::span(buffer)));
      const void* newline = std::memchr(buffer.data(), '\n', count);
      if (newline != nullptr) {
        const auto at = static_cast<size_t>(static_cast<const char*>(newline) - buffer.data());
        length += at;
        rest_.assign(buffer, at + 1, count - at - 1);
        break;
      }
      length += count;
      if (count == 0) {
        is_at_end_ = true;
        break;
      }
    }
    block.bytes.clear();
    block.kind = SourceBlock::Kind::items;
    block.lines = 1;
    block.items.push_back({.offset = block.offset,
                           .rejected = Rejection{RejectReason::too_long,
                                                 fmt::format("the line has {} bytes; allowed: {}",
                                                             length, max_line_)}});
  }

  ShardStream stream_;
  SourceBlock::Kind kind_;
  size_t max_line_;
  std::string rest_;  // the start of a line, read with the block before
  bool is_at_end_ = false;
};

}  // namespace

std::unique_ptr<ShardBlocks> open_line_blocks(const Shard& shard, const DocumentOptions& options) {
  if (shard.kind == SourceKind::text) check_no_completion(shard, options);
  return std::make_unique<LineBlocks>(shard, options);
}

}  // namespace trireme::data
