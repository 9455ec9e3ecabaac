// SPDX-License-Identifier: Apache-2.0
#include "data/corpus/identity.h"

#include <fmt/core.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "base/text/json.h"
#include "data/files/mapped_file.h"
#include "data/readers/content_hash.h"

namespace trireme::data {

namespace fs = std::filesystem;
using base::ConfigError;
using base::IoError;
using base::Json;

int64_t corpus_vocab(const CorpusOptions& options) {
  constexpr int32_t max_special = 1 << 24;
  const CorpusTokenizer& tokenizer = options.tokenizer;
  for (const int32_t special : {tokenizer.begin_of_document, tokenizer.end_of_document}) {
    if (special < -1 || special > max_special) {
      throw ConfigError(
          fmt::format("data build: a begin- or end-of-document token {}; allowed: 0 .. {}, or -1 "
                      "for none",
                      special, max_special));
    }
  }
  return std::max({tokenizer.vocab, int64_t{tokenizer.begin_of_document} + 1,
                   int64_t{tokenizer.end_of_document} + 1});
}

Json identity_of(const CorpusOptions& options, const std::vector<Shard>& shards, int64_t vocab) {
  const DocumentOptions& documents = options.documents;
  Json identity{{"format", std::string(name_of(options.format))},
                {"vocab", vocab},
                {"tokenizer", options.tokenizer.fingerprint},
                {"begin_of_document", options.tokenizer.begin_of_document},
                {"end_of_document", options.tokenizer.end_of_document},
                {"text_field", json_name(documents.text_field)},
                {"prompt_field", json_name(documents.prompt_field)},
                {"completion_field", json_name(documents.completion_field)},
                {"split_lines", documents.split_lines},
                {"raw_bytes", documents.raw_bytes},
                {"max_document_bytes", documents.max_document_bytes},
                {"token_type", documents.tokens.type},
                {"token_end_of_document", documents.tokens.end_of_document}};
  identity["shards"] = Json::array();
  for (const Shard& shard : shards) {
    identity["shards"].push_back({{"file", json_name(shard.path)},
                                  {"kind", std::string(name_of(shard.kind))},
                                  {"source", shard.source},
                                  {"bytes", shard.stored_bytes}});
    // Two builds from stdin never read the same input.
    if (shard.path == "-") {
      identity["stdin"] = std::chrono::system_clock::now().time_since_epoch().count();
    }
  }
  return identity;
}

void check_outside(const CorpusOptions& options, const std::vector<Shard>& shards,
                   const fs::path& prefix) {
  const std::string output = fs::absolute(prefix).lexically_normal().string();
  for (const std::string& input : options.inputs) {
    std::error_code ignored;
    if (!fs::is_directory(input, ignored)) continue;
    const std::string folder = (fs::absolute(input) / "").lexically_normal().string();
    if (output.starts_with(folder)) {
      throw ConfigError(
          fmt::format("{}: the output lies in the input folder {}, where it would be read; give "
                      "another place",
                      prefix.string(), input));
    }
  }
  for (const Shard& shard : shards) {
    const std::string file = fs::absolute(shard.path).lexically_normal().string();
    for (const char* end : {".bin", ".mask.bin", ".rejected.jsonl"}) {
      if (file != output + end) continue;
      throw ConfigError(fmt::format("{}: is read and would be replaced; give another output",
                                    shard.path.string()));
    }
  }
}

int64_t modified_ns(const Shard& shard) {
  struct stat status {};
  if (shard.path == "-" || ::stat(shard.path.c_str(), &status) != 0) return 0;
  return int64_t{status.st_mtim.tv_sec} * 1000000000 + status.st_mtim.tv_nsec;
}

void check_unchanged(const Shard& shard, const ShardRecord& record) {
  if (shard.path == "-" || modified_ns(shard) == record.modified_ns) return;
  ContentHash hash;
  hash.add(MappedFile(shard.path).bytes());
  if (const auto index = index_beside(shard)) hash.add(MappedFile(*index).bytes());
  if (hash.hex() != record.end.hash) {
    throw IoError(
        fmt::format("{}: was changed since this build read it (hash {}, now {}); start over with "
                    "--overwrite",
                    shard.path.string(), record.end.hash, hash.hex()));
  }
}

}  // namespace trireme::data
