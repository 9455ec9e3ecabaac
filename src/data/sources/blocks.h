// SPDX-License-Identifier: Apache-2.0
// Shards as blocks of raw documents: what one thread must do in order (reading, decompressing,
// finding the ends of lines and members). BlockParser does the rest, on any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/files/token_data.h"
#include "data/readers/byte_stream.h"
#include "data/readers/json_fields.h"
#include "data/sources/document.h"
#include "data/sources/shards.h"

namespace trireme::data {

struct DocumentOptions {
  // JSON lines: the path of a string. MDS: a column; of a column of JSON, column.path. Tar: member
  // KEY.FIELD as text, otherwise the path in KEY.json; the field "text" is also KEY.txt.
  std::string text_field = "text";
  // Instead of text_field, both or none: the loss is taken over the completion only.
  std::string prompt_field, completion_field;
  bool split_lines = false;  // text: every line is a document, without its end; blank ones are none
  bool raw_bytes = false;    // text: accept bytes that are not UTF-8, and NUL
  bool offers_raw_bytes = false;  // messages name the option --raw-bytes: the verb has it
  int64_t max_document_bytes = int64_t{256} << 20;  // of a line, file, member or sample
  OpenOptions tokens;                               // files of tokens
};
// Returns one path, or those of prompt and completion. Throws ConfigError.
std::vector<FieldPath> field_paths(const DocumentOptions&);
// Throws ConfigError if prompt and completion are asked of a text file, which has no fields.
void check_no_completion(const Shard&, const DocumentOptions&);

// What a field of an item is read from.
struct Payload {
  enum class Kind : uint8_t { text, json, json_column };
  Kind kind = Kind::text;
  size_t begin = 0, end = 0;  // in SourceBlock::bytes
};

struct BlockItem {
  std::string member;
  int64_t offset = 0;
  std::vector<Payload> payloads;  // one per field, unless rejected
  std::optional<Rejection> rejected;
};

// A shard's facts once it was read to its end.
struct ShardEnd {
  Compression compression = Compression::none;
  int64_t stored_bytes = 0;
  std::string hash;  // XXH3-128 of the bytes as stored
};

struct SourceBlock {
  enum class Kind : uint8_t { text_lines, json_lines, items, tokens };
  Kind kind = Kind::items;
  size_t shard = 0;
  std::string bytes;             // lines: complete ones; items: their payloads
  int64_t offset = 0;            // lines: of bytes[0] in the shard
  std::vector<BlockItem> items;  // also of line blocks: a line too long to be stored
  int64_t lines = 0;             // of items: lines that they stand for
  int64_t stored_bytes = 0;      // of the shard, read so far

  std::shared_ptr<const TokenData> tokens;  // shared by the blocks of a shard
  int64_t first_document = 0, end_document = 0;

  std::optional<ShardEnd> end;  // set in the last block of a shard, which has no documents
};

// Yields the blocks of one shard.
class ShardBlocks {
 public:
  virtual ~ShardBlocks() = default;
  // Fills `block`, which is empty. Returns false at the end.
  virtual bool next(SourceBlock& block) = 0;
  // REQUIRES: next() returned false.
  virtual ShardEnd end() = 0;
  virtual int64_t stored_bytes() const = 0;  // read so far
};
// Throws IoError about the file, ConfigError about the options.
std::unique_ptr<ShardBlocks> open_shard(const Shard&, const DocumentOptions&);
std::unique_ptr<ShardBlocks> open_line_blocks(const Shard&, const DocumentOptions&);
std::unique_ptr<ShardBlocks> open_item_blocks(const Shard&, const DocumentOptions&);
std::unique_ptr<ShardBlocks> open_token_blocks(const Shard&, const DocumentOptions&);

// Yields the blocks of all shards in order. Used from one thread at a time.
class BlockReader {
 public:
  // Starts with shards[first]. REQUIRES: shards and options outlive the reader.
  BlockReader(std::span<const Shard> shards, const DocumentOptions& options, size_t first = 0);

  // Reuses the memory of `block`. Returns false after the last shard.
  bool next(SourceBlock& block);

 private:
  std::span<const Shard> shards_;
  const DocumentOptions& options_;
  size_t shard_;
  std::unique_ptr<ShardBlocks> open_;
};

inline constexpr size_t source_block_bytes = 1 << 20;

}  // namespace trireme::data
