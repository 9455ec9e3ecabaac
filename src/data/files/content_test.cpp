// SPDX-License-Identifier: Apache-2.0
#include "data/files/content.h"

#include <gtest/gtest.h>

#include <numeric>

namespace trireme::data {
namespace {

ContentId id_of(std::vector<int32_t> tokens, int32_t end_of_document = -1) {
  return content_id(*tokens_in_memory(std::move(tokens), end_of_document));
}

TEST(ContentId, every_token_counts) {
  std::vector<int32_t> tokens(200'000);
  std::iota(tokens.begin(), tokens.end(), 0);
  const ContentId id = id_of(tokens);
  EXPECT_EQ(id, id_of(tokens));
  EXPECT_EQ(id.tokens, 200'000);
  for (const size_t at : {size_t{0}, size_t{1}, size_t{65'536}, size_t{99'999}, size_t{199'999}}) {
    std::vector<int32_t> other = tokens;
    other[at] += 1;
    EXPECT_NE(id.token_hash, id_of(other).token_hash) << at;
  }
  std::vector<int32_t> swapped = tokens;
  std::swap(swapped[10], swapped[11]);
  EXPECT_NE(id.token_hash, id_of(swapped).token_hash);
  std::vector<int32_t> shorter(tokens.begin(), tokens.end() - 1);
  EXPECT_NE(id, id_of(shorter));
}

TEST(ContentId, document_borders_count) {
  const std::vector<int32_t> tokens = {1, 2, 0, 3, 4, 0, 5};
  const ContentId whole = id_of(tokens), cut = id_of(tokens, 0), other = id_of(tokens, 3);
  EXPECT_EQ(whole.token_hash, cut.token_hash);
  EXPECT_EQ(whole.documents, 1);
  EXPECT_EQ(cut.documents, 3);
  EXPECT_NE(whole.document_hash, cut.document_hash);
  EXPECT_NE(cut.document_hash, other.document_hash);
}

}  // namespace
}  // namespace trireme::data
