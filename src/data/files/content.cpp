// SPDX-License-Identifier: Apache-2.0
#include "data/files/content.h"

#include <algorithm>
#include <functional>
#include <span>
#include <vector>

#include "data/readers/content_hash.h"

namespace trireme::data {
namespace {

// Calls visit(begin, end) for all of [0, total), block by block; above max_hashed, for evenly
// spaced blocks including the first and the last.
void for_each_block(int64_t total, const std::function<void(int64_t, int64_t)>& visit) {
  constexpr int64_t block = int64_t{1} << 16;
  if (total <= max_hashed) {
    for (int64_t begin = 0; begin < total; begin += block) {
      visit(begin, std::min(begin + block, total));
    }
    return;
  }
  constexpr int64_t blocks = max_hashed / block;
  const int64_t spread = (total - block) / (blocks - 1), rest = (total - block) % (blocks - 1);
  for (int64_t i = 0; i < blocks; ++i) {
    const int64_t begin = spread * i + rest * i / (blocks - 1);
    visit(begin, begin + block);
  }
}

}  // namespace

ContentId content_id(const TokenData& data) {
  ContentId id{.tokens = data.tokens(), .documents = data.documents().count()};
  ContentHash tokens, documents;
  std::vector<int32_t> ids;
  for_each_block(id.tokens, [&](int64_t begin, int64_t end) {
    ids.resize(static_cast<size_t>(end - begin));
    data.read(begin, ids);
    tokens.add(std::as_bytes(std::span(ids)));
  });
  std::vector<int64_t> starts;
  for_each_block(id.documents, [&](int64_t begin, int64_t end) {
    starts.clear();
    for (int64_t document = begin; document < end; ++document) {
      starts.push_back(data.documents().start(document));
    }
    documents.add(std::as_bytes(std::span(starts)));
  });
  id.token_hash = tokens.hex();
  id.document_hash = documents.hex();
  return id;
}

}  // namespace trireme::data
