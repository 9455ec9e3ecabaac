// SPDX-License-Identifier: Apache-2.0
// Blocks of items: whole text files, samples of tar archives, samples of MDS shards.
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/text/printable.h"
#include "data/readers/mds.h"
#include "data/readers/tar.h"
#include "data/sources/blocks.h"

namespace trireme::data {
namespace {

Rejection too_long_item(std::string_view what, int64_t bytes, int64_t allowed) {
  return {RejectReason::too_long,
          fmt::format("{} has {} bytes; allowed: {}", what, bytes, allowed)};
}

class ItemBlocks : public ShardBlocks {
 public:
  ItemBlocks(const Shard& shard, const DocumentOptions& options)
      : stream_(shard.path), max_bytes_(options.max_document_bytes) {}

  bool next(SourceBlock& block) final {
    constexpr size_t max_items = 8192;  // rejected ones have no bytes
    while (block.bytes.size() < source_block_bytes && block.items.size() < max_items &&
           add_item(block)) {
    }
    return !block.items.empty();
  }
  ShardEnd end() final {
    stream_.drain();
    return {stream_.compression(), stream_.stored_bytes(), stream_.hash()};
  }
  int64_t stored_bytes() const final { return stream_.stored_bytes(); }

 protected:
  ShardStream stream_;
  int64_t max_bytes_;

 private:
  virtual bool add_item(SourceBlock& block) = 0;
};

class WholeText final : public ItemBlocks {
 public:
  using ItemBlocks::ItemBlocks;

 private:
  bool add_item(SourceBlock& block) override {
    if (is_done_) return false;
    is_done_ = true;
    const auto max = static_cast<size_t>(max_bytes_);
    BlockItem item;
    size_t size = 0;
    do {
      block.bytes.resize(size + source_block_bytes);
      const size_t count =
          stream_.read(std::as_writable_bytes(std::span(block.bytes)).subspan(size));
      if (count == 0) break;
      size += count;
    } while (size <= max);
    block.bytes.resize(size);
    if (size > max) {
      stream_.drain();
      block.bytes.clear();
      item.rejected = too_long_item("the file", stream_.offset(), max_bytes_);
      item.rejected->detail += "; every line can be a separate document (split lines)";
    } else {
      item.payloads = {{Payload::Kind::text, 0, size}};
    }
    block.items.push_back(std::move(item));
    return true;
  }

  bool is_done_ = false;
};

// A sample is a run of members with the same name up to the first dot after the last slash.
class TarBlocks final : public ItemBlocks {
 public:
  TarBlocks(const Shard& shard, const DocumentOptions& options)
      : ItemBlocks(shard, options), reader_(stream_) {
    for (const FieldPath& path : field_paths(options)) fields_.push_back(path.text());
  }

 private:
  bool add_item(SourceBlock& block) override {
    if (!has_member_ && !next_member()) return false;
    has_member_ = true;
    const std::string key = key_;
    BlockItem item{.member = key, .offset = reader_.offset(), .payloads = {}};
    std::vector<std::optional<Payload>> found(fields_.size());
    std::optional<Payload> json;
    std::vector<std::string> extensions;
    while (has_member_ && key_ == key) {
      add_member(block, item, found, json);
      extensions.push_back(extension_);
      has_member_ = next_member();
    }
    for (size_t p = 0; p < fields_.size() && !item.rejected; ++p) {
      if (!found[p]) found[p] = json;
      if (found[p]) {
        item.payloads.push_back(*found[p]);
      } else {
        item.rejected = Rejection{
            RejectReason::wrong_field,
            fmt::format("no member for the field \"{}\"; found the extensions: {}", fields_[p],
                        base::printable(fmt::format("{}", fmt::join(extensions, ", "))))};
      }
    }
    block.items.push_back(std::move(item));
    return true;
  }

  void add_member(SourceBlock& block, BlockItem& item, std::vector<std::optional<Payload>>& found,
                  std::optional<Payload>& json) {
    const bool is_json = extension_ == "json";
    std::optional<size_t> field;
    for (size_t p = 0; p < fields_.size(); ++p) {
      if (extension_ == fields_[p] || (extension_ == "txt" && fields_[p] == "text")) field = p;
    }
    if ((!field && !is_json) || item.rejected) return;
    if (reader_.bytes() > max_bytes_) {
      item.rejected = too_long_item(fmt::format("the member {}", base::printable(reader_.name())),
                                    reader_.bytes(), max_bytes_);
      return;
    }
    std::optional<Payload>& target = field ? found[*field] : json;
    if (target) {
      item.rejected = Rejection{RejectReason::wrong_field,
                                fmt::format("a second member {}", base::printable(reader_.name()))};
      return;
    }
    const size_t begin = block.bytes.size();
    reader_.read(block.bytes);
    target = Payload{field ? Payload::Kind::text : Payload::Kind::json, begin, block.bytes.size()};
  }

  // Goes to the next member that belongs to a sample, as WebDataset defines it.
  bool next_member() {
    while (reader_.next()) {
      const std::string& name = reader_.name();
      const size_t slash = name.rfind('/');
      const size_t base = slash == std::string::npos ? 0 : slash + 1;
      const size_t dot = name.find('.', base);
      if (dot == std::string::npos || dot == base) continue;
      key_ = name.substr(0, dot);
      extension_ = name.substr(dot + 1);
      if (!extension_.empty()) return true;
    }
    return false;
  }

  TarReader reader_;
  std::vector<std::string> fields_;
  std::string key_, extension_;  // of the current member
  bool has_member_ = false;
};

class MdsBlocks final : public ItemBlocks {
 public:
  MdsBlocks(const Shard& shard, const DocumentOptions& options)
      : ItemBlocks(shard, options), shard_(shard.mds), reader_(stream_, *shard_) {
    for (const FieldPath& path : field_paths(options)) add_field(path);
  }

 private:
  struct Column {
    size_t index;
    Payload::Kind kind;
  };

  bool add_item(SourceBlock& block) override {
    if (!reader_.next(sample_, max_bytes_)) return false;
    BlockItem item{.member = fmt::format("sample {}", reader_.index()),
                   .offset = reader_.offset(),
                   .payloads = {}};
    if (int64_t{reader_.sample_bytes()} > max_bytes_) {
      item.rejected = too_long_item("the sample", reader_.sample_bytes(), max_bytes_);
    } else {
      for (const Column& column : columns_) {
        const size_t begin = block.bytes.size();
        block.bytes += reader_.column(sample_, column.index);
        item.payloads.push_back({column.kind, begin, block.bytes.size()});
      }
    }
    block.items.push_back(std::move(item));
    return true;
  }

  void add_field(const FieldPath& path) {
    const auto& columns = shard_->columns;
    const auto found = std::find_if(columns.begin(), columns.end(), [&](const MdsColumn& c) {
      return c.name == path.keys.front() || c.name == path.text();
    });
    if (found == columns.end()) {
      std::vector<std::string> names;
      for (const MdsColumn& column : columns) names.push_back(column.name);
      throw base::IoError(fmt::format("{}: no column \"{}\"; found: {}", stream_.name(),
                                      path.keys.front(), fmt::join(names, ", ")));
    }
    const bool is_text = found->encoding == "str" || found->encoding == "bytes";
    const bool is_json = found->encoding == "json" && path.keys.size() > 1;
    if (!is_text && !is_json) {
      throw base::IoError(fmt::format(
          "{}: the column \"{}\" has the encoding {}; allowed: str, bytes, or json with the key in "
          "it (column.key)",
          stream_.name(), found->name, found->encoding));
    }
    columns_.push_back({static_cast<size_t>(found - columns.begin()),
                        is_text ? Payload::Kind::text : Payload::Kind::json_column});
  }

  std::shared_ptr<const MdsShard> shard_;
  MdsReader reader_;
  std::vector<Column> columns_;
  std::string sample_;
};

}  // namespace

std::unique_ptr<ShardBlocks> open_item_blocks(const Shard& shard, const DocumentOptions& options) {
  if (shard.kind == SourceKind::tar) return std::make_unique<TarBlocks>(shard, options);
  if (shard.kind == SourceKind::mds) return std::make_unique<MdsBlocks>(shard, options);
  check_no_completion(shard, options);
  return std::make_unique<WholeText>(shard, options);
}

}  // namespace trireme::data
