// SPDX-License-Identifier: Apache-2.0
// From the inputs that a user names to the list of files to read, in an order that does not depend
// on the file system.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::data {

enum class SourceKind : uint8_t { automatic, text, json_lines, tar, mds, tokens };
std::string_view name_of(SourceKind);  // "auto", "text", "jsonl", "tar", "mds", "tokens"
// Throws ConfigError that lists the names.
SourceKind source_kind_from_name(std::string_view name);

struct MdsShard;  // readers/mds.h

// A file of documents.
struct Shard {
  std::filesystem::path path;  // "-": stdin. Tokens: as open_tokens() takes it
  SourceKind kind = SourceKind::text;
  size_t source = 0;         // which input names it
  int64_t stored_bytes = 0;  // size of the file, -1 for stdin
  // MDS only, shared by the copies of the shard: it is constant.
  std::shared_ptr<const MdsShard> mds;
};

struct ShardOptions {
  // automatic: by the name. Otherwise every file of the inputs is of this kind.
  SourceKind kind = SourceKind::automatic;
};

// An input is a file, a folder (all files below it, sorted by path), a pattern with * ? [ { (sorted),
// "@list.txt" (one input per line; paths are relative to the list; empty lines and lines that begin
// with # are skipped), or "-" for stdin, which needs a kind. A folder with an index.json, or the
// index itself, is an MDS data set.
//
// Kinds by name, each also with .gz, .zst or .zstd: .txt; .jsonl and .ndjson (.json only if
// compressed, as in C4); .tar and .tgz; .bin and .idx (tokens; the two files of a Megatron pair are
// one shard). In folders other files are skipped; named directly they are refused.
//
// Throws ConfigError about an input, IoError about a file that cannot be read.
std::vector<Shard> find_shards(const std::vector<std::string>& inputs, const ShardOptions&);

// Returns the .idx beside the .bin of a shard of tokens, if there is one.
std::optional<std::filesystem::path> index_beside(const Shard&);

}  // namespace trireme::data
