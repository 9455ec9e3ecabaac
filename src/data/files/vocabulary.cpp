// SPDX-License-Identifier: Apache-2.0
#include "data/files/vocabulary.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/check.h"
#include "base/error.h"

namespace trireme::data {

void check_vocabulary(const TokenData& data, int64_t vocab, const ScanProgress& progress) {
  std::vector<int32_t> chunk(1 << 16);
  for (int64_t at = 0; at < data.tokens();) {
    const int64_t count = std::min<int64_t>(static_cast<int64_t>(chunk.size()), data.tokens() - at);
    const auto tokens = std::span(chunk).first(static_cast<size_t>(count));
    data.read(at, tokens);
    check_vocabulary(data, vocab, at, tokens);
    at += count;
    if (progress) progress(at, data.tokens());
  }
}

void check_vocabulary(const TokenData& data, int64_t vocab, int64_t begin,
                      std::span<const int32_t> tokens) {
  TRIREME_CHECK(vocab > 0, "a vocabulary of {}", vocab);
  int32_t largest = 0;
  for (const int32_t token : tokens) largest = std::max(largest, token);
  if (largest < vocab) return;
  const auto bad =
      std::find_if(tokens.begin(), tokens.end(), [&](int32_t token) { return token >= vocab; });
  const int64_t place = begin + (bad - tokens.begin());
  const int64_t document = data.documents().at(place);
  throw base::IoError(fmt::format(
      "{}: token {} (number {} of document {}) is {}; the model's vocabulary is {}, ids 0 .. {}",
      data.name(), place, place - data.documents().start(document), document, *bad, vocab,
      vocab - 1));
}

}  // namespace trireme::data
