// SPDX-License-Identifier: Apache-2.0
#include "cli/infer/text_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "cli/shell/progress.h"
#include "data/sources/document_source.h"
#include "data/sources/shards.h"

namespace trireme::cli {
namespace {

constexpr int64_t read_tokens = 1 << 16;

}  // namespace

std::unique_ptr<train::TextCodec> known_codec(const Args& args, const FoundWeights& weights) {
  const std::filesystem::path tokenizer = tokenizer_of(args, weights);
  if (tokenizer.empty() && weights.dims().vocab > 257) return nullptr;
  return std::make_unique<train::TextCodec>(tokenizer, weights.dims().vocab);
}

bool is_text_to_encode(const std::filesystem::path& path, data::TokenFormat format,
                       const train::TextCodec& codec) {
  if (format == data::TokenFormat::text) return !codec.is_bytes();
  if (format != data::TokenFormat::automatic) return false;
  std::string name = path.filename().string();
  bool is_compressed = false;
  for (const char* end : {".gz", ".zst", ".zstd"}) {
    if (!name.ends_with(end)) continue;
    name.resize(name.size() - std::string_view(end).size());
    is_compressed = true;
  }
  if (name.ends_with(".jsonl") || name.ends_with(".ndjson")) return true;
  return name.ends_with(".txt") && (is_compressed || !codec.is_bytes());
}

std::unique_ptr<data::TokenData> encoded_text(const std::filesystem::path& path,
                                              const train::TextCodec& codec) {
  data::ShardOptions options;
  if (!path.has_extension()) options.kind = data::SourceKind::text;
  data::DocumentSource source(data::find_shards({path.string()}, options), {});
  std::vector<int32_t> tokens;
  Progress progress("encode", "bytes", source.shards().front().stored_bytes);
  int64_t bytes = 0;
  for (data::Document document; source.next(document);) {
    if (document.rejected) {
      throw base::ConfigError(
          fmt::format("{}: {}", data::to_text(document.origin), document.rejected->detail));
    }
    const std::vector<int32_t> part = codec.encode_plain(document.text);
    tokens.insert(tokens.end(), part.begin(), part.end());
    if (codec.eos()) tokens.push_back(*codec.eos());
    progress.update(bytes += std::ssize(document.text));
  }
  progress.finish();
  return data::tokens_in_memory(std::move(tokens), codec.eos().value_or(-1));
}

int64_t text_bytes(const train::TextCodec& codec, const data::TokenData& data, int64_t labels) {
  const std::unique_ptr<text::StreamingDecoder> decoder = codec.streaming_decoder();
  std::vector<int32_t> tokens;
  int64_t bytes = 0;
  for (int64_t begin = 1; begin <= labels; begin += read_tokens) {
    tokens.resize(static_cast<size_t>(std::min(read_tokens, labels + 1 - begin)));
    data.read(begin, tokens);
    for (const int32_t token : tokens) bytes += std::ssize(decoder->push(token));
  }
  return bytes + std::ssize(decoder->finish());
}

}  // namespace trireme::cli
