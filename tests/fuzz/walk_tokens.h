// SPDX-License-Identifier: Apache-2.0
// Reads a data set through every call that training uses.
#pragma once

#include <vector>

#include "base/check.h"
#include "data/files/token_data.h"

namespace trireme::fuzz {

// Checks that documents follow each other from the first token to the last by every query. Throws
// IoError for an invalid token.
inline void walk_tokens(const data::TokenData& tokens) {
  const data::DocumentIndex& documents = tokens.documents();
  std::vector<int32_t> all(static_cast<size_t>(tokens.tokens()));
  tokens.read(0, all);
  (void)data::fingerprint(tokens);
  std::vector<int64_t> wanted, found;
  int64_t before = 0;
  for (int64_t i = 0; i < documents.count(); ++i) {
    const int64_t start = documents.start(i), end = documents.start(i + 1);
    TRIREME_CHECK(start == before && end >= start, "document {} is {} .. {}", i, start, end);
    before = end;
    if (end == start) continue;
    wanted.push_back(start);
    TRIREME_CHECK(documents.at(start) == i && documents.at(end - 1) == i, "document {}", i);
  }
  TRIREME_CHECK(before == tokens.tokens(), "documents end at {} of {}", before, tokens.tokens());
  documents.starts_in(0, tokens.tokens(), found);
  TRIREME_CHECK(found == wanted, "{} starts, wanted {}", found.size(), wanted.size());
}

}  // namespace trireme::fuzz
