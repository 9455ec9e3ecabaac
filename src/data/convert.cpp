// SPDX-License-Identifier: Apache-2.0
#include "data/convert.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "data/files/token_writer.h"

namespace trireme::data {
namespace {

constexpr int64_t convert_tokens_at_once = 1 << 18;

// Calls visit(tokens) for tokens [begin, end) in parts.
template <typename Visit>
void for_each_part(const TokenData& data, int64_t begin, int64_t end, Visit&& visit) {
  std::vector<int32_t> part;
  for (int64_t at = begin; at < end; at += convert_tokens_at_once) {
    part.resize(static_cast<size_t>(std::min(end - at, convert_tokens_at_once)));
    data.read(at, part);
    visit(part);
  }
}

int64_t smallest_vocab(const TokenData& data) {
  int32_t largest = 0;
  for_each_part(data, 0, data.tokens(), [&](const std::vector<int32_t>& part) {
    largest = std::max(largest, *std::max_element(part.begin(), part.end()));
  });
  return int64_t{largest} + 1;
}

// Returns a vocabulary for which the format stores the type that is asked for.
int64_t vocab_for_type(const ConvertOptions& options, int64_t vocab) {
  if (options.type.empty()) return vocab;
  constexpr int64_t above_u16 = 65537;
  const TokenType asked = token_type_from_name(options.type);
  for (const int64_t tried : {vocab, std::max(vocab, above_u16)}) {
    if (stored_type(options.format, tried) == asked) return tried;
  }
  throw base::ConfigError(
      fmt::format("{}: {} tokens below {} cannot be stored as {}; the format stores {} for this "
                  "vocabulary and {} above",
                  options.to.string(), name_of(options.format), vocab, options.type,
                  name_of(stored_type(options.format, vocab)),
                  name_of(stored_type(options.format, above_u16))));
}

}  // namespace

ConvertReport convert_tokens(const ConvertOptions& options) {
  (void)stored_type(options.format, std::max<int64_t>(options.vocab, 1));
  const auto data = open_tokens(options.from, options.open);
  for (const auto& target : token_files(options.to, options.format)) {
    for (const MappedFile& file : data->files()) {
      std::error_code ignored;
      if (std::filesystem::equivalent(target, file.path(), ignored)) {
        throw base::ConfigError(
            fmt::format("{}: is read and would be replaced; give another output", target.string()));
      }
    }
  }
  const int64_t vocab =
      vocab_for_type(options, options.vocab > 0 ? options.vocab : smallest_vocab(*data));
  const auto writer = write_tokens(options.to, {.format = options.format, .vocab = vocab});
  const DocumentIndex& documents = data->documents();
  const int64_t count = documents.count();
  for (int64_t document = 0; document < count; ++document) {
    for_each_part(*data, documents.start(document), documents.start(document + 1),
                  [&](const std::vector<int32_t>& part) {
                    writer->write(part);
                    if (options.progress) options.progress(writer->tokens(), data->tokens());
                  });
    writer->end_document();
  }
  writer->finish();
  return {.tokens = writer->tokens(),
          .documents = writer->documents(),
          .vocab = vocab,
          .type = writer->type(),
          .loses_borders = data->format() == TokenFormat::megatron &&
                           options.format != TokenFormat::megatron && count > 1};
}

}  // namespace trireme::data
